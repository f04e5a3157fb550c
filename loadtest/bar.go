package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// bar shows how far a run is, on a terminal only.
type bar struct {
	out     io.Writer // nil: nowhere
	current *progressbar.ProgressBar
}

func newBar(out io.Writer) *bar {
	if !isTerminal(out) {
		return &bar{}
	}
	return &bar{out: out}
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Start begins a stage. No Add is under way then.
func (b *bar) Start(stage string, steps int) {
	b.finish()
	if b.out == nil {
		return
	}
	b.current = progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(b.out),
		progressbar.OptionSetDescription(stage),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

// Add is called from several goroutines.
func (b *bar) Add(steps int) {
	if b.current != nil {
		// A bar that cannot be drawn is no reason to stop.
		_ = b.current.Add(steps)
	}
}

func (b *bar) finish() {
	if b.current != nil {
		_ = b.current.Clear()
		_ = b.current.Exit()
		b.current = nil
	}
}
