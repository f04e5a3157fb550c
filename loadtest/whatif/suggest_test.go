package whatif_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/loadtest/share"
	"github.com/counterd/counterd/loadtest/whatif"
)

// The second implementation: slow, obvious, and with nothing of the first but the form of
// the report.

// slowLog returns the hits by feature, and all lines in the order of time.
func slowLog(text, field string, costs bool) (by map[string][]slowHit, lines []slowLine) {
	by, lines = map[string][]slowHit{}, slowLines(text)
	for _, line := range lines {
		hit := slowHit{line.second, 1}
		if costs {
			var err error
			if hit.cost, err = strconv.ParseInt(line.fields["bytes"], 10, 64); err != nil || hit.cost < 1 || hit.cost > 1_000_000 {
				continue
			}
		}
		by[line.fields[field]] = append(by[line.fields[field]], hit)
	}
	return by, lines
}

// slowLargest lets a window end with each of the hits.
func slowLargest(hits []slowHit, seconds int64) int64 {
	most := int64(0)
	for _, end := range hits {
		sum := int64(0)
		for _, h := range hits {
			if h.second > end.second-seconds && h.second <= end.second {
				sum += h.cost
			}
		}
		most = max(most, sum)
	}
	return most
}

// slowPeak returns the most tokens that a bucket lacks which is never empty, and to which so many return in so
// many seconds.
func slowPeak(hits []slowHit, rate, seconds int64) (most int64) {
	last, parts := int64(0), int64(0) // a token has as many parts as the window seconds
	for _, h := range hits {
		for ; parts > 0 && last < h.second; last++ {
			parts = max(0, parts-rate)
		}
		last = h.second
		parts += h.cost * seconds
		most = max(most, (parts+seconds-1)/seconds)
	}
	return most
}

// exceed counts the features of which some window holds more than its limit.
func exceed(largest [][]int64, limits []int64) int {
	n := 0
	for _, counts := range largest {
		for w, limit := range limits {
			if counts[w] > limit {
				n++
				break
			}
		}
	}
	return n
}

// slowKind finds everything of a kind, by trying.
func slowKind(by map[string][]slowHit, kind string, deny float64, span int64) whatif.Kind {
	k := whatif.Kind{Kind: kind, Features: len(by)}
	var costs []int64 // of each feature
	lengths := []int64{1, 60, 3600, 86400}
	var largest [][]int64
	for _, hits := range by {
		k.Hits += len(hits)
		var counts []int64
		sum := int64(0)
		for _, h := range hits {
			sum += h.cost
		}
		costs = append(costs, sum)
		k.Traffic += sum
		for _, seconds := range lengths {
			counts = append(counts, slowLargest(hits, seconds))
		}
		largest = append(largest, counts)
	}
	may := 0
	for float64(may+1)*100 <= deny*float64(k.Features)+1e-9 {
		may++
	}
	only := func(w int, limit int64) int {
		n := 0
		for _, counts := range largest {
			if counts[w] > limit {
				n++
			}
		}
		return n
	}
	alone := func(w, may int) int64 {
		for limit := int64(1); ; limit++ {
			if only(w, limit) <= may {
				return limit
			}
		}
	}
	usable := 0
	for _, seconds := range lengths {
		if seconds <= span {
			usable++
		}
	}
	choose := func(may int) []int64 {
		limits := make([]int64, usable)
		for each := may; ; each-- {
			for w := range limits {
				limits[w] = alone(w, each)
			}
			if exceed(largest, limits) <= may {
				break
			}
		}
		for w := usable - 1; w >= 0; w-- {
			for limits[w] > 1 {
				limits[w]--
				if exceed(largest, limits) > may {
					limits[w]++
					break
				}
			}
		}
		return limits
	}
	deniedCosts := func(limits []int64) (sum int64) {
		for i, counts := range largest {
			if exceed([][]int64{counts}, limits) > 0 {
				sum += costs[i]
			}
		}
		return sum
	}
	limits := choose(may)
	k.Denied, k.DeniedTraffic = exceed(largest, limits), deniedCosts(limits)

	sorted := slices.Clone(costs)
	slices.Sort(sorted)
	for rest := k.Traffic; float64(k.Traffic-rest) < 0.9*float64(k.Traffic)-1e-6; k.Attack.Features++ {
		rest -= sorted[len(sorted)-1-k.Attack.Features]
	}
	attack := choose(k.Attack.Features)
	for w := range attack {
		attack[w] = max(attack[w], 5)
	}
	k.Attack.Denied, k.Attack.DeniedTraffic = exceed(largest, attack), deniedCosts(attack)

	for w, name := range []string{"second", "minute", "hour", "day"} {
		var counts []int64
		for _, c := range largest {
			counts = append(counts, c[w])
		}
		sort.Slice(counts, func(i, j int) bool { return counts[i] < counts[j] })
		quantile := func(share float64) int64 {
			for i, count := range counts {
				if float64(i+1) >= share*float64(len(counts))-1e-9 {
					return count
				}
			}
			panic("no such quantile")
		}
		window := whatif.Window{
			Window: name, P50: quantile(0.5), P90: quantile(0.9), P99: quantile(0.99), P999: quantile(0.999), Max: counts[len(counts)-1],
			Alone: alone(w, may),
		}
		window.AloneDenied = only(w, window.Alone)
		units := []string{"s", "m", "h", "d"}
		if w >= usable {
			window.LeftOut = "the log is shorter"
		} else {
			window.Chosen = limits[w]
			var peaks []int64
			for _, hits := range by {
				peaks = append(peaks, slowPeak(hits, window.Alone, lengths[w]))
			}
			above := func(burst int64) (n int) {
				for _, peak := range peaks {
					if peak > burst {
						n++
					}
				}
				return n
			}
			for window.Burst = 1; above(window.Burst) > may; window.Burst++ {
			}
			window.BurstDenied = above(window.Burst)
			rate := func(limits []int64) (rate, leftOut string) {
				// A limit is of no use beside a longer one that is not larger, or beside a shorter
				// one that cannot reach it.
				useless := func(w, beside int) bool {
					if beside > w {
						return limits[beside] <= limits[w]
					}
					return beside < w && limits[beside]*lengths[w]/lengths[beside] <= limits[w]
				}
				for beside := range limits {
					others := false
					for third := range limits {
						others = others || useless(beside, third)
					}
					if useless(w, beside) && !others {
						return "", fmt.Sprintf("%d/%s denies all that it would", limits[beside], units[beside])
					}
				}
				return fmt.Sprintf("%d/%s", limits[w], units[w]), ""
			}
			window.Rate, window.LeftOut = rate(limits)
			if k.Attack.Denied == 0 {
				// They would catch nothing.
			} else if window.AttackRate, _ = rate(attack); window.AttackRate != "" {
				k.Attack.Rates = append(k.Attack.Rates, window.AttackRate)
			}
		}
		k.Windows = append(k.Windows, window)
	}
	return k
}

// agreeOn has both implementations run, and compares every number.
func agreeOn(t *testing.T, text string, kinds []string, mapping string, deny string, costs bool) *whatif.Suggestion {
	t.Helper()
	atMost, err := share.Parse(deny)
	require.NoError(t, err)
	config := whatif.SuggestConfig{Config: whatif.Config{Top: 3}, Name: "access.log", Kinds: kinds, EventName: "test", Deny: atMost}
	fields := map[string]string{"ip": "host", "page": "path"}
	if costs {
		mapping, config.CostKind = mapping+",cost=bytes", "cost"
	}
	config.Log = readLog(t, text, mapping)
	report, err := whatif.Suggest(t.Context(), config)
	require.NoError(t, err)
	percent, err := strconv.ParseFloat(deny, 64)
	require.NoError(t, err)
	var want []whatif.Kind
	for _, kind := range kinds {
		by, lines := slowLog(text, fields[kind], costs)
		from, to := lines[0].second, lines[len(lines)-1].second
		require.Equal(t, time.Unix(from, 0).UTC(), report.WhatIf.From)
		require.Equal(t, time.Unix(to, 0).UTC(), report.WhatIf.To)
		require.Equal(t, len(lines), report.WhatIf.Lines)
		want = append(want, slowKind(by, kind, percent, to-from+1))
	}
	require.Equal(t, asJSON(t, want), asJSON(t, report.Kinds))
	for _, kind := range kinds {
		if len(kinds) > 1 { // each by itself, where the engine's count is held to the reckoned one
			agreeOn(t, text, []string{kind}, mapping, deny, false)
		}
	}
	return report
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// TestASuggestedBucket has a share of 1, in make test, too.
func TestSuggestOnTheRealLog(t *testing.T) {
	text := realText(t)
	denies := []string{"5"}
	if testkit.Thorough() {
		denies = []string{"0", "0.1", "0.5", "5", "33.3333"}
		t.Run("two kinds", func(t *testing.T) {
			t.Parallel()
			agreeOn(t, text, []string{"page", "ip"}, "ip=host,page=path", "2", false)
		})
	}
	for _, deny := range denies {
		t.Run(deny, func(t *testing.T) {
			t.Parallel()
			agreeOn(t, text, []string{"ip"}, "ip=host", deny, false)
		})
	}
}

func TestSuggestOnLogsByChance(t *testing.T) {
	for seed := range testkit.Seeds(300) {
		random := rand.New(rand.NewPCG(seed, 11))
		var text strings.Builder
		begin := time.Date(2024, 2, 28, 23, 57, random.IntN(60), 0, time.UTC)
		span := []int{3, 60, 90, 4000, 86400, 200_000}[random.IntN(6)]
		features := 1 + random.IntN(30)
		for range 1 + random.IntN(300) {
			host := min(random.IntN(features), random.IntN(features))
			fmt.Fprintf(&text, "192.0.2.%d - - [%s] \"GET /%d HTTP/1.1\" 200 %d\n", host,
				begin.Add(time.Duration(random.IntN(1+random.IntN(span)))*time.Second).Format("02/Jan/2006:15:04:05 -0700"), random.IntN(3), random.IntN(4))
		}
		by, _ := slowLog(text.String(), "host", true)
		deny := []string{"0", "3", "10", "25", "50", "99"}[random.IntN(6)]
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			agreeOn(t, text.String(), []string{"ip"}, "ip=host,page=path", deny, len(by) > 0 && random.IntN(2) == 0)
		}) {
			t.Fatalf("-deny %s\n%s", deny, &text)
		}
	}
}

// A token bucket is suggested where hits do not come at once, and the engine denies by it as many as was said.
func TestASuggestedBucket(t *testing.T) {
	report := agreeOn(t, realText(t), []string{"ip"}, "ip=host", "1", false)
	var text strings.Builder
	require.NoError(t, report.WriteText(&text))
	require.Contains(t, text.String(), "The hits of a minute do not come at once: a token bucket, {per: ip, rate: 33/m, burst: 8}, would have denied 14 of 1753 features.\n")
	for i, w := range report.Kinds[0].Windows {
		rate := fmt.Sprintf("[{per: ip, rate: %d/%s, burst: %d}]", w.Alone, "smhd"[i:i+1], w.Burst)
		tried, err := whatif.Run(t.Context(), whatif.Config{Event: parsed(t, rate), Log: readLog(t, realText(t), "ip=host")})
		require.NoError(t, err)
		require.Equal(t, w.BurstDenied, tried.All.EverDenied, rate)
	}
	// The rules file has its rule for a comment.
	rate, bucket, found := strings.Cut(report.Rules[strings.Index(report.Rules, "      - per: ip"):], "      # - ")
	require.True(t, found, report.Rules)
	rules, err := rulesfile.Parse([]byte(strings.Replace(report.Rules, rate+"      # - "+bucket, "      - "+bucket, 1)))
	require.NoError(t, err)
	require.Len(t, rules.Events[report.Event].Rules, 1)
	tried, err := whatif.Run(t.Context(), whatif.Config{Event: rules.Events[report.Event], Log: readLog(t, realText(t), "ip=host")})
	require.NoError(t, err)
	require.Equal(t, 14, tried.All.EverDenied)

	even := agreeOn(t, at("10:00:00", "192.0.2.1")+at("10:00:00", "192.0.2.1")+at("10:02:00", "192.0.2.1"), []string{"ip"}, "ip=host", "0", false)
	require.NoError(t, even.WriteText(&text))
	require.NotContains(t, strings.Split(text.String(), "3 lines")[1], "token bucket")
	require.NotContains(t, even.Rules, "token bucket")
}

const fourLines = `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1
192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1
2001:db8::1 - - [17/May/2015:11:05:03 +0200] "GET / HTTP/1.1" 200 1
2001:db8:0:1::1 - - [17/May/2015:11:05:03 +0200] "GET / HTTP/1.1" 200 1
nonsense
`

// The file says where it comes from, whatever the log's name.
func TestTheRulesFile(t *testing.T) {
	report, err := whatif.Suggest(t.Context(), whatif.SuggestConfig{
		Config: whatif.Config{Log: readLog(t, fourLines, "ip=host")}, Name: "a\nevents: {}", Kinds: []string{"ip"}, EventName: "login_failed", Deny: whatif.DefaultDeny,
	})
	require.NoError(t, err)
	require.Equal(t, `# Suggested by loadtest replay -suggest -deny 0.1, from "a\nevents: {}":
# 5 lines from 2015-05-17T09:05:03Z to 2015-05-17T10:05:03Z.
# ip: Together the limits would have denied 0 of 3 features at some time (0.00%), with 0.00% of the traffic; 0.1% are 0.
# So few features say little: the limits are the largest counts that were seen.
# These limits catch nothing in this log: they are for a log in which all is as it should be.
# Else let more features be denied, with a larger -deny (34% is one).
# Left out: 2 in any second: 2/h denies all that it would.
# Left out: 2 in any minute: 2/h denies all that it would.
# Left out: one for the day: the log is shorter.
events:
  login_failed:
    limits:
      - per: ip
        rate: [2/h]
`, report.Rules)
	var out strings.Builder
	require.NoError(t, report.WriteText(&out))
	require.Contains(t, out.String(), "of 5 lines 1 malformed")
	require.Contains(t, out.String(), "0.1% are 0.\nSo few features say little")
	require.Contains(t, out.String(), "\nhour      1    2    2      2    2            2       0  0.00%      2       2/h       -\n")
	require.Contains(t, out.String(), "These limits catch nothing in this log: ")
	require.Contains(t, out.String(), " (34% is one).\n")
	require.NotContains(t, out.String(), "or take the column attack", "that would catch nothing either")
}
