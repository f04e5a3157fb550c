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

// denial is what is known of a feature that was denied, but its name and its hits.
type denial struct {
	Feature
	run     Stretch // under way, if it has a denied hit
	longest Stretch
}

func newScore(features int) score {
	return score{of: make([]int64, features), denials: map[uint32]*denial{}}
}

// add counts a hit of the feature. Those of one feature come in the order of time.
func (s *score) add(feature uint32, second int64, admitted bool) {
	s.hits++
	s.of[feature]++
	d, at := s.denials[feature], utc(second)
	if admitted {
		if d != nil {
			d.endRun()
		}
		return
	}
	if d == nil {
		d = &denial{Feature: Feature{First: at}}
		s.denials[feature] = d
	}
	s.denied++
	d.Denied++
	d.Last = at
	if d.run.Denied == 0 {
		d.run.From = at
	}
	d.run.To = at
	d.run.Seconds = int64(at.Sub(d.run.From) / time.Second)
	d.run.Denied++
}

// endRun ends the stretch under way, if there is one. Of equal ones the first is kept.
func (d *denial) endRun() {
	if d.run.compare(d.longest) > 0 {
		d.longest = d.run
	}
	d.run = Stretch{}
}

// compare compares stretches: by their time, then by their hits.
func (s Stretch) compare(other Stretch) int {
	return cmp.Or(cmp.Compare(s.Seconds, other.Seconds), cmp.Compare(s.Denied, other.Denied))
}

// report makes a Score of the score. It names features by name.
func (s *score) report(top int, name func(feature uint32) string) Score {
	r := Score{Hits: s.hits, Admitted: s.hits - s.denied, Denied: s.denied, EverDenied: len(s.denials)}
	for _, hits := range s.of {
		if hits > 0 {
			r.Features++
		}
	}
	if r.Features > 0 {
		r.EverDeniedShare = float64(r.EverDenied) / float64(r.Features)
	}
	denied := make([]Feature, 0, len(s.denials))
	for feature, d := range s.denials {
		d.endRun()
		d.Feature.Feature, d.Hits, d.longest.Feature = name(feature), s.of[feature], name(feature)
		denied = append(denied, d.Feature)
		if l := r.LongestDenial; l == nil ||
			cmp.Or(d.longest.compare(*l), l.From.Compare(d.longest.From), cmp.Compare(l.Feature, d.longest.Feature)) > 0 {
			r.LongestDenial = &d.longest
		}
	}
	slices.SortFunc(denied, func(a, b Feature) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Hits, a.Hits), cmp.Compare(a.Feature, b.Feature))
	})
	r.MostDenied = denied[:min(top, len(denied))]
	return r
}

func utc(second int64) time.Time { return time.Unix(second, 0).UTC() }
