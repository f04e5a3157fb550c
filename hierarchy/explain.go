package hierarchy

import (
	"cmp"
	"slices"

	"github.com/counterd/counterd/internal/limiter/engine"
)

// explanation is of one limit. What its count consists of is known. For the moments at which events leave the
// window it goes down the hierarchy, from the oldest of the buckets that tile the window.
type explanation struct {
	of      *windows
	limit   int
	moments int // are wanted
	sum     []engine.Part
	frees   []engine.Freed
	tiles   []Bucket // of the window, without empty ones that have been looked at; those at the front as fine as is needed
	wanted  []Bucket // that it has to know to go on
	over    bool     // it goes no further
}

// Explain has the session find what the limit's count consists of.
func (s *session) Explain(limit, moments int) {
	if s.step != explaining {
		s.step, s.explanations = explaining, s.explanations[:0]
	}
	s.explanations = append(s.explanations, s.explain(limit, moments))
}

// Explanation returns what is known of it.
func (s *session) Explanation(limit int) engine.Explanation {
	i := slices.IndexFunc(s.explanations, func(e explanation) bool { return e.limit == limit })
	if i < 0 {
		return engine.Explanation{}
	}
	e := &s.explanations[i]
	return engine.Explanation{Sum: e.sum, Frees: e.frees, Whole: e.over}
}

func (w *windows) explain(limit, moments int) explanation {
	e := explanation{of: w, limit: limit, moments: moments}
	for b := range w.cover(limit).Buckets() {
		if count := w.value(b); count != 0 {
			e.tiles = append(e.tiles, b)
			e.sum = append(e.sum, engine.Part{Level: b.Level, Interval: engine.Interval{First: b.First(), Last: b.Last(), Count: count}})
		}
	}
	return e
}

// advance goes on as far as values are known.
func (e *explanation) advance() {
	e.wanted = nil
	for !e.over {
		if len(e.tiles) == 0 || len(e.frees) > e.moments {
			e.over = true
			break
		}
		b := e.tiles[0]
		if b.Level > e.of.finest && e.of.leaves(e.limit, b.First()) != e.of.leaves(e.limit, b.Last()) {
			children := bucketsWithin(b.Level-1, Window{b.First(), b.Last()})
			if slices.ContainsFunc(children, func(child Bucket) bool { return !e.of.knows(child) }) {
				e.wanted = children
				return
			}
			e.free(b.First(), e.of.lost(b, children))
			e.tiles = slices.Replace(e.tiles, 0, 1, children...)
			continue
		}
		e.free(b.First(), e.of.value(b))
		e.tiles = e.tiles[1:]
	}
	e.frees = e.frees[:min(len(e.frees), e.moments)]
}

// free notes that so much leaves with that second.
func (e *explanation) free(second, count int64) {
	if count <= 0 {
		return
	}
	at := e.of.leaves(e.limit, second) * 1000
	i, found := slices.BinarySearchFunc(e.frees, at, func(f engine.Freed, at int64) int { return cmp.Compare(f.At, at) })
	if !found {
		e.frees = slices.Insert(e.frees, i, engine.Freed{At: at})
	}
	e.frees[i].Count += count
}
