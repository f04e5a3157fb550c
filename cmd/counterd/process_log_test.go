package main

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

// startPiped runs counterd with its log in a pipe, which is read up to the address that it serves on.
func startPiped(t *testing.T, args ...string) (p *process, log *os.File) {
	t.Helper()
	leaktest.Check(t)
	log, ends, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { log.Close() })
	p = &process{Cmd: exec.Command(os.Args[0], append([]string{"-listen", "127.0.0.1:0"}, args...)...)}
	p.Env = append(os.Environ(), asCommand+"=1")
	p.Stderr = ends
	require.NoError(t, p.Start())
	require.NoError(t, ends.Close())
	t.Cleanup(func() { p.Process.Kill() })
	for lines := bufio.NewReader(log); p.url == ""; {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if found := servingAt.FindStringSubmatch(line); found != nil {
			p.url = "http://" + found[1]
		}
	}
	return p, log
}

// A log that nobody reads, or whose reader has died, stops neither requests nor the end. Its lines are dropped and counted.
func TestTheLogDoesNotStopTheProcess(t *testing.T) {
	for name, test := range map[string]struct {
		requests int
		read     func(t *testing.T, log *os.File)
	}{
		"not read":    {3500, func(*testing.T, *os.File) {}}, // they fill the pipe and the memory for lines
		"reader died": {10, func(t *testing.T, log *os.File) { require.NoError(t, log.Close()) }},
	} {
		t.Run(name, func(t *testing.T) {
			p, log := startPiped(t, "-access-log")
			test.read(t, log)
			client := http.Client{Timeout: soon}
			id := strings.Repeat("i", 64)
			for range test.requests {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/healthz", nil)
				require.NoError(t, err)
				r.Header.Set("X-Request-Id", id)
				response, err := client.Do(r)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
			}
			client.CloseIdleConnections()
			testkit.Await(t, soon, "lines are counted", func() bool {
				_, metrics := p.get(t, "/metrics")
				return strings.Contains(metrics, "\ncounterd_log_lines_dropped_total ") && !strings.Contains(metrics, "\ncounterd_log_lines_dropped_total 0\n")
			})
			p.signal(t, syscall.SIGTERM)
			killed := time.AfterFunc(soon, func() { p.Process.Kill() })
			defer killed.Stop()
			require.NoError(t, p.Wait())
		})
	}
}
