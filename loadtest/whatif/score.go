package whatif

import (
	"cmp"
	"slices"
	"time"
)

// score counts the hits of features, which are numbered from 0.
type score struct {
	hits, denied int64
	of           []int64             // hits, by feature
	denials      map[uint32]*Feature // features with denied hits
}

func newScore(features int) score {
	return score{of: make([]int64, features), denials: map[uint32]*Feature{}}
}

// add counts a hit of the feature. The hits of one feature come in the order of time.
func (s *score) add(feature uint32, second int64, admitted bool) {
	s.hits++
	s.of[feature]++
	if admitted {
		return
	}
	d := s.denials[feature]
	if d == nil {
		d = &Feature{First: utc(second)}
		s.denials[feature] = d
	}
	s.denied++
	d.Denied++
	d.Last = utc(second)
}

// report makes a Score of the score. It names features by name.
func (s *score) report(top int, names []string) Score {
	r := Score{Hits: s.hits, Admitted: s.hits - s.denied, Denied: s.denied, EverDenied: len(s.denials), MostDenied: []Feature{}}
	for _, hits := range s.of {
		if hits > 0 {
			r.Features++
		}
	}
	if r.Features > 0 {
		r.EverDeniedShare = float64(r.EverDenied) / float64(r.Features)
	}
	for feature, d := range s.denials {
		d.Feature, d.Hits = names[feature], s.of[feature]
		r.MostDenied = append(r.MostDenied, *d)
	}
	slices.SortFunc(r.MostDenied, func(a, b Feature) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Hits, a.Hits), cmp.Compare(a.Feature, b.Feature))
	})
	r.MostDenied = r.MostDenied[:min(top, len(r.MostDenied))]
	return r
}

func utc(second int64) time.Time { return time.Unix(second, 0).UTC() }
