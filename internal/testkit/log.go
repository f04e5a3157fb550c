package testkit

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// logged bounds the wait for a line of a log.
const logged = time.Minute

// Log keeps what is written, and may be read meanwhile. The zero Log is empty.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// DebugLog returns a logger of every level, and what it writes.
func DebugLog() (*slog.Logger, *Log) {
	var text Log
	return slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})), &text
}

// Write appends p. It never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all that is written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Await waits for a line that has all the parts.
func (l *Log) Await(tb testing.TB, parts ...string) {
	tb.Helper()
	found := false
	defer func() {
		if !found {
			tb.Logf("%s", l)
		}
	}()
	Await(tb, logged, fmt.Sprintf("a line with %q", parts), func() bool {
		for line := range strings.Lines(l.String()) {
			has := 0
			for _, part := range parts {
				if strings.Contains(line, part) {
					has++
				}
			}
			if has == len(parts) {
				return true
			}
		}
		return false
	})
	found = true
}
