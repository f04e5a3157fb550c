package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/process"
)

// maxWait is how long a busy machine may take for an instant step.
const maxWait = time.Minute

// program is loadtest as it is run, a process.
type program struct {
	*exec.Cmd
	out   bytes.Buffer
	lines chan string // of standard error
	ended chan error
}

func startProgram(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(builtLoadtest, args...), lines: make(chan string, 1000), ended: make(chan error, 1)}
	p.Env = append(os.Environ(), asLoadtest+"=1", "TMPDIR="+t.TempDir())
	p.Stdout = &p.out
	said, err := p.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			p.lines <- lines.Text()
		}
	})
	reading.Go(func() { <-t.Context().Done(); _ = p.Process.Kill() }) // it may have ended
	go func() { p.ended <- p.Wait() }()
	t.Cleanup(reading.Wait)
	return p
}

// says waits until a line of standard error has that text.
func (p *program) says(t *testing.T, text string) {
	t.Helper()
	late := time.After(maxWait)
	for {
		select {
		case line, more := <-p.lines:
			require.True(t, more, "it has ended without saying %q", text)
			if strings.Contains(line, text) {
				return
			}
		case <-late:
			t.Fatalf("it does not say %q", text)
		}
	}
}

// status waits until it has ended, and returns its exit status; -1: a signal has ended it.
func (p *program) status(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(maxWait):
		t.Fatal("it does not end")
	}
	return p.ProcessState.ExitCode()
}

// rest returns its unread lines of standard error.
func (p *program) rest() string {
	var b strings.Builder
	for line := range p.lines {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

// children returns the processes that it has started, by their programs.
func (p *program) children(t *testing.T) map[int]string {
	t.Helper()
	found := map[int]string{}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.Process.Pid))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			require.NoError(t, err)
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it may have ended
			found[pid] = strings.TrimSpace(string(name))
		}
	}
	return found
}

// alive reports whether a process runs.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// gone waits until none of the processes runs.
func gone(t *testing.T, pids map[int]string) {
	t.Helper()
	testkit.Await(t, maxWait, fmt.Sprint("the end of ", pids), func() bool {
		for pid := range pids {
			if alive(pid) {
				return false
			}
		}
		return true
	})
}

// called waits until its counterd have answered hits, and returns all that it has started.
func (p *program) called(t *testing.T, programs, hits int) map[int]string {
	t.Helper()
	var all map[int]string
	testkit.Await(t, maxWait, fmt.Sprintf("%d hits by %d programs", hits, programs), func() bool {
		all = p.children(t)
		if len(all) < programs {
			return false
		}
		sum := 0
		for pid, name := range all {
			if name == "counterd" {
				sum += hitsOf(pid)
			}
		}
		return sum >= hits
	})
	return all
}

var decided = regexp.MustCompile(`(?m)^counterd_batched_hits_total (\d+)`)

// hitsOf returns how many hits a counterd has decided.
func hitsOf(pid int) (sum int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
	args := strings.Split(string(text), "\x00")
	for i, arg := range args[:max(len(args)-1, 0)] {
		if arg != "-admin" {
			continue
		}
		metrics, _ := fleet.Ask(args[i+1], "/metrics")
		for _, match := range decided.FindAllStringSubmatch(metrics, -1) {
			n, _ := strconv.Atoi(match[1])
			sum += n
		}
	}
	return sum
}

// An interrupted verify of what it has started itself reports, and leaves nothing behind.
func TestInterruptsOfWhatIsStartedHere(t *testing.T) {
	interruptOwn(t, os.Interrupt, 4, 500, []string{"violations   none", "interrupted: what was seen"}, "verify", "-duration", "1h")
}

// interruptOwn interrupts a command that starts as many programs, after as many hits, and wants texts in its report.
func interruptOwn(t *testing.T, signal os.Signal, programs, hits int, says []string, args ...string) {
	t.Helper()
	if !process.Known {
		t.Skip("how to find the processes is known on Linux only")
	}
	p := startProgram(t, args...)
	started := p.called(t, programs, hits)
	require.NoError(t, p.Process.Signal(signal))
	p.says(t, "another interrupt ends it at once")
	status, said := p.status(t), p.rest()
	assert.Equal(t, exitInterrupted, status, "%s%s", said, &p.out)
	assert.Contains(t, said, "loadtest: interrupted\n")
	for _, text := range says {
		assert.Regexp(t, text, p.out.String())
	}
	gone(t, started)
	left, err := os.ReadDir(strings.TrimPrefix(p.Env[len(p.Env)-1], "TMPDIR="))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// The second interrupt ends at once what does not end by itself, and what it has started.
func TestTheSecondInterrupt(t *testing.T) {
	if !process.Known {
		t.Skip("how to find the processes is known on Linux only")
	}
	p := startProgram(t, "verify", "-duration", "1h")
	started := p.called(t, 4, 100)
	for pid, name := range started {
		if name == "counterd" {
			require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP)) // nor does it end when it is asked to
		}
	}
	require.NoError(t, p.Process.Signal(os.Interrupt))
	p.says(t, "another interrupt ends it at once")
	require.NoError(t, p.Process.Signal(os.Interrupt))
	assert.Equal(t, -1, p.status(t))
	assert.Equal(t, syscall.SIGINT, p.ProcessState.Sys().(syscall.WaitStatus).Signal())
	assert.Empty(t, p.out.String())
	p.rest()
	gone(t, started)
}

// Calls to a target of another owner end at once, and its answers are reported: the exit
// status says so where they are wrong.
func TestInterruptsOfCallsToOthers(t *testing.T) {
	server, err := child.Start(t.Context(), child.Program{
		Path: builtCounterd, Args: func(addr string) []string { return []string{"-listen", addr} },
		Ready: func(addr string) error { _, err := fleet.Ask(addr, "/healthz"); return err },
	})
	require.NoError(t, err)
	defer func() { assert.NoError(t, server.Stop()) }()
	for name, c := range map[string]struct {
		args   []string
		calls  int64  // until the interrupt
		header string // that is left out
		status int
		says   string
	}{
		"verify, wrong": {[]string{"verify", "-duration", "1h"}, 1000, "Retry-After", exitFailed, `interrupted: what was seen(?s:.*)WRONG  headers`},
		"run":           {[]string{"run", "-duration", "1h", "-max-failures", "0"}, 100, "", exitInterrupted, `; interrupted\n(?s:.*)\d+ answered`},
		"run, too slow": {[]string{"run", "-duration", "1h", "-max-p99", "1ns"}, 100, "", exitFailed, `; interrupted\n`},
		"replay":        {[]string{"replay", "-increment", "-reset", "-c", "1"}, 6, "", exitInterrupted, `^$`},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: server.Addr})
			proxy.ModifyResponse = func(answer *http.Response) error { answer.Header.Del(c.header); return nil }
			proxy.Transport = http.DefaultTransport.(*http.Transport).Clone()
			var calls atomic.Int64
			enough := make(chan struct{})
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				proxy.ServeHTTP(w, r)
				n := calls.Add(1)
				if n == c.calls {
					close(enough)
				}
				if n >= c.calls && c.args[0] == "replay" {
					<-r.Context().Done() // the run is interrupted before it can end by itself
				}
			}))
			defer front.Close()
			defer proxy.Transport.(*http.Transport).CloseIdleConnections()
			args := append(c.args, "-url", front.URL, "-event", "url_shorten")
			if c.args[0] == "replay" {
				file := filepath.Join(t.TempDir(), "access.log")
				require.NoError(t, os.WriteFile(file, []byte(log), 0o600))
				args = append(args, file)
			}
			p := startProgram(t, args...)
			select {
			case <-enough:
			case <-time.After(maxWait):
				t.Fatalf("only %d calls come", calls.Load())
			}
			require.NoError(t, p.Process.Signal(os.Interrupt))
			status, said := p.status(t), p.rest()
			assert.Equal(t, c.status, status, "%s%s", said, &p.out)
			assert.Contains(t, said, "loadtest: interrupted\n")
			assert.Regexp(t, c.says, p.out.String())
		})
	}
}

// What is short has nothing to say until it is done.
func TestInterruptsWithoutAResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{
		{"plan", "-rules", "../deploy/rules/rules.yaml", "-event", "url_shorten", "testdata/apache_logs.log.gz"},
		{"bench", "-rows", "A1", "-counterd", builtCounterd},
		{"bench", "-rows", "A1", "-counterd", builtCounterd, "-base", builtLoadtest},
		{"verify", "-soak", "1h", "-counterd", builtCounterd},
		{"verify", "-counterd", builtCounterd},
	} {
		var out, said bytes.Buffer
		assert.Equal(t, exitInterrupted, run(ctx, args, streams{nil, &out, &said}), "%s: %s", args[0], &said)
		assert.Contains(t, said.String(), "loadtest: interrupted\n")
		assert.Empty(t, out.String())
	}
}
