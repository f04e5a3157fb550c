package oracle_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/oracle"
)

// The Counter, which forgets, finds a fault exactly where summing every window finds one.
func TestFaultsAgreeWithEveryWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	found := 0
	for range 2000 {
		l := oracle.Limit{N: 1 + rng.Int64N(12), Window: time.Duration(1+rng.IntN(8)) * time.Second}
		counter := oracle.NewCounter(l)
		var in [20]int64
		for range rng.IntN(14) {
			second, by := rng.Int64N(20), 1+rng.Int64N(3)
			in[second] += by
			counter.Admit(1000+second, by)
		}
		overfull := false
		for to := range in {
			sum := int64(0)
			for _, by := range in[max(0, to+1-int(l.Window/time.Second)) : to+1] {
				sum += by
			}
			overfull = overfull || sum > l.N
		}
		require.Equal(t, overfull, counter.Fault() != nil, "%v %v", l, in)
		if overfull {
			found++
		}
	}
	require.Greater(t, found, 500)
}
