package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// A fallback is a Session that uses a second one, on a store of this process, for the counters that the shared store
// fails and whose rules have on_error: local.
type fallback struct {
	limiter    *Limiter
	engines    Session
	local      Session  // or nil
	overloaded bool     // the shared store must not be used
	failed     []*Tally // the tallies of local
}

func (l *Limiter) newFallback() *fallback {
	f := &fallback{limiter: l, engines: l.engines.NewSession()}
	if len(l.local) > 0 {
		f.local = l.local.NewSession()
	}
	return f
}

// shared returns the session on the shared store.
func (f *fallback) shared() Session {
	if f.overloaded {
		return overload{}
	}
	return f.engines
}

func (f *fallback) Add(ctx context.Context, at Moment, tallies []*Tally) {
	f.shared().Add(ctx, at, tallies)
	f.failed = f.failed[:0]
	f.addLocally(ctx, at, tallies)
}

// failLate fails the counters of a batch whose adds took too long.
func (f *fallback) failLate(ctx context.Context, at Moment, tallies []*Tally) {
	for _, t := range tallies {
		if !t.failed {
			t.Err = errLate
		}
	}
	if len(f.failed) > 0 { // the local session has a batch already, and the rules decide without it
		f.fail(tallies)
		return
	}
	f.addLocally(ctx, at, tallies)
}

func (f *fallback) addLocally(ctx context.Context, at Moment, tallies []*Tally) {
	if !f.fail(tallies) {
		return
	}
	local := f.localContext(ctx)
	defer local.free()
	f.local.Add(local, at, f.failed)
	for _, t := range f.failed {
		t.Settled = true // no other process adds to the local store
		f.limiter.reportError(t.Err)
	}
}

func (f *fallback) Check(ctx context.Context, at Moment, tallies []*Tally) {
	f.failed = f.failed[:0]
	if len(tallies) == 0 {
		return
	}
	f.shared().Check(ctx, at, tallies)
	if !f.fail(tallies) {
		return
	}
	local := f.localContext(ctx)
	defer local.free()
	f.local.Check(local, at, f.failed)
	for _, t := range f.failed {
		f.limiter.reportError(t.Err)
	}
}

func (f *fallback) Undo(ctx context.Context) error {
	err := f.shared().Undo(ctx)
	if len(f.failed) > 0 {
		err = errors.Join(err, f.local.Undo(ctx))
	}
	return err
}

// Search hides the tallies of the local session from the shared one, which does not know them.
func (f *fallback) Search(ctx context.Context) error {
	for _, t := range f.failed {
		if t.Err == nil {
			t.Err = errHidden
		}
	}
	err := f.shared().Search(ctx)
	if len(f.failed) == 0 {
		return err
	}
	for _, t := range f.failed {
		if errors.Is(t.Err, errHidden) {
			t.Err = nil
		}
	}
	local := f.localContext(ctx)
	defer local.free()
	return errors.Join(err, f.local.Search(local))
}

var errHidden = errors.New("limiter: the local session has the counter")

// fail finds the tallies that the shared store has failed, and reports whether the local engines decide any of them.
func (f *fallback) fail(tallies []*Tally) bool {
	canDecide := f.local != nil && len(f.failed) == 0
	for _, t := range tallies {
		if t.Err == nil || t.failed {
			continue
		}
		f.limiter.reportError(t.Err)
		t.failed = true
		if canDecide && t.isLocal() {
			f.failed = append(f.failed, t)
			t.Err = nil
		}
	}
	return len(f.failed) > 0
}

// localContext returns a context for round trips to the local store. The time for the shared one may be over.
func (f *fallback) localContext(ctx context.Context) *tripContext {
	return &tripContext{caller: ctx, deadline: time.Now().Add(f.limiter.timeout)}
}

// isLocal reports whether a rule decides by the counters of this process if the store fails.
func (t *Tally) isLocal() bool {
	for i := range t.Limits {
		if t.Limits[i].Rule.OnError == events.OnErrorLocal {
			return true
		}
	}
	return false
}

// overload is a Session that fails all tallies, because too many hits wait for the store.
type overload struct{}

func (overload) Add(_ context.Context, _ Moment, tallies []*Tally) {
	for _, t := range tallies {
		t.Err = engine.ErrOverload
	}
}

func (o overload) Check(ctx context.Context, at Moment, tallies []*Tally) { o.Add(ctx, at, tallies) }
func (overload) Undo(context.Context) error                               { return nil }
func (overload) Search(context.Context) error                             { return nil }

// reportError reports a failure of the store.
func (l *Limiter) reportError(err error) {
	if err != nil && l.config.OnStoreError != nil {
		l.config.OnStoreError(err)
	}
}
