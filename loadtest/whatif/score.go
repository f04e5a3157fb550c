package whatif

import (
	"cmp"
	"slices"
	"time"
)

// score counts what became of the hits of features, which are numbered from 0.
type score struct {
	hits, denied int64
	of           []int64            // hits, by feature
	denials      map[uint32]*denial // by feature; without one nothing was denied
}

// denial is what is known of a feature that was denied.
type denial struct {
	hits        int64
	first, last int64 // Unix seconds
	run         stretch
	longest     stretch
}

// stretch is a run of denials of one feature with no admission in between.
type stretch struct {
	from, to int64 // Unix seconds of the first and the last denial
	hits     int64 // denied; 0: there is no such stretch
}

func newScore(features int) score {
	return score{of: make([]int64, features), denials: map[uint32]*denial{}}
}

// add counts a hit of the feature. Those of one feature come in the order of time.
func (s *score) add(feature uint32, second int64, admitted bool) {
	s.hits++
	s.of[feature]++
	d := s.denials[feature]
	if admitted {
		if d != nil {
			d.endRun()
		}
		return
	}
	if d == nil {
		d = &denial{first: second}
		s.denials[feature] = d
	}
	s.denied++
	d.add(second)
}

func (d *denial) add(second int64) {
	d.hits++
	d.last = second
	if d.run.hits == 0 {
		d.run.from = second
	}
	d.run.to = second
	d.run.hits++
}

// endRun ends the stretch under way, if there is one. Of equal ones the first is kept.
func (d *denial) endRun() {
	if d.run.longer(d.longest) > 0 {
		d.longest = d.run
	}
	d.run = stretch{}
}

// longer compares stretches: by their time, then by their hits.
func (s stretch) longer(other stretch) int {
	return cmp.Or(cmp.Compare(s.to-s.from, other.to-other.from), cmp.Compare(s.hits, other.hits))
}

// seen returns how many features had hits.
func (s *score) seen() int {
	seen := 0
	for _, hits := range s.of {
		if hits > 0 {
			seen++
		}
	}
	return seen
}

// report makes a Score of the score. It names features by name.
func (s *score) report(top int, name func(feature uint32) string) Score {
	r := Score{
		Hits: s.hits, Admitted: s.hits - s.denied, Denied: s.denied,
		Features: s.seen(), EverDenied: len(s.denials), MostDenied: []Feature{},
	}
	if r.Features > 0 {
		r.EverDeniedShare = float64(r.EverDenied) / float64(r.Features)
	}
	denied := make([]Feature, 0, len(s.denials))
	var longest stretch
	for feature, d := range s.denials {
		d.endRun()
		named := name(feature)
		denied = append(denied, Feature{named, s.of[feature], d.hits, utc(d.first), utc(d.last)})
		by := cmp.Or(d.longest.longer(longest), cmp.Compare(longest.from, d.longest.from))
		if r.LongestDenial == nil || by > 0 || by == 0 && named < r.LongestDenial.Feature {
			longest = d.longest
			r.LongestDenial = &Stretch{named, utc(longest.from), utc(longest.to), longest.to - longest.from, longest.hits}
		}
	}
	slices.SortFunc(denied, func(a, b Feature) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Hits, a.Hits), cmp.Compare(a.Feature, b.Feature))
	})
	r.MostDenied = append(r.MostDenied, denied[:min(top, len(denied))]...)
	return r
}

func utc(second int64) time.Time { return time.Unix(second, 0).UTC() }
