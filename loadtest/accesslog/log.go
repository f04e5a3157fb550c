package accesslog

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
)

// maxPlaces is how many malformed lines are named by their number.
const maxPlaces = 10

// MaxLine is the most bytes of a line, its end not counted. Longer lines are
// malformed.
const MaxLine = 1 << 20

// ErrFormat is returned where no line at all is in the format.
var ErrFormat = errors.New("accesslog: no line is in the format")

// Log is a log in memory, reduced to features and times: 16 bytes a line, and
// each actor once.
type Log struct {
	Lines     int
	Filtered  int // lines that the format leaves out on purpose
	Malformed int // lines that are not in the format, or with a value that its kind does not take
	// Places are those of the first of them: the number of the line, which begin at 1, behind
	// the name of its file where there are several.
	Places []string
	Faults []Fault // of the filtered and the malformed lines, by kind, the most frequent first

	// Actors are the sets of features, each once, as the log has them; one may be empty. They are not to be changed.
	Actors []events.Features
	Events []Event // in the order of time; those of one moment in that of the log
}

// Event is a line of a log.
type Event struct {
	Micros int64  // since 1970
	Actor  uint32 // index of Actors
}

// Time returns when it was, in UTC.
func (e Event) Time() time.Time { return time.UnixMicro(e.Micros).UTC() }

// Second returns when it was, in whole seconds since 1970.
func (e Event) Second() int64 { return time.UnixMicro(e.Micros).Unix() }

// Fault is a reason for which lines have no event.
type Fault struct {
	Reason   string
	Filtered bool // else malformed
	Lines    int
}

func (f Fault) String() string {
	if f.Filtered {
		return fmt.Sprintf("%d filtered: %s", f.Lines, f.Reason)
	}
	return fmt.Sprintf("%d malformed: %s", f.Lines, f.Reason)
}

// Input is a part of a log.
type Input struct {
	Name string
	// Open returns the text, and when its last line was written.
	Open func() (io.ReadCloser, time.Time, error)
	// Year is the one of the last line, where the log's times have none; 0: the latest in
	// which that line is not after the moment that Open returns.
	Year int
}

// File is a file by its name.
func File(name string) Input {
	return Input{Name: name, Open: func() (io.ReadCloser, time.Time, error) {
		file, err := os.Open(name)
		if err != nil {
			return nil, time.Time{}, err
		}
		info, err := file.Stat()
		if err != nil {
			return nil, time.Time{}, errors.Join(err, file.Close())
		}
		return file, info.ModTime(), nil
	}}
}

// Stream is what is not to be opened or closed, as standard input. Its last line is of now.
func Stream(name string, r io.Reader) Input {
	return Input{Name: name, Open: func() (io.ReadCloser, time.Time, error) { return io.NopCloser(r), time.Now(), nil }}
}

// ReadLog reads the inputs, one after the other. It goes on behind lines that are malformed or
// filtered, and returns errors of the inputs, and that of the context when it ends. If all
// lines are so, and there is one, the error wraps ErrFormat, and the log says where they are.
//
// Times without a year are those of this machine's zone, and each input's are taken for
// ascending: a step back of more than half a year is a turn of the year.
func ReadLog(ctx context.Context, format Format, mapping Mapping, inputs ...Input) (*Log, error) {
	loading := &loading{mapping: mapping, known: map[string]uint32{}, log: &Log{}}
	for _, input := range inputs {
		if len(inputs) > 1 {
			loading.prefix = input.Name + ":"
		}
		if err := loading.read(ctx, format, input); err != nil {
			return nil, err
		}
	}
	log := loading.log
	slices.SortStableFunc(log.Events, func(a, b Event) int { return cmp.Compare(a.Micros, b.Micros) })
	slices.SortStableFunc(log.Faults, func(a, b Fault) int { return cmp.Compare(b.Lines, a.Lines) })
	if log.Lines > 0 && len(log.Events) == 0 {
		var why []string
		for _, f := range log.Faults {
			why = append(why, f.String())
		}
		return log, fmt.Errorf("%w: wanted is %s; of %d lines %s", ErrFormat, format, log.Lines, strings.Join(why, "; "))
	}
	return log, nil
}

// All returns the times and the features of all lines, in the order of time.
func (l *Log) All() iter.Seq2[time.Time, events.Features] {
	return func(yield func(time.Time, events.Features) bool) {
		for _, e := range l.Events {
			if !yield(e.Time(), l.Actors[e.Actor]) {
				return
			}
		}
	}
}

// loading is a log that is being read.
type loading struct {
	mapping Mapping
	known   map[string]uint32 // actors, by their values
	log     *Log
	prefix  string // of the places
	space   []byte
}

func (l *loading) read(ctx context.Context, format Format, input Input) error {
	in, written, err := input.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	line, first := 0, len(l.log.Events)
	var joiner partJoiner
	for text, err := range linesOf(in) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		line++
		l.log.Lines++
		complete := true
		if err == nil {
			text, complete, err = joiner.join(text)
		}
		if err == nil && complete {
			err = l.add(format, text)
		}
		if reason, isFault := errors.AsType[*fault](err); isFault {
			l.without(fmt.Sprint(l.prefix, line), reason)
		} else if err != nil {
			return fmt.Errorf("%s: %w", input.Name, err)
		}
	}
	for range joiner.parts {
		l.without(fmt.Sprint(l.prefix, line), malformed("the end of a line that CRI has cut is missing"))
	}
	if err := date(l.log.Events[first:], input.Year, written, time.Local); err != nil {
		return fmt.Errorf("%s: %w", input.Name, err)
	}
	return nil
}

func (l *loading) add(format Format, line string) error {
	at, values, err := format.Parse(line)
	if err != nil {
		return err
	}
	key := l.key(values)
	actor, known := l.known[string(key)]
	if !known {
		features, err := l.mapping.Features(values)
		if err != nil {
			return err
		}
		// A value is a part of its line, which would stay in memory as a whole.
		for kind, value := range features {
			features[kind] = strings.Clone(value)
		}
		actor = uint32(len(l.log.Actors))
		l.log.Actors = append(l.log.Actors, features)
		l.known[string(key)] = actor
	}
	l.log.Events = append(l.log.Events, Event{at.UnixMicro(), actor})
	return nil
}

// key returns the values as one text that lives until the next. Empty and "-" are the same.
func (l *loading) key(values []string) []byte {
	l.space = l.space[:0]
	for _, value := range values {
		if value == "-" {
			value = ""
		}
		l.space = strconv.AppendInt(l.space, int64(len(value)), 10)
		l.space = append(append(l.space, ':'), value...)
	}
	return l.space
}

// without counts a line without an event. Reasons name no part of a line, so there are few.
func (l *loading) without(place string, f *fault) {
	isFiltered := f.kind == ErrFiltered
	if isFiltered {
		l.log.Filtered++
	} else if l.log.Malformed++; len(l.log.Places) < maxPlaces {
		l.log.Places = append(l.log.Places, place)
	}
	i := slices.IndexFunc(l.log.Faults, func(known Fault) bool { return known.Reason == f.reason && known.Filtered == isFiltered })
	if i < 0 {
		i = len(l.log.Faults)
		l.log.Faults = append(l.log.Faults, Fault{Reason: f.reason, Filtered: isFiltered})
	}
	l.log.Faults[i].Lines++
}

// linesOf yields every line without its end, LF or CR LF, or that it is too long: the n-th pair
// is of line n. A log that begins as gzip does is decompressed, also several such files, one
// behind the other: standard input has no name to go by. A byte order mark is skipped. Any error
// but ErrMalformed is of the reader and ends the log. Not more than one line is held in memory.
func linesOf(r io.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		in := bufio.NewReaderSize(r, MaxLine+len("\r\n"))
		magic, _ := in.Peek(6) // an error comes again with the first line
		zipped := bytes.HasPrefix(magic, []byte("\x1f\x8b"))
		if zipped {
			unzipped, err := gzip.NewReader(in)
			if err != nil {
				yield("", err)
				return
			}
			unzipped.Multistream(false)
			in = bufio.NewReaderSize(&members{in: in, zip: unzipped}, MaxLine+len("\r\n"))
			magic, _ = in.Peek(6)
		}
		if err := checkReadable(string(magic)); err != nil {
			yield("", err)
			return
		}
		if bytes.HasPrefix(magic, []byte("\ufeff")) {
			_, _ = in.Discard(len("\ufeff"))
		}
		for {
			line, err := readLine(in)
			switch {
			case zipped && err == gzip.ErrHeader:
				err = fmt.Errorf("%w: %w", unread("bytes behind the gzip data are not gzip", "gzip -dc"), err)
			case zipped && err == io.ErrUnexpectedEOF:
				err = fmt.Errorf("%w: %w", unread("the gzip data is cut off", "gzip -dc"), err)
			}
			if err == io.EOF || !yield(line, err) || err != nil && !errors.Is(err, ErrMalformed) {
				return
			}
		}
	}
}

// members reads the files of a gzip log, one behind the other, and skips zeros behind them, as a block device has them.
type members struct {
	in  *bufio.Reader
	zip *gzip.Reader
}

func (m *members) Read(p []byte) (int, error) {
	n, err := m.zip.Read(p)
	if err != io.EOF {
		return n, err
	}
	if n > 0 {
		return n, nil // the next Read finds the end of the file again
	}
	for {
		next, err := m.in.ReadByte()
		if err != nil {
			return 0, err
		}
		if next != 0 {
			break
		}
	}
	if err := m.in.UnreadByte(); err != nil {
		return 0, err
	}
	if err := m.zip.Reset(m.in); err != nil {
		return 0, err
	}
	m.zip.Multistream(false)
	return 0, nil
}

var errLong = malformed(fmt.Sprintf("it is longer than %d bytes", MaxLine))

// readLine returns the next line. Of one that is too long it keeps nothing; at the end of the log
// it returns io.EOF.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	tooLong := err == bufio.ErrBufferFull
	for err == bufio.ErrBufferFull {
		_, err = in.ReadSlice('\n')
	}
	if err != nil && (err != io.EOF || len(line) == 0) {
		return "", err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
	if tooLong || len(text) > MaxLine {
		return "", errLong
	}
	return text, nil
}
