package limiter

import (
	"context"
	"errors"
	"sync"

	"github.com/counterd/counterd/events"
)

// A mux leaves each counter to its engine, the one at Tally.Engine. The round trips of several engines are made side by
// side.
type mux []Engine

// find returns the place of the engine that keeps the counter of limits, which have one algorithm.
func (m mux) find(limits []events.Limit) (place int, ok bool) {
	for i, e := range m {
		if len(limits) == 0 || e.Keeps(limits[0].Algorithm) {
			return i, true
		}
	}
	return 0, false
}

// NewSession returns a session on all engines.
func (m mux) NewSession() Session {
	if len(m) == 1 {
		return m[0].NewSession()
	}
	s := make(muxSession, len(m))
	for i, e := range m {
		s[i].session = e.NewSession()
	}
	return s
}

type muxSession []muxPart

// A muxPart is the session of one engine, and its tallies of the batch.
type muxPart struct {
	session  Session
	tallies  []*Tally
	err      error
	panicked any
}

func (s muxSession) Add(ctx context.Context, at Moment, tallies []*Tally) {
	s.split(tallies)
	if p := s.only(); p != nil {
		p.session.Add(ctx, at, p.tallies)
		return
	}
	_ = s.each(func(p *muxPart) error { p.session.Add(ctx, at, p.tallies); return nil })
}

func (s muxSession) Check(ctx context.Context, at Moment, tallies []*Tally) {
	s.split(tallies)
	if p := s.only(); p != nil {
		p.session.Check(ctx, at, p.tallies)
		return
	}
	_ = s.each(func(p *muxPart) error { p.session.Check(ctx, at, p.tallies); return nil })
}

func (s muxSession) Undo(ctx context.Context) error {
	if p := s.only(); p != nil {
		return p.session.Undo(ctx)
	}
	return s.each(func(p *muxPart) error { return p.session.Undo(ctx) })
}

func (s muxSession) Search(ctx context.Context) error {
	if p := s.only(); p != nil {
		return p.session.Search(ctx)
	}
	return s.each(func(p *muxPart) error { return p.session.Search(ctx) })
}

func (s muxSession) split(tallies []*Tally) {
	for i := range s {
		clear(s[i].tallies)
		s[i].tallies = s[i].tallies[:0]
	}
	for _, t := range tallies {
		p := &s[t.Engine]
		p.tallies = append(p.tallies, t)
	}
}

// only returns the part that has all tallies, or nil if several parts have some.
func (s muxSession) only() (only *muxPart) {
	for i := range s {
		switch {
		case len(s[i].tallies) == 0:
		case only != nil:
			return nil
		default:
			only = &s[i]
		}
	}
	return only
}

// each calls do for the parts that have tallies, side by side. A panic of one is a panic of the caller.
func (s muxSession) each(do func(*muxPart) error) error {
	var running sync.WaitGroup
	for i := range s {
		p := &s[i]
		p.err, p.panicked = nil, nil
		if len(p.tallies) > 0 {
			running.Go(func() {
				defer func() { p.panicked = recover() }()
				p.err = do(p)
			})
		}
	}
	running.Wait()
	var err error
	for i := range s {
		if fault := s[i].panicked; fault != nil {
			panic(fault)
		}
		err = errors.Join(err, s[i].err)
	}
	return err
}
