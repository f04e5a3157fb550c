// Command hitfiles lists the files of this module that one hit over HTTP runs through, and
// their lines. It needs memcached.
//
//	go run ./internal/testkit/hitfiles
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// module is the prefix of the repository's files in a coverage profile.
const module = "github.com/counterd/counterd/"

// control is compiled into the server beside its own files. It clears the coverage
// counters, and writes them, on command; so they hold one hit and not the start.
const control = `package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/coverage"
)

var _ = control()

func control() bool {
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			var err error
			if folder := lines.Text(); folder == "clear" {
				err = coverage.ClearCounters()
			} else if err = coverage.WriteMetaDir(folder); err == nil {
				err = coverage.WriteCountersDir(folder)
			}
			fmt.Println(err)
		}
	}()
	return true
}
`

const hitRules = `events:
  url_shorten:
    limits:
      - per: ip
        rate: [10/m, 1000/d]
      - per: user
        rate: 100/h
`

func main() {
	if err := run(".", os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "hitfiles:", err)
		os.Exit(1)
	}
}

// run writes the files that one hit over HTTP runs through in the server, with a Memcached
// behind it: the files in which statements run during each of several hits.
func run(root string, out io.Writer) error {
	folder, err := os.MkdirTemp("", "hitfiles-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	binary, err := buildCovered(root, folder)
	if err != nil {
		return err
	}
	store, stop, err := startMemcached()
	if err != nil {
		return err
	}
	defer stop()
	files, err := filesOfHits(binary, store, folder)
	if err != nil {
		return err
	}
	total := 0
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return err
		}
		lines := bytes.Count(text, []byte("\n"))
		total += lines
		fmt.Fprintf(out, "%6d %s\n", lines, file)
	}
	_, err = fmt.Fprintf(out, "%6d lines in %d files\n", total, len(files))
	return err
}

// buildCovered builds the server with coverage counters and the control, from a copy of the
// tree: the cover tool reads no overlay.
func buildCovered(root, folder string) (string, error) {
	tree, binary := filepath.Join(folder, "tree"), filepath.Join(folder, "counterd")
	entries, err := os.ReadDir(root)
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(tree, 0o700); err != nil {
		return "", err
	}
	for _, entry := range entries {
		from, to := filepath.Join(root, entry.Name()), filepath.Join(tree, entry.Name())
		switch {
		case strings.HasPrefix(entry.Name(), "."), entry.Name() == "bin":
		case entry.IsDir():
			err = errors.Join(err, os.CopyFS(to, os.DirFS(from)))
		default:
			text, readErr := os.ReadFile(from)
			err = errors.Join(err, readErr, os.WriteFile(to, text, 0o600))
		}
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(tree, "cmd/counterd/hitfiles_control.go"), []byte(control), 0o600))
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", binary, "-buildvcs=false", "-cover", "-covermode=atomic", "-coverpkg=./...", "./cmd/counterd")
	build.Dir = tree
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building counterd: %w: %s", err, out)
	}
	return binary, nil
}

// startMemcached runs a server on a free port of loopback until stop.
func startMemcached() (address string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = listener.Addr().String()
	listener.Close()
	_, port, _ := net.SplitHostPort(address)
	server := exec.Command("memcached", "-l", "127.0.0.1", "-p", port, "-U", "0", "-u", "root")
	if err := server.Start(); err != nil {
		return "", nil, fmt.Errorf("%w: install memcached", err)
	}
	stop = func() {
		_ = server.Process.Kill() // it is gone where that fails
		_ = server.Wait()
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return address, stop, nil
		}
	}
	stop()
	return "", nil, errors.New("memcached does not listen")
}

// covered is a running server with the control.
type covered struct {
	address string
	in      io.Writer
	out     *bufio.Scanner
}

func (c covered) control(command string) error {
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		return err
	}
	if !c.out.Scan() || c.out.Text() != "<nil>" {
		return fmt.Errorf("coverage counters: %s", c.out.Text())
	}
	return nil
}

func (c covered) hit() error {
	answer, err := http.Post("http://"+c.address+"/v1/events/url_shorten/hit", "application/json",
		strings.NewReader(`{"features": {"ip": "192.0.2.1", "user": "alice"}}`))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("a hit is answered with %s: %s", answer.Status, text)
	}
	return err
}

// filesOfHits returns the files that run in each of some hits, so that what runs beside
// them by itself does not count.
func filesOfHits(binary, store, folder string) (files []string, err error) {
	rules := filepath.Join(folder, "rules.yaml")
	if err := os.WriteFile(rules, []byte(hitRules), 0o600); err != nil {
		return nil, err
	}
	server := exec.Command(binary, "-listen", "127.0.0.1:0", "-memcached", store, "-rules", rules)
	in, err1 := server.StdinPipe()
	out, err2 := server.StdoutPipe()
	log, err3 := server.StderrPipe()
	if err := errors.Join(err1, err2, err3, server.Start()); err != nil {
		return nil, err
	}
	defer func() {
		_ = server.Process.Kill() // it is gone where that fails
		_ = server.Wait()
	}()
	c := covered{in: in, out: bufio.NewScanner(out)}
	var said strings.Builder
	for lines := bufio.NewScanner(log); c.address == "" && lines.Scan(); {
		fmt.Fprintln(&said, lines.Text())
		if _, rest, found := strings.Cut(lines.Text(), "msg=serving address="); found {
			c.address, _, _ = strings.Cut(rest, " ")
		}
	}
	if c.address == "" {
		return nil, fmt.Errorf("counterd does not serve: %s", &said)
	}
	go io.Copy(io.Discard, log)
	const warm, measured = 3, 5
	for i := range warm + measured {
		counters := filepath.Join(folder, "hit"+strconv.Itoa(i))
		if err := errors.Join(os.Mkdir(counters, 0o700), c.control("clear"), c.hit(), c.control(counters)); err != nil {
			return nil, err
		}
		if i < warm {
			continue
		}
		ran, err := filesOf(counters)
		if err != nil {
			return nil, err
		}
		if i == warm {
			files = ran
		}
		files = slices.DeleteFunc(files, func(file string) bool { return !slices.Contains(ran, file) })
	}
	return files, nil
}

// filesOf returns the files with statements that ran.
func filesOf(counters string) (files []string, err error) {
	profile := filepath.Join(counters, "profile")
	if out, err := exec.Command("go", "tool", "covdata", "textfmt", "-i", counters, "-o", profile).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go tool covdata: %w: %s", err, out)
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		file, _, found := strings.Cut(strings.TrimPrefix(line, module), ":")
		ran := !strings.HasSuffix(strings.TrimSpace(line), " 0")
		if found && ran && strings.HasSuffix(file, ".go") && filepath.Base(file) != "hitfiles_control.go" && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return files, nil
}
