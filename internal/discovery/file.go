package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/counterd/counterd/internal/filewatch"
)

const (
	// maxFile bounds the size of a file of servers.
	maxFile = 64 << 10
	// maxFaults bounds the faults that are reported of one file.
	maxFaults = 10
	// quiet is how long a file has to stay the same before it is taken, so that one
	// that is still being written is not: half of a list is a list too.
	quiet = 100 * time.Millisecond
)

// File names servers in a file, one a line or with commas between. What follows a # at
// the beginning of a line, or behind a blank or a comma, is a comment. A name that is
// written wrongly or named twice makes the whole file invalid.
//
// A Follower sees a change of the file at once, whether it is edited, replaced, or a link
// that is swapped. A file that is replaced in one step is never seen half written.
type File struct{ Path string }

// Servers reads the file, twice: what it returns has been in it for a tenth of a second.
func (f File) Servers(ctx context.Context) ([]string, error) {
	data, err := f.settled(ctx)
	if err != nil {
		return nil, at(f.Path, err)
	}
	servers, err := parseFile(data)
	if err != nil {
		return nil, at(f.Path, err)
	}
	return servers, nil
}

// settled returns what the file holds, once that has been the same for a while.
func (f File) settled(ctx context.Context) ([]byte, error) {
	data, err := f.read()
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("it was read while it changed: %w", ctx.Err())
		case <-time.After(quiet):
		}
		before, failed := data, err != nil
		data, err = f.read()
		if failed == (err != nil) && bytes.Equal(data, before) {
			return data, err
		}
	}
}

func (f File) read() ([]byte, error) {
	data, err := filewatch.Read(f.Path, maxFile+1)
	if err == nil && len(data) > maxFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return data, err
}

// watch tells when the file may have changed.
func (f File) watch(report func(error)) *filewatch.Watch {
	return filewatch.New(f.Path, func(err error) {
		report(at(f.Path, fmt.Errorf("it cannot be watched, and is looked at every %s: %w", filewatch.Glance, err)))
	})
}

// parseFile returns the servers that are named in a file, or all that is wrong with it.
func parseFile(data []byte) ([]string, error) {
	var servers []string
	var faults []error
	lines := map[string]int{}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		for name := range strings.SplitSeq(withoutComment(line), ",") {
			name = strings.TrimSpace(name)
			if name == "" {
				continue
			}
			fault := CheckServer(name)
			if first := lines[name]; first != 0 {
				fault = fmt.Errorf("%s is named twice, first in line %d", name, first)
			}
			if fault != nil {
				faults = append(faults, fmt.Errorf("line %d: %w", number, fault))
				continue
			}
			lines[name] = number
			servers = append(servers, name)
		}
	}
	switch {
	case len(faults) > maxFaults:
		more := fmt.Errorf("and %d faults more", len(faults)-maxFaults)
		return nil, errors.Join(append(faults[:maxFaults], more)...)
	case len(faults) > 0:
		return nil, errors.Join(faults...)
	case len(servers) == 0:
		return nil, ErrNone
	}
	return servers, nil
}

// withoutComment cuts a line where a comment begins. A # within a path does not begin
// one.
func withoutComment(line string) string {
	for i := range line {
		before, _ := utf8.DecodeLastRuneInString(line[:i])
		if line[i] == '#' && (i == 0 || before == ',' || unicode.IsSpace(before)) {
			return line[:i]
		}
	}
	return line
}
