package plan

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// due is a hit that is to come.
type due struct {
	second uint32 // of what is played
	actor  uint32
}

// schedule returns the hits of every callers-th actor, from the first on, in the order of
// time: each does its share of the hits, at any time or in sessions, as the traffic says.
func (p played) schedule(first int, seed uint64) []due {
	rng := rand.New(rand.NewPCG(seed, uint64(first)))
	actors, seconds := int(p.crowd.actors), p.span.Seconds()
	length := min(p.config.Sessions.Length.Seconds(), seconds)
	var list []due
	for actor := first; actor < actors; actor += callers {
		// The shares of all add up to the hits.
		hits := share64(p.hits, actor+1, actors) - share64(p.hits, actor, actors)
		size := max(int(min(p.config.Sessions.Events, float64(hits))), 1)
		for begun := 0; begun < hits; begun += size {
			start := rng.Float64() * (seconds - length)
			if size == 1 {
				start = rng.Float64() * seconds
			}
			for range min(size, hits-begun) {
				at := start
				if size > 1 {
					at += rng.Float64() * length
				}
				list = append(list, due{uint32(at), uint32(actor)})
			}
		}
	}
	slices.SortFunc(list, func(a, b due) int { return cmp.Compare(a.second, b.second) })
	return list
}

// share64 returns how many of the hits the first actors have.
func share64(hits, first, actors int) int { return int(int64(hits) * int64(first) / int64(actors)) }
