// Package overrides keeps temporary overrides: until a time, a value of a feature is allowed, denied, or has other rates
// than the rules say. All processes of a fleet share them through the store, and none needs another one.
//
// The store has them in one item, a last-writer-wins map, on the servers of one counter. Each process reads it once a
// second, merges what it finds with what it knows, and writes the union where a server lacks of it: so overrides survive
// a server that comes back empty, as long as one process or one replica has them.
package overrides

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/seal"
	"github.com/counterd/counterd/store"
)

const (
	// Max is the most overrides at a time.
	Max = 100
	// MaxTime is for how long an override holds at the most.
	MaxTime = 30 * 24 * time.Hour
	// MaxBytes is the most bytes of all of them, as the store has them. With TLS a server reads no larger record.
	MaxBytes = 12 << 10

	period = time.Second
	// tries bounds how often a change is made again because other processes change the overrides, too.
	tries = 8
	// kept is how long the item lives, renewed in its second half.
	kept = 2 * events.MaxRetention
)

var (
	// ErrTooMany is why one more override cannot be set: there are Max, or they take MaxBytes.
	ErrTooMany = errors.New("overrides: too many")
	// errContended is the error of a change that others have always been ahead of.
	errContended = fmt.Errorf("%w: other processes change the overrides all the time", engine.ErrStore)
)

// item is that of the one counter that has the overrides. No event of the rules has a slash in its name.
var (
	item    = store.Item(store.OtherLevels+3, 0)
	counter = events.Counter{Event: "counterd/overrides"}.ID()
)

// Override is what holds for a value of an event's feature.
type Override struct {
	Event string
	events.Override
	Until time.Time     // in whole seconds, UTC: from then on the rules hold again
	For   time.Duration // for Put: how long it holds, instead of Until
	Set   time.Time     // when it was set
	By    string        // the name of the token that set it; empty: there was none
}

// Feature returns the value with its kind, for people to read.
func (o Override) Feature() string { return o.Kind + ":" + o.Value }

// String returns allow, deny, or the rates.
func (o Override) String() string {
	r := o.record()
	return cmp.Or(r.Listing, strings.Join(r.Rates, ", "))
}

// Config sets up a Set. Store and Rules are needed.
type Config struct {
	Store store.Store
	// Alone: no other process has the store, so it is not read again.
	Alone bool
	Rules func() *events.Rules // in force but for overrides
	// Suits returns an error for rules that the limiter cannot keep; nil: it keeps any.
	Suits func(*events.Rules) error
	Seal  seal.Key         // of what the store has
	Clock func() time.Time // nil: time.Now
	// OnError gets why the overrides cannot be read, or not be written where they are missing: once, until they can.
	// nil: it is not called.
	OnError func(error)
}

// Set is the overrides of a fleet, as far as this process knows them. It is safe for concurrent use.
type Set struct {
	config Config
	mu     sync.Mutex // orders changes of known
	known  atomic.Pointer[state]
	rules  atomic.Pointer[composed]
	wake   chan struct{} // what is known has changed
	failed bool          // the last reading; of the goroutine that follows
	stop   context.CancelFunc
	done   chan struct{}
}

// composed is rules with the overrides in force.
type composed struct {
	of    *events.Rules
	known *state
	rules *events.Rules
}

// Start reads the overrides, and follows them until Close. A store that does not answer is asked again.
func Start(ctx context.Context, config Config) *Set {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	if config.Suits == nil {
		config.Suits = func(*events.Rules) error { return nil }
	}
	if config.OnError == nil {
		config.OnError = func(error) {}
	}
	s := &Set{config: config, wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.known.Store(&state{})
	s.follow(ctx)
	ctx, s.stop = context.WithCancel(context.Background())
	go s.run(ctx)
	return s
}

// Close ends the following. Rules goes on to return what was in force.
func (s *Set) Close() {
	s.stop()
	<-s.done
}

// run follows the overrides once a second. Without other processes it waits for the end of one.
func (s *Set) run(ctx context.Context) {
	defer close(s.done)
	timer := time.NewTimer(period)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
			if s.config.Alone {
				s.learn(state{})
			} else {
				s.follow(ctx)
			}
		}
		if wait, some := s.untilNext(); some {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// untilNext returns how long it is until the overrides are to be looked at, if they are.
func (s *Set) untilNext() (wait time.Duration, some bool) {
	if wait = period; !s.config.Alone {
		return wait, true
	}
	return wait, len(s.known.Load().Records) > 0
}

// follow reads the overrides, and gives servers what they lack.
func (s *Set) follow(ctx context.Context) {
	err := s.exchange(ctx)
	failed := err != nil && !errors.Is(err, errContended)
	if failed && !s.failed && ctx.Err() == nil { // if it has ended, that is why
		s.config.OnError(err)
	}
	s.failed = failed
}

func (s *Set) exchange(ctx context.Context) error {
	copies, err := s.read(ctx)
	if err != nil {
		return err
	}
	known := s.learn(copies.union)
	if known.Changed > 0 {
		if now := s.config.Clock(); known.Expires < now.Add(kept/2).Unix() {
			known.Expires = now.Add(kept).Unix()
		}
		err = copies.write(ctx, s, known)
	}
	return errors.Join(err, copies.fault)
}

// learn merges what this process knows with more.
func (s *Set) learn(more state) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	merged := s.known.Load().merge(more, s.config.Clock())
	if !bytes.Equal(merged.content(), s.known.Load().content()) {
		s.known.Store(&merged)
	}
	return merged
}

// copies are what the servers of the counter have.
type copies struct {
	union state
	list  []held
	fault error // of a content that cannot be read
}

var errUnreadable = errors.New("overrides: the store's are damaged, or of another key secret: they are replaced by what this process knows")

// held is what one server has.
type held struct {
	server  string // empty: the store has one
	version uint64 // 0: it has nothing
	content []byte // nil: nothing that is any
}

// read reads what the servers have. A server that does not answer is left out. The error is that of the store if none answers.
func (s *Set) read(ctx context.Context) (c copies, err error) {
	op := &store.Op{Counter: counter, Data: true, Versions: true, Reads: []store.Read{{Item: item}}}
	s.config.Store.Do(ctx, op)
	parts := op.Replicas // of which one is enough, also one that has lost something
	if len(parts) == 0 {
		parts = []store.Op{*op}
	}
	for i := range parts {
		if parts[i].Err != nil {
			continue
		}
		found := &parts[i].Reads[0]
		one := held{server: parts[i].Server, version: found.Version}
		if found.Version != 0 {
			content, ok := s.config.Seal.Open(found.Data)
			state, err := read(content)
			if ok && err == nil {
				one.content = bytes.Clone(content)
				c.union = c.union.merge(state, s.config.Clock())
			} else {
				c.fault = errUnreadable
			}
		}
		c.list = append(c.list, one)
	}
	if len(c.list) == 0 {
		return c, engine.StoreError(op.Err)
	}
	return c, nil
}

// write gives each server the state that has another one, or none. The error is errContended if one of them has changed
// meanwhile, or that of the store if none has taken it.
func (c copies) write(ctx context.Context, s *Set, next state) error {
	content := next.content()
	var sealed []byte
	var ops []*store.Op
	for _, one := range c.list {
		if bytes.Equal(one.content, content) {
			continue
		}
		if sealed == nil {
			var err error
			if sealed, err = s.config.Seal.Seal(content); err != nil {
				return err
			}
		}
		write := store.Write{Kind: store.Create, Item: item, Data: sealed, Expires: next.Expires}
		if one.version != 0 {
			write.Kind, write.Version = store.Swap, one.version
		}
		ops = append(ops, &store.Op{Counter: counter, Server: one.server, Data: true, Writes: []store.Write{write}})
	}
	if len(ops) == 0 {
		return nil
	}
	s.config.Store.Do(ctx, ops...)
	var faults []error
	for _, op := range ops {
		switch {
		case op.Err != nil:
			faults = append(faults, op.Err)
		case op.Writes[0].Result == 0:
			return errContended
		}
	}
	if len(faults) == len(c.list) {
		return engine.StoreError(errors.Join(faults...))
	}
	return nil
}

// Put sets an override, in place of one of its value. This process decides by it when Put returns, others within two
// seconds. Errors wrap events.ErrUnknownEvent, events.ErrInvalid, engine.ErrOutOfRange, ErrTooMany or engine.ErrStore; after the
// last one it may be set nevertheless.
func (s *Set) Put(ctx context.Context, o Override) (Override, error) {
	o, err := s.check(o)
	if err != nil {
		return o, err
	}
	err = s.change(ctx, func(next *state) error {
		next.set(o.record(), s.config.Clock())
		if len(next.inForce()) > Max || len(next.content()) > MaxBytes {
			return ErrTooMany
		}
		return nil
	})
	if err != nil {
		return o, err
	}
	for _, one := range s.List() {
		if one.record().name() == o.record().name() { // if not, it has ended already
			o = one
		}
	}
	return o, nil
}

// check returns the override as it is kept, or what is wrong with it.
func (s *Set) check(o Override) (Override, error) {
	rules := s.config.Rules()
	event, err := rules.Event(o.Event)
	if err != nil {
		return o, err
	}
	now := s.config.Clock()
	if o.For != 0 {
		o.Until, o.For = now.Add(o.For), 0
	}
	o.Until = o.Until.UTC().Truncate(time.Second)
	switch ahead := o.Until.Sub(now); {
	case ahead <= 0:
		return o, engine.OutOfRange(engine.ArgUntil, "it is over")
	case ahead > MaxTime:
		return o, engine.OutOfRange(engine.ArgUntil, "an override holds for %s at the most", events.FormatDuration(MaxTime))
	}
	if o.Override, err = event.CheckOverride(o.Override); err != nil {
		return o, err
	}
	return o, s.config.Suits(rules.With(map[string][]events.Override{o.Event: {o.Override}}, 0))
}

// Remove ends an override, and returns it, and whether there was one. This process decides without it when Remove returns,
// others within two seconds. The event need not be one of the rules. An error wraps engine.ErrStore; it may be removed
// nevertheless.
func (s *Set) Remove(ctx context.Context, event, kind, value string) (was Override, found bool, err error) {
	if rules, err := s.config.Rules().Event(event); err == nil {
		if o, err := rules.CheckOverride(events.Override{Kind: kind, Value: value, Listing: events.Denied}); err == nil {
			value = o.Value
		}
	}
	err = s.change(ctx, func(next *state) error {
		at := slices.IndexFunc(next.Records, func(one record) bool { return one.name() == name{event, kind, value} && !one.Removed })
		if found = at >= 0; found {
			now := s.config.Clock()
			was = next.Records[at].override()
			next.set(next.Records[at].removed(now), now)
		}
		return nil
	})
	return was, found, err
}

// change changes the overrides of all servers that answer.
func (s *Set) change(ctx context.Context, do func(*state) error) error {
	err := errContended
	for try := 0; try < tries && errors.Is(err, errContended); try++ {
		var c copies
		if c, err = s.read(ctx); err != nil {
			return err
		}
		next := s.learn(c.union)
		if err = do(&next); err != nil {
			return err
		}
		next.Expires = s.config.Clock().Add(kept).Unix()
		if err = c.write(ctx, s, next); err == nil {
			s.learn(next)
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
	}
	return err
}

// List returns the overrides in force, in the order of event, kind and value.
func (s *Set) List() []Override {
	now := s.config.Clock()
	return slices.DeleteFunc(s.known.Load().inForce(), func(o Override) bool { return !o.Until.After(now) })
}

// Rules returns the rules in force, with the overrides.
func (s *Set) Rules() *events.Rules {
	of, known := s.config.Rules(), s.known.Load()
	if c := s.rules.Load(); c != nil && c.of == of && c.known == known {
		return c.rules
	}
	next := &composed{of, known, s.compose(of, known)}
	s.rules.Store(next)
	return next.rules
}

// compose returns the rules with what is known. An override that the rules cannot keep any more, such as after a reload,
// has no effect.
func (s *Set) compose(of *events.Rules, known *state) *events.Rules {
	if known.Changed == 0 {
		return of
	}
	byEvent := make(map[string][]events.Override)
	for _, o := range known.inForce() {
		if s.config.Suits(of.With(map[string][]events.Override{o.Event: {o.Override}}, 0)) == nil {
			byEvent[o.Event] = append(byEvent[o.Event], o.Override)
		}
	}
	return of.With(byEvent, known.revision(of))
}
