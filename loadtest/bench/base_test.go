package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIntervalFrom(t *testing.T) {
	assert.Equal(t, Interval{2, 2, 2}, intervalFrom([]float64{20, 10}, []float64{10, 5}), "the machine's speed cancels")
	// The mean of ln 1, ln 2 and ln 4 is ln 2, the standard error ln 2/√3, the quantile 4.303.
	got := intervalFrom([]float64{1, 2, 4}, []float64{1, 1, 1})
	assert.InDelta(t, 2, got.Mean, 1e-9)
	assert.InDelta(t, 0.3574, got.Low, 1e-4)
	assert.InDelta(t, 11.1915, got.High, 1e-3)
}

func TestStudent975(t *testing.T) {
	for freedom, want := range map[int]float64{1: 12.706, 9: 2.262, 10: 2.228, 19: 2.093, 30: 2.042, 99: 1.984} {
		assert.InDelta(t, want, student975(freedom), 6e-4, "%d degrees of freedom", freedom)
	}
}

func rowsOf(ids ...string) (rows []row) {
	for _, id := range ids {
		rows = append(rows, row{id: id, name: "name"})
	}
	return rows
}

// Each round measures both builds of a row next to each other, and the next round swaps them.
func TestBuildsTakeTurns(t *testing.T) {
	var order []string
	var progress steps
	pairs, err := comparePairs(rowsOf("A3", "B2"), 3, &progress, func(r row, ofBase bool) (float64, error) {
		order = append(order, fmt.Sprint(r.id, " ", map[bool]string{true: "base", false: "this"}[ofBase]))
		return 1, nil
	})
	require.NoError(t, err)
	assert.Len(t, pairs, 2)
	assert.Equal(t, []string{
		"A3 base", "A3 this", "B2 base", "B2 this",
		"A3 this", "A3 base", "B2 this", "B2 base",
		"A3 base", "A3 this", "B2 base", "B2 this",
	}, order)
	assert.EqualValues(t, 12, progress.done.Load())
	assert.Equal(t, progress.announced.Load(), progress.done.Load())
}

// A row is slower if its whole interval is below 0.97, in rates that only their pairs compare.
func TestSlower(t *testing.T) {
	for name, c := range map[string]struct {
		ratios []float64
		slower bool
	}{
		"equal":                      {[]float64{1, 1, 1, 1}, false},
		"faster":                     {[]float64{1.5, 1.6, 1.5, 1.6}, false},
		"slower":                     {[]float64{0.9, 0.91, 0.9, 0.91}, true},
		"slower, within the 3%":      {[]float64{0.975, 0.976, 0.975, 0.976}, false},
		"slower, or chance":          {[]float64{0.7, 1.1, 0.7, 1.1}, false},
		"slower on a changing clock": {[]float64{0.9, 0.9, 0.9, 0.9}, true},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			pairs, err := comparePairs(rowsOf("A3"), len(c.ratios), &steps{}, func(_ row, ofBase bool) (float64, error) {
				round := calls / 2
				calls++
				speed := float64(100 * (round + 1))
				if ofBase {
					return speed, nil
				}
				return speed * c.ratios[round], nil
			})
			require.NoError(t, err)
			assert.Equal(t, c.slower, pairs[0].Slower, "%+v", pairs[0].Ratio)
			assert.Equal(t, c.slower, (&Comparison{Rows: append([]Pair{{}}, pairs...)}).Slower())
			assert.Equal(t, Spread{250, 100, 400}, pairs[0].Base)
		})
	}
}

func TestAFailureNamesRowAndRound(t *testing.T) {
	calls := 0
	_, err := comparePairs(rowsOf("A3"), 3, &steps{}, func(row, bool) (float64, error) {
		if calls++; calls == 3 {
			return 0, errors.New("broken")
		}
		return 1, nil
	})
	assert.EqualError(t, err, "bench: A3 name, round 2: broken")
}

func TestRowsOfOneBuildAreListed(t *testing.T) {
	a4, a5 := "A4 Hit, 1 caller", "A5 Hit, 64 callers"
	config := Config{Rows: regexp.MustCompile("^A([45]|99) |^D")}
	require.Equal(t, []string{"A4", "A5", "D2", "D4"}, ids(config.matching()), "without the rows that they need")
	help := "Rows:\n\n  A3   Hit\n  A4   Hit, 1 caller\n  A5   Hit, 64 callers, renamed\n  A99  new\n  D1   peer\nFlags:\n\n  -rows regexp\n"
	var listed Comparison
	rows := listed.commonRows(config, help)
	assert.Equal(t, []string{"A4"}, ids(rows))
	assert.Equal(t, a4, rows[0].title())
	assert.Equal(t, []string{"A5 Hit, 64 callers, renamed", "A99 new", "D1 peer"}, listed.OnlyBase)
	require.Len(t, listed.OnlyThis, 3)
	assert.Equal(t, a5, listed.OnlyThis[0])

	listed = Comparison{}
	rows = listed.commonRows(Config{}, Rows())
	assert.Len(t, rows, len(Config{}.chosen()), "the help of this build")
	assert.Empty(t, listed.OnlyBase)
	assert.Empty(t, listed.OnlyThis)
}

// fakeBuild is a program that prints the help of this build, and otherwise what is given. It notes
// its arguments, beside it.
func fakeBuild(t *testing.T, do string) Build {
	t.Helper()
	path := filepath.Join(t.TempDir(), "loadtest")
	script := "#!/bin/sh\nif [ \"$2\" = -h ]; then\ncat <<'END'\n" + Rows() + "END\nexit\nfi\necho \"$@\" >>" + path + ".args\n" + do + "\n"
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	return Build{Loadtest: path, Counterd: path + "-counterd"}
}

const rateOfA3 = `echo '{"new": 1, "rows": [{"id": "A1", "per_second": {"median": 7}}, {"id": "A3", "per_second": {"median": %d}}]}'`

func TestCompare(t *testing.T) {
	config := Config{Rounds: 2, Duration: 700 * time.Millisecond, Rows: regexp.MustCompile("^A3 "), Peer: "peer:1"}
	this, base := fakeBuild(t, fmt.Sprintf(rateOfA3, 90)), fakeBuild(t, fmt.Sprintf(rateOfA3, 100))
	got, err := Compare(t.Context(), config, this, base)
	require.NoError(t, err)
	require.Len(t, got.Rows, 1)
	assert.InDelta(t, 0.9, got.Rows[0].Ratio.Mean, 1e-9)
	assert.True(t, got.Slower())
	for _, b := range []Build{this, base} {
		args, err := os.ReadFile(b.Loadtest + ".args")
		require.NoError(t, err)
		one := "bench -json -rounds 1 -duration 700ms -rows ^A3  -counterd " + b.Counterd + " -peer peer:1\n"
		assert.Equal(t, strings.Repeat(one, 2), string(args), "each build starts its own counterd")
	}
}

func TestABaseThatDoesNotWork(t *testing.T) {
	config := Config{Rounds: 2, Duration: time.Second, Rows: regexp.MustCompile("^A3 ")}
	this := fakeBuild(t, fmt.Sprintf(rateOfA3, 90))
	for want, base := range map[string]Build{
		"no-such-program":    {Loadtest: "/no-such-program"},
		"none of the rows":   {Loadtest: "echo"},
		"exit status 1":      {Loadtest: "false"},
		"round 1: ":          fakeBuild(t, "echo memcached is full >&2; exit 1"),
		": memcached is":     fakeBuild(t, "echo memcached is full >&2; exit 1"),
		"prints no report: ": fakeBuild(t, "echo no JSON"),
		"lacks the rate":     fakeBuild(t, "echo '{}'"),
	} {
		got, err := Compare(t.Context(), config, this, base)
		assert.Nil(t, got)
		assert.ErrorContains(t, err, want)
	}
}

func TestComparisonAsText(t *testing.T) {
	c := Comparison{
		Machine: "cpu, 2 cores", Base: "old/loadtest", Rounds: 20, Duration: "1s", Seconds: 12.4,
		Rows: []Pair{
			{ID: "A3", Name: "hit, µs", Base: Spread{1234567, 999, 2000000}, This: Spread{5, 4, 6}, Ratio: Interval{0.9, 0.85, 0.955}, Slower: true},
			{ID: "B2", Name: "hit", Base: Spread{5, 4, 6}, This: Spread{5, 4, 6}, Ratio: Interval{1, 0.9, 1.1}},
		},
		OnlyThis: []string{"A4 new"}, OnlyBase: []string{"A5 old"},
	}
	var out bytes.Buffer
	require.NoError(t, c.WriteText(&out))
	assert.Equal(t, `cpu, 2 cores
This build and the base old/loadtest, 20 rounds of 1s, 12 s in all.
Base and this: operations a second, median (least–greatest). Ratio: this build divided by the base, geometric mean of the
rounds; above 1 this build is faster. A row is slower if its interval ends below 0.97.

|     |         |                       base |     this |   ratio |  95% interval |         |
| --- | ---     |                       ---: |     ---: |    ---: |          ---: |     --- |
| A3  | hit, µs |  1,234,567 (999–2,000,000) |  5 (4–6) |  0.900× |   0.850–0.955 |  slower |
| B2  | hit     |                    5 (4–6) |  5 (4–6) |  1.000× |   0.900–1.100 |         |

Only in this build: A4 new

Only in the base: A5 old
`, out.String())
}
