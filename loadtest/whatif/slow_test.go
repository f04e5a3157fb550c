package whatif_test

// The second implementation: slow, obvious, and with nothing of the first but the report
// that both make. It cuts lines by a regular expression of its own, keeps a log of every
// counted hit for each feature, and goes through all of it for each hit.

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/whatif"
)

// slowLine is a line of a log.
type slowLine struct {
	second int64
	fields map[string]string
}

var combinedLine = regexp.MustCompile(`^(\S+) \S+ (\S+) \[(\d\d)/(\w\w\w)/(\d\d\d\d):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)\] "(\S+) ([^\s?]+)\S* \S+" (\d\d\d) (\S+)`)

// slowLines reads a log in the combined format, and sorts it by time.
func slowLines(text string) []slowLine {
	var lines []slowLine
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		m := combinedLine.FindStringSubmatch(line)
		if m == nil {
			panic("the second implementation does not know such a line: " + line)
		}
		number := func(i int) int {
			n, err := strconv.Atoi(m[i])
			if err != nil {
				panic(err)
			}
			return n
		}
		month := 1 + slices.Index(strings.Fields("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"), m[4])
		at := time.Date(number(5), time.Month(month), number(3), number(6), number(7), number(8), 0, time.UTC).Unix()
		zone := int64(number(10)*3600 + number(11)*60)
		if m[9] == "-" {
			zone = -zone
		}
		fields := map[string]string{"host": m[1], "user": m[2], "method": m[12], "path": m[13], "status": m[14], "bytes": m[15]}
		lines = append(lines, slowLine{at - zone, fields})
	}
	sort.SliceStable(lines, func(i, j int) bool { return lines[i].second < lines[j].second })
	return lines
}

// slowHit is a hit that is counted.
type slowHit struct {
	second int64
	cost   int64
}

// slowVerdict is what a limit said to a hit.
type slowVerdict struct {
	feature string
	second  int64
	yes     bool
}

// slow is the second implementation of what if.
type slow struct {
	kinds    map[string]string // of features, and the fields that hold them
	costs    string            // the field that holds the cost
	rules    []events.Rule
	counted  map[string][]slowHit
	leased   map[string][]slowHit     // by each hit that was admitted, whatever it cost
	verdicts map[string][]slowVerdict // by the limit's name, "" for all together
	alone    map[string]int64
	over     map[string]int64
	report   whatif.Report
}

func (s *slow) run(lines []slowLine, top int) *whatif.Report {
	s.counted, s.leased, s.verdicts = map[string][]slowHit{}, map[string][]slowHit{}, map[string][]slowVerdict{}
	s.alone, s.over = map[string]int64{}, map[string]int64{}
	s.report = whatif.Report{Event: "test", Lines: len(lines), Missing: []whatif.Missing{}}
	s.report.From = time.Unix(lines[0].second, 0).UTC()
	s.report.To = time.Unix(lines[len(lines)-1].second, 0).UTC()
	for _, line := range lines {
		s.line(line)
	}
	s.report.All = s.score("", top)
	for _, rule := range s.rules {
		for _, limit := range everyLimit(rule) {
			if slices.ContainsFunc(s.report.Limits, func(l whatif.Limit) bool { return l.Name == limit.Name }) {
				continue
			}
			s.report.Limits = append(s.report.Limits, whatif.Limit{
				Name: limit.Name, Per: append([]string{}, rule.Per...), Rate: slowRate(limit), Shadow: rule.Shadow,
				Score: s.score(limit.Name, top), Alone: s.alone[limit.Name], Over: s.over[limit.Name],
			})
		}
	}
	s.timeline()
	return &s.report
}

func slowRate(l events.Limit) string {
	rate := events.FormatRate(l)
	return map[string]string{
		"token-bucket": fmt.Sprint(rate, ", burst ", l.Burst), "leaky-bucket": fmt.Sprint(rate, ", queue ", l.Burst-1),
		"concurrency": fmt.Sprint(l.N, " leases of ", events.FormatDuration(l.Window)), "sliding-window": rate, "": rate, "fixed-window": rate, "sliding-log": rate,
	}[l.Algorithm]
}

// lacks returns the tokens that a bucket lacks at the second, of whole ones, by going through all that it gave.
func (s *slow) lacks(feature string, limit events.Limit, second int64) int64 {
	window, last, parts := int64(limit.Window.Seconds()), int64(0), int64(0) // a token has as many parts as the window seconds
	for _, hit := range append(slices.Clone(s.counted[feature]), slowHit{second, 0}) {
		for ; parts > 0 && last < hit.second; last++ {
			parts = max(0, parts-limit.N)
		}
		last = hit.second
		parts += hit.cost * window
	}
	for parts%window != 0 {
		parts++
	}
	return parts / window
}

// everyLimit returns the limits of the rule, then those of its overrides by value.
func everyLimit(r events.Rule) []events.Limit {
	all := slices.Clone(r.Limits)
	for _, value := range slices.Sorted(maps.Keys(r.Overrides)) {
		all = append(all, r.Overrides[value]...)
	}
	return all
}

// value returns the feature of that kind as rules with such a prefix count it.
func (s *slow) value(line slowLine, kind string, prefix int) string {
	value := line.fields[s.kinds[kind]]
	if value == "-" {
		value = ""
	}
	if kind != "ip" || value == "" {
		return value
	}
	address := netip.MustParseAddr(value).Unmap()
	if address.Is4() {
		return address.String()
	}
	if prefix == 0 {
		prefix = 64
	}
	network, err := address.Prefix(prefix)
	if err != nil {
		panic(err)
	}
	if prefix == 128 {
		return address.String()
	}
	return network.String()
}

// applies returns whether the rule applies to the line, and the feature that it counts.
func (s *slow) applies(rule events.Rule, line slowLine) (feature string, applies bool) {
	var parts []string
	for _, kind := range rule.Per {
		value := s.value(line, kind, rule.IPv6Prefix)
		if value == "" {
			return "", false
		}
		parts = append(parts, kind+":"+value)
	}
	return strings.Join(parts, "+"), true
}

// on returns whether the line is on such a list of the rule.
func (s *slow) on(list events.List, rule events.Rule, line slowLine) bool {
	for _, entry := range list.Strings() {
		for _, kind := range rule.Per {
			raw := line.fields[s.kinds[kind]]
			if kind != "ip" && raw == entry {
				return true
			}
			if kind == "ip" {
				network, err := netip.ParsePrefix(entry)
				if err != nil {
					network = netip.PrefixFrom(netip.MustParseAddr(entry), netip.MustParseAddr(entry).BitLen())
				}
				if network.Contains(netip.MustParseAddr(raw).Unmap()) {
					return true
				}
			}
		}
	}
	return false
}

// unitBegins returns when the unit of the calendar began that is as long as the window. An override may have no
// unit in its name.
func unitBegins(now time.Time, window time.Duration) int64 {
	year, month, day := now.Date()
	hour := 0
	switch window {
	case time.Hour:
		hour = now.Hour()
	case 7 * 24 * time.Hour:
		for time.Date(year, month, day, 12, 0, 0, 0, now.Location()).Weekday() != time.Monday {
			day--
		}
	case 30 * 24 * time.Hour:
		day = 1
	}
	return time.Date(year, month, day, hour, 0, 0, 0, now.Location()).Unix()
}

// holds returns what is counted of the feature in the limit's window that ends with the second.
func (s *slow) holds(rule events.Rule, feature string, limit events.Limit, second int64) int64 {
	first := second - int64(limit.Window.Seconds()) + 1
	switch {
	case limit.Burst > 0:
		return s.lacks(feature, limit, second)
	case limit.Algorithm == "concurrency":
		live := int64(0)
		for _, hit := range s.leased[feature] {
			if hit.second >= first {
				live++
			}
		}
		return live
	case limit.Calendar != nil:
		first = unitBegins(time.Unix(second, 0).In(limit.Calendar), limit.Window)
	case strings.HasPrefix(limit.Algorithm, "fixed-"):
		first = second / int64(limit.Window.Seconds()) * int64(limit.Window.Seconds())
	}
	first -= first % int64(rule.Precision.Length().Seconds())
	sum := int64(0)
	for _, hit := range s.counted[feature] {
		if hit.second >= first && hit.second <= second {
			sum += hit.cost
		}
	}
	return sum
}

func (s *slow) line(line slowLine) {
	for kind, field := range s.kinds {
		if !slices.ContainsFunc(s.rules, func(r events.Rule) bool { return slices.Contains(r.Per, kind) }) {
			continue
		}
		if value := line.fields[field]; value == "" || value == "-" {
			s.missing(kind)
		}
	}
	cost := int64(1)
	if s.costs != "" && line.fields[s.costs] != "-" {
		var err error
		cost, err = strconv.ParseInt(line.fields[s.costs], 10, 64)
		if err != nil || cost < 1 || cost > 1_000_000 {
			s.report.WithoutCost++
			return
		}
	}

	// The features, and the rules.
	type applied struct {
		events.Rule
		feature string
		limits  []events.Limit
	}
	var rules []applied
	for _, rule := range s.rules {
		feature, does := s.applies(rule, line)
		if !does {
			continue
		}
		limits := rule.Limits
		for value, instead := range rule.Overrides {
			if feature == rule.Per[0]+":"+value {
				limits = instead
			}
		}
		rules = append(rules, applied{rule, feature, limits})
	}
	if len(rules) == 0 {
		s.report.Unlimited++
		return
	}
	var parts []string
	for _, a := range rules {
		for _, kind := range a.Per {
			if part := kind + ":" + s.value(line, kind, a.IPv6Prefix); !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
	}
	sort.Strings(parts)
	who := strings.Join(parts, "+")

	say := func(limit events.Limit, feature string, yes bool) {
		s.verdicts[limit.Name] = append(s.verdicts[limit.Name], slowVerdict{feature, line.second, yes})
	}

	// A deny list decides by itself.
	onDenyList := false
	var denying []string
	for _, a := range rules {
		if s.on(a.Deny, a.Rule, line) && !a.Shadow {
			onDenyList = true
			for _, limit := range a.limits {
				say(limit, a.feature, false)
				denying = append(denying, limit.Name)
			}
		}
	}
	if onDenyList {
		s.verdicts[""] = append(s.verdicts[""], slowVerdict{who, line.second, false})
		if len(denying) == 1 {
			s.alone[denying[0]]++
		}
		return
	}

	// Else every limit is asked.
	whole := true
	for _, a := range rules {
		for _, limit := range a.limits {
			if len(a.Per) == 0 && s.holds(a.Rule, a.feature, limit, line.second)+cost > limit.N+limit.N*a.Throttle.Percent/100 {
				whole = false
			}
		}
	}
	admitted, enforced := true, 0
	var noes, over []string
	for _, a := range rules {
		for _, limit := range a.limits {
			takes, most := cost, limit.N
			if limit.Algorithm == "concurrency" {
				takes = 1
			}
			if limit.Burst > 0 {
				most = limit.Burst
			}
			sum := s.holds(a.Rule, a.feature, limit, line.second) + takes
			yes := sum <= most+most*a.Throttle.Percent/100 || a.Throttle.Kind == events.Elastic && whole || s.on(a.Allow, a.Rule, line)
			if s.on(a.Deny, a.Rule, line) {
				yes = false
			}
			say(limit, a.feature, yes)
			if !yes {
				noes = append(noes, limit.Name)
				if !a.Shadow {
					admitted = false
					enforced++
				}
			} else if sum > most {
				over = append(over, limit.Name)
			}
		}
	}
	for _, name := range noes {
		others := enforced
		if !s.shadows(name) {
			others--
		}
		if others == 0 {
			s.alone[name]++
		}
	}
	if admitted {
		for _, name := range over {
			s.over[name]++
		}
	}
	s.verdicts[""] = append(s.verdicts[""], slowVerdict{who, line.second, admitted})
	leasing := map[string]bool{}
	var done []string
	for _, a := range rules {
		if a.limits[0].Algorithm == "concurrency" {
			leasing[a.feature] = admitted
			continue
		}
		if (admitted || a.Count == events.CountAll) && !slices.Contains(done, a.feature) {
			s.counted[a.feature] = append(s.counted[a.feature], slowHit{line.second, cost})
			done = append(done, a.feature)
		}
	}
	for feature, taken := range leasing {
		if !taken {
			continue
		}
		s.leased[feature] = append(s.leased[feature], slowHit{line.second, 1})
	}
}

func (s *slow) shadows(name string) bool {
	for _, rule := range s.rules {
		for _, limit := range everyLimit(rule) {
			if limit.Name == name {
				return rule.Shadow
			}
		}
	}
	panic("no such limit")
}

func (s *slow) missing(kind string) {
	for i := range s.report.Missing {
		if s.report.Missing[i].Kind == kind {
			s.report.Missing[i].Lines++
			return
		}
	}
	s.report.Missing = append(s.report.Missing, whatif.Missing{Kind: kind, Lines: 1})
	sort.Slice(s.report.Missing, func(i, j int) bool { return s.report.Missing[i].Kind < s.report.Missing[j].Kind })
}

// score goes through what a limit has said, once for each feature.
func (s *slow) score(limit string, top int) whatif.Score {
	score := whatif.Score{MostDenied: []whatif.Feature{}}
	by := map[string][]slowVerdict{}
	for _, verdict := range s.verdicts[limit] {
		by[verdict.feature] = append(by[verdict.feature], verdict)
	}
	var features []string
	for feature := range by {
		features = append(features, feature)
	}
	sort.Strings(features)
	var denied []whatif.Feature
	for _, name := range features {
		score.Features++
		feature := whatif.Feature{Feature: name}
		for _, verdict := range by[name] {
			at := time.Unix(verdict.second, 0).UTC()
			score.Hits++
			feature.Hits++
			if verdict.yes {
				score.Admitted++
				continue
			}
			score.Denied++
			if feature.Denied == 0 {
				feature.First = at
			}
			feature.Denied++
			feature.Last = at
		}
		if feature.Denied > 0 {
			score.EverDenied++
			denied = append(denied, feature)
		}
	}
	if score.Features > 0 {
		score.EverDeniedShare = float64(score.EverDenied) / float64(score.Features)
	}
	// The features are in the order of their names already.
	sort.SliceStable(denied, func(i, j int) bool { return denied[i].Hits > denied[j].Hits })
	sort.SliceStable(denied, func(i, j int) bool { return denied[i].Denied > denied[j].Denied })
	for i := 0; i < top && i < len(denied); i++ {
		score.MostDenied = append(score.MostDenied, denied[i])
	}
	return score
}

// timeline counts verdicts in steps, each of which is looked for.
func (s *slow) timeline() {
	from, to := s.report.From.Unix(), s.report.To.Unix()
	for _, step := range []int64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800, 1209600} {
		begin := from - from%step
		var ends []int64
		for end := begin + step; end-step <= to; end += step {
			ends = append(ends, end)
		}
		if len(ends) > 200 {
			continue
		}
		count := func(yes bool) []int64 {
			counts := make([]int64, len(ends))
			for _, verdict := range s.verdicts[""] {
				for i, end := range ends {
					if verdict.yes == yes && verdict.second < end && verdict.second >= end-step {
						counts[i]++
					}
				}
			}
			return counts
		}
		s.report.Timeline = whatif.Timeline{From: time.Unix(begin, 0).UTC(), Step: step, Admitted: count(true), Denied: count(false)}
		return
	}
}
