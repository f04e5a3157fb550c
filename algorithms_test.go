package counterd_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// taken is what an admitted hit has taken.
type taken struct {
	at, cost int64 // in milliseconds
	until    int64 // when its lease ends, or was released
	turn     int64
	lease    string
}

// Limits of all algorithms on one counter give one verdict: a hit is admitted if each has room for it, by an oracle
// that knows the admitted hits alone, and what one of them denies leaves nothing behind in the others.
func TestAllAlgorithmsGiveOneVerdict(t *testing.T) {
	const rules = `events: {e: {limits: [
	{per: ip, rate: 9/20s}, {per: ip, rate: 8/15s, algorithm: sliding-log}, {per: ip, rate: 1/3s, burst: 7},
	{per: ip, rate: 1/2s, queue: 3}, {per: ip, rate: 300/h, calendar: Asia/Kathmandu}, {per: ip, rate: 14/40s, algorithm: fixed-window},
	{per: ip, concurrent: 3, lease: 10s}, {per: ip, rate: 12/30s, algorithm: fixed-window}]}}`
	bubble.Test(t, func(t *testing.T) {
		l, rnd := start(t, parse(t, rules)), rand.New(rand.NewPCG(1, 9))
		var all []*taken
		var bucket, queue int64 // what they lack, in milliseconds until it is there
		last := time.Now().UnixMilli()
		sum := func(counts func(*taken) bool) (n int64) {
			for _, a := range all {
				if counts(a) {
					n += a.cost
				}
			}
			return n
		}
		denies := make([]int, 8)
		alone, admitted := 0, 0
		for range 2500 {
			time.Sleep(time.Duration(rnd.Int64N(testkit.Pick(rnd, int64(20), 900, 900, 3000, 3000))) * time.Millisecond)
			now := time.Now().UnixMilli()
			bucket, queue, last = max(bucket-(now-last), 0), max(queue-(now-last), 0), now
			all = slices.DeleteFunc(all, func(a *taken) bool { return a.at < now-2*3_600_000 })
			if rnd.IntN(3) == 0 && len(all) > 0 {
				if a := testkit.Pick(rnd, all[max(len(all)-4, 0):]...); a.until > now && a.turn <= now { // before its turn all of the hit would be given back
					require.NoError(t, l.Release(ctx, a.lease))
					a.until = now
				}
			}
			cost := 1 + rnd.Int64N(5)/4
			// held returns what counts then.
			held := func(now int64) []int64 {
				live := int64(0)
				for _, a := range all {
					if a.until > now {
						live++
					}
				}
				return []int64{
					sum(func(a *taken) bool { return a.at/1000 > now/1000-20 }),
					sum(func(a *taken) bool { return a.at > now-15_000 }),
					(max(bucket-(now-last), 0) + 2999) / 3000,
					(max(queue-(now-last), 0) + 1999) / 2000,
					sum(func(a *taken) bool { return (a.at+2_700_000)/3_600_000 == (now+2_700_000)/3_600_000 }), // it is 5:45 h ahead of UTC
					sum(func(a *taken) bool { return a.at/40_000 == now/40_000 }),
					live,
					sum(func(a *taken) bool { return a.at/30_000 == now/30_000 }),
				}
			}
			full := func(now int64) (full []int) {
				for i, n := range held(now) {
					takes := cost
					if i == 6 {
						takes = 1
					}
					if n+takes > []int64{9, 8, 7, 4, 300, 14, 3, 12}[i] {
						full = append(full, i)
					}
				}
				return full
			}
			denying := full(now)
			want := len(denying) == 0
			for _, i := range denying {
				denies[i]++
			}
			if len(denying) == 1 {
				alone++
			}
			checked, err := l.CheckN(ctx, "e", visitor, cost)
			require.NoError(t, err)
			d, err := l.HitN(ctx, "e", visitor, cost)
			require.NoError(t, err)
			for i, limit := range checked.Limits {
				require.Equal(t, held(now)[i], limit.Count, "%+v", limit)
			}
			require.Equal(t, want, checked.Allowed)
			// A denied hit is tried again for a while: another one that a log has ahead of it might be void.
			if later := time.Now().UnixMilli(); d.Allowed && later > now {
				require.Empty(t, full(later), "%+v", d)
				require.NoError(t, l.Reset(ctx, "e", visitor))
				all, bucket, queue = nil, 0, 0
				continue
			}
			require.Equal(t, want, d.Allowed, "%v: %+v", held(now), d)
			if want {
				require.Equal(t, queue, d.Wait.Milliseconds())
				all = append(all, &taken{now, cost, now + 10_000, now + d.Wait.Milliseconds(), d.Reservation})
				bucket, queue = bucket+3000*cost, queue+2000*cost
				admitted++
			}
		}
		t.Logf("%d admitted; denied by each: %v, %d by one alone", admitted, denies, alone)
		require.Greater(t, slices.Min(denies), 0)
		require.Greater(t, min(admitted, alone), 100)
	})
}
