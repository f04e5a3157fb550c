package exactlog

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a bucket lacks is what exact fractions say that are drained from one event to the next.
func TestBucket(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		rate, window := 1+random.Int64N(7), 1+random.Int64N(9)
		bucket, log, lacks, last, peak := Bucket{Rate: rate, Window: window}, Log{}, new(big.Rat), int64(0), int64(0)
		for range random.IntN(30) {
			time, tokens := last+random.Int64N(5), 1+random.Int64N(4)
			lacks.Sub(lacks, big.NewRat((time-last)*rate, window))
			if lacks.Sign() < 0 {
				lacks.SetInt64(0)
			}
			last = time
			lacks.Add(lacks, big.NewRat(tokens, 1))
			whole := new(big.Int).Sub(lacks.Num(), big.NewInt(1))
			want := whole.Div(whole, lacks.Denom()).Int64() + 1
			require.Equal(t, want, bucket.Add(time, tokens))
			log.Add(time, tokens)
			peak = max(peak, want)
		}
		require.Equal(t, peak, log.Peak(rate, window))
	}
}

// Without an order a bucket lacks no more than by any order and any times that are possible, and as much as
// by the sum of some interval, whose entries lie in it.
func TestUnordered(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		type entry struct{ time, tokens int64 }
		rate, window := 1+random.Int64N(7), 1+random.Int64N(9)
		var entries []entry
		var times []int64
		for range 1 + random.IntN(20) {
			e := entry{random.Int64N(30), 1 + random.Int64N(4)}
			entries, times = append(entries, e), append(times, e.time)
		}
		unordered := NewUnordered(rate, window, times)
		require.Zero(t, unordered.Lacks(0))
		for n, e := range entries {
			unordered.Add(e.time, e.tokens)
			now := random.Int64N(40)
			most := int64(0)
			for _, from := range times {
				sum := int64(0)
				for _, other := range entries[:n+1] {
					if other.time >= from {
						sum += other.tokens
					}
				}
				if lacks := sum*window - (now-from)*rate; sum > 0 {
					most = max(most, (lacks+window-1)/window)
				}
			}
			require.Equal(t, most, unordered.Lacks(now))
			ordered := Bucket{Rate: rate, Window: window}
			for _, i := range random.Perm(n + 1) {
				ordered.Add(entries[i].time+random.Int64N(3), entries[i].tokens)
			}
			require.LessOrEqual(t, unordered.Lacks(now), ordered.Lacks(now))
		}
	}
}
