// Package overrides keeps temporary overrides: until a time, a value of a feature is allowed, denied, or has other rates
// than the rules say. All processes of a fleet share them through the store, and none needs another one.
//
// The store has them in one item, a last-writer-wins map, on the servers of one counter. Each process reads it once a
// second, merges what it finds with what it knows, and writes the union where a server lacks of it: so overrides survive
// a server that comes back empty, as long as one process or one replica has them.
package overrides

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/seal"
	"github.com/counterd/counterd/internal/store"
)

const (
	// Max is the most overrides at a time.
	Max = 100
	// MaxTime is for how long an override holds at the most.
	MaxTime = 30 * 24 * time.Hour
	// MaxBytes is the most bytes of all of them, as the store has them.
	MaxBytes = 12 << 10

	period = time.Second
	// tries bounds how often a change is made again because other processes change the overrides, too, and backoff
	// the wait before, at random.
	tries   = 12
	backoff = 20 * time.Millisecond
	// kept is how long the item lives, renewed in its second half.
	kept = 2 * events.MaxRetention
)

var (
	// ErrTooMany is why one more override cannot be set: there are Max, or they take MaxBytes.
	ErrTooMany = errors.New("overrides: too many")
	// ErrContended is the error of a change that other processes have always been ahead of. It wraps engine.ErrStore.
	ErrContended = fmt.Errorf("%w: other processes change the overrides all the time", engine.ErrStore)
)

// item is that of the one counter that has the overrides. No event of the rules has a slash in its name.
var (
	item    = store.Item(store.OtherLevels+3, 0)
	counter = events.Counter{Event: "counterd/overrides"}.ID()
)

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
	config   Config
	changing chan struct{} // has room for one change of the store at a time
	mu       sync.Mutex    // orders changes of known
	known    atomic.Pointer[state]
	rules    atomic.Pointer[composed]
	wake     chan struct{} // what is known has changed
	failed   atomic.Bool   // the last reading
	stop     context.CancelFunc
	done     chan struct{}
}

// composed is rules with the overrides in force.
type composed struct {
	of    *events.Rules
	known *state
	rules *events.Rules
	idle  map[name]bool // without effect
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
	s := &Set{config: config, changing: make(chan struct{}, 1), wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.known.Store(&state{})
	s.compose(config.Clock())
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

// run follows the overrides once a second, and when one ends.
func (s *Set) run(ctx context.Context) {
	defer close(s.done)
	timer := time.NewTimer(period)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake: // there may be an earlier end
		case <-timer.C:
			s.learn(state{}) // whatever the store does, what has ended is not in force
			s.follow(ctx)
		}
		if wait, some := s.untilNext(); some {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// untilNext returns how long it is until the overrides are to be looked at, if they are. A process with a store of its own
// waits for the next end.
func (s *Set) untilNext() (wait time.Duration, some bool) {
	wait, some = period, !s.config.Alone
	now := s.config.Clock()
	for _, one := range s.known.Load().Records {
		if ahead := max(time.Unix(one.Until, 0).Sub(now), time.Millisecond); !some || ahead < wait {
			wait, some = ahead, true
		}
	}
	return wait, some
}

// follow reads the overrides, and gives servers what they lack.
func (s *Set) follow(ctx context.Context) {
	err := s.exchange(ctx)
	failed := err != nil && !errors.Is(err, ErrContended)
	if failed && !s.failed.Load() && ctx.Err() == nil { // if it has ended, that is why
		s.config.OnError(err)
	}
	s.failed.Store(failed)
}

func (s *Set) exchange(ctx context.Context) error {
	found, err := s.read(ctx)
	if err != nil {
		return err
	}
	known, now := s.learn(found.union), s.config.Clock()
	if known.Changed == 0 && !found.foreign {
		return found.fault
	}
	if known.Expires < now.Add(kept/2).Unix() {
		known.Expires = now.Add(kept).Unix()
	}
	if ended, changed := found.changed(known, now); changed { // all processes that find it make the same of it
		known.Changed = max(known.Changed+1, ended*1000)
		known = s.learn(known)
	}
	return errors.Join(found.write(ctx, s, known), found.fault)
}

// learn merges what this process knows with more, and has the rules in force be those with it.
func (s *Set) learn(more state) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.config.Clock()
	merged := s.known.Load().merge(more, now)
	content := merged.content()
	if len(merged.Records) > Max || len(content) > MaxBytes {
		merged = merged.cut()
		content = merged.content()
	}
	if !bytes.Equal(content, s.known.Load().content()) {
		s.known.Store(&merged)
		s.compose(now)
	}
	return merged
}

// contents are what the servers of the counter have.
type contents struct {
	union   state
	list    []held
	fault   error // of a content that cannot be read
	foreign bool  // such a content is of another client, not of another key secret
}

var errUnreadable = errors.New("overrides: the store's are damaged, or of another key secret: they are replaced by what this process knows")

// held is what one server has.
type held struct {
	server  string // empty: the store has one
	version uint64 // 0: it has nothing
	content []byte // nil: nothing that can be read
	foreign bool   // it has an item that holds no bytes of counterd
	state   state
}

// changed reports whether what is known is a change without a stamp: what a server has has ended, the last of it in that
// Unix second, or it has other records of the same stamp, of two changes that did not see each other.
func (c contents) changed(known state, now time.Time) (ended int64, changed bool) {
	for _, one := range c.list {
		if at, has := one.state.hasEnded(now); has {
			ended, changed = max(ended, at), true
		} else if one.content != nil && one.state.Changed == known.Changed {
			changed = changed || !slices.EqualFunc(one.state.Records, known.Records, func(a, b record) bool { return compare(a, b) == 0 && a.name() == b.name() })
		}
	}
	return ended, changed
}

// read reads what the servers have. A server that does not answer is left out. The error is that of the store if none answers.
func (s *Set) read(ctx context.Context) (c contents, err error) {
	op := &store.Op{Counter: counter, Data: true, Versions: true, Reads: []store.Read{{Item: item}}}
	s.config.Store.Do(ctx, op)
	parts := op.Replicas // of which one is enough, also one that has lost something
	if len(parts) == 0 {
		parts = []store.Op{*op}
	}
	for i := range parts {
		one := held{server: parts[i].Server, foreign: errors.Is(parts[i].Err, store.ErrNoData)}
		if parts[i].Err != nil && !one.foreign {
			continue
		}
		found := &parts[i].Reads[0]
		whole := !one.foreign
		if !one.foreign && found.Version != 0 {
			one.version = found.Version
			content, ok := s.config.Seal.Open(found.Data)
			state, clean, err := parseState(content, s.config.Clock())
			if ok && err == nil {
				one.content, one.state = bytes.Clone(content), state
				c.union = c.union.merge(state, s.config.Clock())
			}
			whole = ok && err == nil && clean
		}
		if !whole {
			c.fault = errUnreadable
			c.foreign = c.foreign || one.foreign || !seal.IsSealed(found.Data)
		}
		c.list = append(c.list, one)
	}
	if len(c.list) == 0 {
		return c, engine.StoreError(op.Err)
	}
	return c, nil
}

// write gives each server the state that has another one, or none. The error is ErrContended if one of them has changed
// meanwhile, or that of the store if none has taken it.
func (c contents) write(ctx context.Context, s *Set, next state) error {
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
		switch {
		case one.foreign:
			write.Kind = store.Put
		case one.version != 0:
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
			return ErrContended
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
func (s *Set) Put(ctx context.Context, o events.Override) (events.Override, error) {
	o, err := s.check(o)
	if err != nil {
		return o, err
	}
	one := recordFromOverride(o)
	err = s.change(ctx, func(next *state) error {
		now := s.config.Clock()
		*next = next.set(one, now)
		if next.isTooLarge() {
			return ErrTooMany
		}
		if set, found := next.find(one.name()); found { // it has not ended meanwhile
			one = set
		}
		return nil
	})
	return one.override(), err
}

// check returns the override as it is kept, or what is wrong with it.
func (s *Set) check(o events.Override) (events.Override, error) {
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
		return o, engine.OutOfRange(engine.ArgUntil, "an override holds for 30 days at the most")
	}
	if o, err = event.CheckOverride(o); err != nil {
		return o, err
	}
	return o, s.fits(rules, o)
}

// Remove ends an override, and returns it, and whether there was one. This process decides without it when Remove returns,
// others within two seconds. The event need not be one of the rules. An error wraps engine.ErrStore; it may be removed
// nevertheless.
func (s *Set) Remove(ctx context.Context, event, kind, value string) (was events.Override, found bool, err error) {
	canonical := value
	if of, err := s.config.Rules().Event(event); err == nil {
		if counted, err := of.CountedValue(kind, value); err == nil {
			canonical = counted
		}
	}
	err = s.change(ctx, func(next *state) error {
		one, is := next.find(name{event, kind, value}) // as it is listed, also if the rules count by another network now
		if !is {
			one, is = next.find(name{event, kind, canonical})
		}
		if is {
			was, found = one.override(), true // also if a later try finds that this one was done in part
			*next = next.remove(one, s.config.Clock())
		}
		return nil
	})
	return was, found, err
}

// change changes the overrides of all servers that answer.
func (s *Set) change(ctx context.Context, do func(*state) error) error {
	select {
	case s.changing <- struct{}{}:
		defer func() { <-s.changing }()
	case <-ctx.Done():
		return engine.StoreError(ctx.Err())
	}
	err := ErrContended
	for try := 0; try < tries && errors.Is(err, ErrContended); try++ {
		if try > 0 {
			select {
			case <-time.After(rand.N(backoff)):
			case <-ctx.Done():
				return engine.StoreError(ctx.Err())
			}
		}
		var c contents
		if c, err = s.read(ctx); err != nil {
			return err
		}
		known := s.learn(c.union)
		next := known
		if err = do(&next); err != nil {
			return err
		}
		if next.Changed == known.Changed {
			return nil
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
func (s *Set) List() []events.Override {
	c := s.composed()
	all := c.known.overrides(s.config.Clock())
	for i := range all {
		all[i].Idle = c.idle[nameOf(all[i])]
	}
	return all
}

// Failing reports whether the overrides cannot be read, or not be written where they are missing.
func (s *Set) Failing() bool { return s.failed.Load() }

// Rules returns the rules in force, with the overrides.
func (s *Set) Rules() *events.Rules { return s.composed().rules }

func (s *Set) composed() *composed {
	if c := s.rules.Load(); c.of == s.config.Rules() {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.rules.Load(); c.of == s.config.Rules() {
		return c
	}
	return s.compose(s.config.Clock())
}

// compose puts the rules with what is known in force. An override that the rules cannot keep, such as after a reload, has
// no effect. The caller holds the lock.
func (s *Set) compose(now time.Time) *composed {
	of, known := s.config.Rules(), s.known.Load()
	c := &composed{of: of, known: known, rules: of, idle: make(map[name]bool)}
	byEvent := make(map[string][]events.Override)
	for _, o := range known.overrides(now) {
		if s.fits(of, o) == nil {
			byEvent[o.Event] = append(byEvent[o.Event], o)
		} else {
			c.idle[nameOf(o)] = true
		}
	}
	if known.Changed > 0 {
		c.rules = of.With(byEvent, known.revision(of))
	}
	s.rules.Store(c)
	return c
}

// fits returns why the rules cannot keep an override.
func (s *Set) fits(rules *events.Rules, o events.Override) error {
	event, err := rules.Event(o.Event)
	if err != nil {
		return err
	}
	if o, err = event.CheckOverride(o); err != nil {
		return err
	}
	alone := &events.Rules{Events: map[string]*events.Event{o.Event: event.Only(o.Value)}}
	if err := s.config.Suits(alone.With(map[string][]events.Override{o.Event: {o}}, 0)); err != nil {
		return &events.OverrideError{Reason: strings.TrimPrefix(err.Error(), events.ErrInvalid.Error()+": ")}
	}
	return nil
}
