package discovery

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/filewatch"
)

const (
	// DefaultInterval is the time between two questions where nothing else is set.
	DefaultInterval = 10 * time.Second
	// DefaultTimeout bounds one question where nothing else is set.
	DefaultTimeout = 5 * time.Second
)

// Config configures a Follower. Source, Servers and Changed are needed. One goroutine calls
// all functions, one after the other.
type Config struct {
	Source  Source
	Servers []string // those in force at the beginning
	// Interval is the time between two questions, a tenth more or less, so that many
	// processes do not ask at once; 0: DefaultInterval.
	Interval time.Duration
	Timeout  time.Duration // bounds one question, and one change; 0: DefaultTimeout
	// Changed puts the servers in force. With an error those before stay in force, and
	// it is called again after the next question.
	Changed func(ctx context.Context, change Change) error
	// Unchanged is called where the source confirms the servers in force after Ask or after
	// a failure; nil: it is not called.
	Unchanged func(servers []string)
	// Report gets the reason why the servers in force stay, each time; nil: it is not
	// called.
	Report func(err error)
}

// Change is one list of servers after another. All are sorted.
type Change struct{ Servers, Added, Removed []string }

// Follower asks a source for its servers again and again, and tells what changes. A source
// that fails, or names no server, changes nothing.
type Follower struct {
	config   Config
	asks     chan struct{}
	cancel   context.CancelFunc
	done     chan struct{}
	inForce  []string
	failing  atomic.Bool // the last question was of no use
	failures atomic.Int64
}

// Follow begins to follow the source, until Close.
func Follow(config Config) *Follower {
	f := &Follower{config: config, asks: make(chan struct{}, 1), done: make(chan struct{})}
	f.inForce = slices.Compact(slices.Sorted(slices.Values(config.Servers)))
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go f.run(ctx)
	return f
}

// Ask has the source asked at once. It does not wait.
func (f *Follower) Ask() {
	select {
	case f.asks <- struct{}{}:
	default: // it is about to be
	}
}

// Failing reports whether the last question was of no use: the source did not answer, or
// what it names could not be put in force. So the servers in force may be old.
func (f *Follower) Failing() bool { return f.failing.Load() }

// Failures returns how many questions were of no use.
func (f *Follower) Failures() int64 { return f.failures.Load() }

// Close ends the following. Nothing is called any more once it has returned.
func (f *Follower) Close() {
	f.cancel()
	<-f.done
}

// watched is a source that knows when it may have changed.
type watched interface {
	watch(report func(error)) *filewatch.Watch
}

func (f *Follower) run(ctx context.Context) {
	defer close(f.done)
	var changes <-chan struct{}
	reports := make(chan error)
	if source, ok := f.config.Source.(watched); ok {
		// It reports from a goroutine of its own, but all is called from this one.
		watch := source.watch(func(err error) {
			select {
			case reports <- err:
			case <-ctx.Done():
			}
		})
		defer watch.Close()
		changes = watch.Changes()
	}
	timer := time.NewTimer(f.pause())
	defer timer.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case err := <-reports:
			f.report(err)
			continue
		case <-f.asks:
			asked = true
		case <-changes:
		case <-timer.C:
		}
		f.look(ctx, asked)
		timer.Reset(f.pause())
	}
}

// pause is the time until the next question.
func (f *Follower) pause() time.Duration {
	interval := cmp.Or(f.config.Interval, DefaultInterval)
	return interval - interval/10 + rand.N(interval/5+1)
}

// look asks the source, and tells what has changed.
func (f *Follower) look(ctx context.Context, asked bool) {
	timeout := cmp.Or(f.config.Timeout, DefaultTimeout)
	servers, err := listWithin(ctx, timeout, f.config.Source)
	changed := err == nil && !slices.Equal(servers, f.inForce)
	if changed {
		err = f.change(ctx, timeout, servers)
	}
	if ctx.Err() != nil {
		return
	}
	wanted := f.failing.Swap(err != nil) || asked
	switch {
	case err != nil:
		f.failures.Add(1)
		f.report(err)
	case !changed && wanted && f.config.Unchanged != nil:
		f.config.Unchanged(slices.Clone(servers))
	}
}

// change has the servers put in force.
func (f *Follower) change(ctx context.Context, timeout time.Duration, servers []string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := f.config.Changed(ctx, Change{
		Servers: slices.Clone(servers),
		Added:   without(servers, f.inForce),
		Removed: without(f.inForce, servers),
	})
	if err != nil {
		return fmt.Errorf("discovery: the servers found cannot be put in force: %w", err)
	}
	f.inForce = servers
	return nil
}

func (f *Follower) report(err error) {
	if f.config.Report != nil {
		f.config.Report(err)
	}
}

// without returns what of one list is not in the other.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool {
		_, found := slices.BinarySearch(other, name)
		return found
	})
}
