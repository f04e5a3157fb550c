package main

import (
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// maxUnwritten bounds the bytes of lines that wait to be written. A write under way has at most as many.
	maxUnwritten = 256 << 10
	// flushTimeout is how long the end of the process waits until the log is written.
	flushTimeout = time.Second
)

// logWriter writes the log in a goroutine of its own, so that no request waits for the reader of the log. A line is
// dropped and counted if there is no room for it, or if its write fails. It is safe for concurrent use.
type logWriter struct {
	to io.Writer

	mu            sync.Mutex
	changed       sync.Cond // uses mu; signals a change of unwritten or writing
	unwritten     []byte    // whole lines
	lines         int64     // in unwritten
	writing       bool
	dropped       int64
	reportDropped func(lines int64) // called after the next write that succeeds; may be nil
}

func newLogWriter(to io.Writer) *logWriter {
	w := &logWriter{to: to}
	w.changed.L = &w.mu
	go w.run()
	return w
}

// Write takes a line. It does not wait, and returns no error.
func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unwritten)+len(line) > maxUnwritten {
		w.dropped++
		return len(line), nil
	}
	w.unwritten = append(w.unwritten, line...)
	w.lines++
	w.changed.Broadcast()
	return len(line), nil
}

// run writes until the process ends.
func (w *logWriter) run() {
	var text []byte
	var reported int64
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.unwritten) == 0 {
			w.changed.Wait()
		}
		lines := w.lines
		text, w.unwritten = w.unwritten, text[:0]
		w.lines, w.writing = 0, true
		w.mu.Unlock()
		_, err := w.to.Write(text)
		w.mu.Lock()
		w.writing = false
		w.changed.Broadcast()
		if err != nil {
			w.dropped += lines
			continue
		}
		if w.dropped > reported && w.reportDropped != nil {
			onDrop, lines := w.reportDropped, w.dropped-reported
			reported = w.dropped
			w.mu.Unlock()
			onDrop(lines)
			w.mu.Lock()
		}
	}
}

// Dropped returns how many lines were dropped.
func (w *logWriter) Dropped() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// report makes the writer log the number of dropped lines when the reader reads again.
func (w *logWriter) report(log *slog.Logger) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reportDropped = func(lines int64) {
		log.Warn("lines of the log were dropped: its reader was too slow, or writes failed", "lines", lines)
	}
}

// flush waits until all lines are written, at most for the given time.
func (w *logWriter) flush(longest time.Duration) {
	late := false
	timer := time.AfterFunc(longest, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		late = true
		w.changed.Broadcast()
	})
	defer timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for (len(w.unwritten) > 0 || w.writing) && !late {
		w.changed.Wait()
	}
}

func newLog(format string, to io.Writer) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{ReplaceAttr: inMilliseconds}))
	}
	return slog.New(slog.NewTextHandler(to, nil))
}

// inMilliseconds returns a duration as a number of milliseconds, under a key that says so.
func inMilliseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond))
}
