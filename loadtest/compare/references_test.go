package compare

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

// textbook is a way of limiting as its definition has it: from all that it has admitted,
// each time anew.
type textbook func(l limit, admitted []moment, now, cost int64) bool

func costWhere(admitted []moment, holds func(at int64) bool) (sum int64) {
	for _, m := range admitted {
		if holds(m.at) {
			sum += m.cost
		}
	}
	return sum
}

func textbookFixed(l limit, admitted []moment, now, cost int64) bool {
	begin := now - now%l.window
	return costWhere(admitted, func(at int64) bool { return at >= begin })+cost <= l.n
}

func textbookTwoWindows(l limit, admitted []moment, now, cost int64) bool {
	begin := now - now%l.window
	before := costWhere(admitted, func(at int64) bool { return at >= begin-l.window && at < begin })
	here := costWhere(admitted, func(at int64) bool { return at >= begin })
	estimate := new(big.Rat).Mul(big.NewRat(before, 1), big.NewRat(l.window-(now-begin), l.window))
	estimate.Add(estimate, big.NewRat(here+cost, 1))
	return estimate.Cmp(big.NewRat(l.n, 1)) <= 0
}

func textbookLog(l limit, admitted []moment, now, cost int64) bool {
	return costWhere(admitted, func(at int64) bool { return at > now-l.window })+cost <= l.n
}

// textbookBucket fills the bucket from the beginning, at each hit anew.
func textbookBucket(l limit, admitted []moment, now, cost int64) bool {
	full := big.NewRat(l.n, 1)
	tokens, last := new(big.Rat).Set(full), int64(0)
	fill := func(until int64) {
		tokens.Add(tokens, new(big.Rat).Mul(big.NewRat(until-last, l.window), full))
		if tokens.Cmp(full) > 0 {
			tokens.Set(full)
		}
		last = until
	}
	for _, m := range admitted {
		fill(m.at)
		tokens.Sub(tokens, big.NewRat(m.cost, 1))
	}
	fill(now)
	return tokens.Cmp(big.NewRat(cost, 1)) >= 0
}

// textbookRacing does not see the last two admissions of the second.
func textbookRacing(l limit, admitted []moment, now, cost int64) bool {
	for range 2 {
		if last := len(admitted) - 1; last >= 0 && admitted[last].at/second == now/second {
			admitted = admitted[:last]
		}
	}
	return textbookLog(l, admitted, now, cost)
}

func made(t *testing.T, way contender, l limit) algorithm {
	t.Helper()
	a, err := way.make(l)
	require.NoError(t, err)
	return a
}

// named makes a reference; a log that races has 1 or 3 processes.
func named(t *testing.T, name string, l limit) algorithm {
	t.Helper()
	all := append(references(3), references(1)...)
	i := slices.IndexFunc(all, func(c contender) bool { return c.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return made(t, all[i], l)
}

func ours(t *testing.T, l events.Limit, precision events.Precision) *hierarchical {
	t.Helper()
	h, err := newHierarchical(l, "user", precision)
	require.NoError(t, err)
	return h
}

func decide(t *testing.T, a algorithm, feature string, m moment) bool {
	t.Helper()
	admitted, err := a.decide(t.Context(), feature, m.at, m.cost)
	require.NoError(t, err)
	return admitted
}

// hitsOf returns hits in the order of their times, which are multiples of the step and
// sometimes leave the window behind.
func hitsOf(rng *rand.Rand, l limit, step int64) []moment {
	now := opening.UnixNano()
	list := make([]moment, 90)
	for i := range list {
		switch rng.IntN(10) {
		case 0:
			now += rng.Int64N(2*l.window/step+1) * step
		case 1, 2, 3: // at the same time
		default:
			now += rng.Int64N(2*l.window/l.n/step+2) * step
		}
		list[i] = moment{now, 1}
		if rng.IntN(4) == 0 {
			list[i].cost = 1 + rng.Int64N(l.n+2)
		}
	}
	return list
}

// Each reference decides each hit as its definition does, of whole seconds and of
// nanoseconds.
func TestReferencesAreAsTheirDefinitions(t *testing.T) {
	for name, of := range map[string]struct {
		textbook textbook
		step     int64 // of times
		windows  int64 // are multiples of that
	}{
		"sliding log, whole seconds":  {textbookLog, second, second},
		"sliding log":                 {textbookLog, 1, second},
		"two windows, whole seconds":  {textbookTwoWindows, second, second},
		"two windows":                 {textbookTwoWindows, 1, second},
		"fixed window, whole seconds": {textbookFixed, second, second},
		"fixed window":                {textbookFixed, 1, second},
		// The library reckons in floating point: exactly where all are powers of two.
		"token bucket, powers of two": {textbookBucket, second / 512, 0},
		"GCRA, whole seconds":         {textbookBucket, second, second},
		"GCRA":                        {textbookBucket, 1, second},
		"log, 3 at once":              {textbookRacing, second / 4, second},
		"log, 1 at once":              {textbookLog, second / 4, second},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 0))
			admitted, denied := 0, 0
			for range 15 {
				l := limit{1 + rng.Int64N(12), 0}
				if of.windows == 0 {
					l = limit{1 << rng.Int64N(4), second << rng.Int64N(7)}
				} else {
					// The interval is a whole number.
					l.window = l.n * (1 + rng.Int64N(5)) * of.windows
				}
				a := named(t, strings.TrimSuffix(strings.TrimSuffix(name, ", whole seconds"), ", powers of two"), l)
				var log []moment
				for i, m := range hitsOf(rng, l, of.step) {
					want := of.textbook(l, log, m.at, m.cost)
					got := decide(t, a, "f", m)
					require.Equal(t, want, got, "hit %d of %d in %s, %+v behind %+v", i, l.n, time.Duration(l.window), m, log)
					if got {
						log = append(log, m)
						admitted++
					} else {
						denied++
					}
				}
			}
			assert.Greater(t, admitted, 300)
			assert.Greater(t, denied, 300)
		})
	}
}

// With the same parameters GCRA and the token bucket of the library decide alike.
func TestGCRAIsATokenBucket(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 0))
	for range 50 {
		l := limit{1 << rng.Int64N(6), second << rng.Int64N(9)}
		one, other := named(t, "GCRA", l), named(t, "token bucket", l)
		for _, m := range hitsOf(rng, l, second/512) {
			require.Equal(t, decide(t, other, "f", m), decide(t, one, "f", m), "%+v", m)
		}
	}
}

// Where the interval is no whole number of nanoseconds GCRA rounds it up, and never lets
// more through than the token bucket.
func TestGCRARoundsUp(t *testing.T) {
	l := limit{7, second}
	var due int64
	var log []moment
	for now := int64(1); now < 3*second; now += 71_428_571 {
		if next, admitted := gcra(l, due, now, 1); admitted {
			require.True(t, textbookBucket(l, log, now, 1))
			due, log = next, append(log, moment{now, 1})
		}
	}
	assert.Len(t, log, 7+20)
	first, _ := gcra(l, 0, second, 1)
	assert.Equal(t, second+142_857_143, first)
}

// What costs more than any window may hold is denied, and does no harm: as intervals 10,000
// is beyond an int64.
func TestAVastCost(t *testing.T) {
	for _, r := range references(2) {
		a := made(t, r, limit{2, int64(30 * 24 * time.Hour)})
		for i, cost := range []int64{1_000_000, 1, 10_000, 1} {
			assert.Equal(t, i%2 == 1, decide(t, a, "f", moment{opening.UnixNano(), cost}), r.name)
		}
	}
}

// Features have nothing to do with one another.
func TestFeaturesAreApart(t *testing.T) {
	for _, r := range references(1) {
		a := made(t, r, limit{1, second})
		for _, feature := range []string{"a", "b"} {
			for i := range 2 {
				assert.Equal(t, i == 0, decide(t, a, feature, moment{opening.UnixNano(), 1}), r.name)
			}
		}
	}
}

// counterd decides each hit as the log does, by whole seconds; with a minute's precision
// it never admits what the log of its own admissions would not.
func TestCounterdIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 0))
	for range 20 {
		n := 1 + rng.Int64N(9)
		l := events.Limit{N: n, Window: time.Duration(1+rng.Int64N(400)) * time.Second}
		a, log := ours(t, l, events.Second), named(t, "sliding log", limitOf(l))
		for i, m := range hitsOf(rng, limitOf(l), second) {
			require.Equal(t, decide(t, log, "f", m), decide(t, a, "f", m), "hit %d of %s, %+v", i, events.FormatRate(l), m)
		}
	}
	for i := range 10 {
		l := events.Limit{N: 1 + rng.Int64N(9), Window: time.Duration(1+i) * time.Minute}
		a := ours(t, l, events.Minute)
		var admitted []moment
		for _, m := range hitsOf(rng, limitOf(l), second) {
			if decide(t, a, "f", m) {
				require.True(t, textbookLog(limitOf(l), admitted, m.at, m.cost))
				admitted = append(admitted, m)
			}
		}
	}
}

// Where the traffic goes back in time the engine does not, and nothing is compared.
func TestTimeDoesNotGoBack(t *testing.T) {
	a := ours(t, events.Limit{N: 5, Window: time.Minute}, events.Second)
	decide(t, a, "f", moment{opening.UnixNano(), 1})
	_, err := a.decide(t.Context(), "f", opening.UnixNano()-1, 1)
	assert.ErrorContains(t, err, "stamped")
}

func Example() {
	var due int64
	for _, at := range []int64{100, 101, 102, 106} {
		next, admitted := gcra(limit{2, 10 * second}, due, at*second, 1)
		if admitted {
			due = next
		}
		fmt.Println(at, admitted)
	}
	// Output:
	// 100 true
	// 101 true
	// 102 false
	// 106 true
}
