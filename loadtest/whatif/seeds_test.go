package whatif_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/counterd/counterd/internal/testkit"
)

// someLog is a small log in which much happens at once: by few, in few seconds.
func someLog(random *rand.Rand) string {
	hosts := []string{"192.0.2.1", "192.0.2.2", "198.51.100.7", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"}
	users := []string{"-", "frank", "anna"}
	begin := time.Date(2024, 2, 28, 23, 57, random.IntN(60), 0, time.UTC) // a month turns within days
	if random.IntN(2) == 0 {
		begin = time.Date(2024, 3, 3, 18, 10, random.IntN(60), 0, time.UTC) // a week, in Kathmandu within minutes
	}
	span := []int{3, 90, 4000, 200_000}[random.IntN(4)]
	var text strings.Builder
	for i := range 1 + random.IntN(120) {
		at := begin.Add(time.Duration(random.IntN(span)) * time.Second).In(time.FixedZone("", (random.IntN(5)-2)*1800))
		fmt.Fprintf(&text, "%s - %s [%s] \"GET /%d HTTP/1.1\" 200 %d\n", hosts[random.IntN(len(hosts))], users[random.IntN(len(users))],
			at.Format("02/Jan/2006:15:04:05 -0700"), random.IntN(3), max(random.IntN(6), 1-i)) // the first one has a cost
	}
	return text.String()
}

// someRules are rules for such a log.
func someRules(random *rand.Rand) ruled {
	r := ruled{mapping: "ip=host,user=user,path=path"}
	if random.IntN(2) == 0 {
		r.cost = "bytes"
	}
	pers := []string{"ip", "ip, user", "user", "path", ""}
	random.Shuffle(len(pers), func(i, j int) { pers[i], pers[j] = pers[j], pers[i] })
	pers = pers[:1+random.IntN(3)]
	some := func(one int, text string) string { // one time of so many
		if random.IntN(one) == 0 {
			return text
		}
		return ""
	}
	var rules []string
	prefix := []string{"", ", ipv6_prefix: 48", ", ipv6_prefix: 64", ", ipv6_prefix: 128"}[random.IntN(4)]
	for _, per := range pers {
		// What shapes a counter is the same in all its rules.
		shape := some(4, ", count: all") + some(5, ", precision: minute")
		for range 1 + random.IntN(2) {
			windows, long, counts, override := []string{"1s", "1m", "5m", "1h", "24h", "90s"}, "48h", "", "2/3m"
			algorithm, inLog := "sliding-window", "sliding-log"
			switch random.IntN(5) {
			case 0:
				windows, long, override = []string{"h", "d", "month"}, "week", "2/d"
				counts = ", calendar: " + []string{"UTC", "Asia/Kathmandu", "America/New_York", "Europe/Berlin"}[random.IntN(4)]
				fallthrough
			case 1:
				windows = slices.DeleteFunc(windows, func(window string) bool { return window == "90s" })
				algorithm, inLog = "fixed-window", "fixed-window"
			}
			random.Shuffle(len(windows), func(i, j int) { windows[i], windows[j] = windows[j], windows[i] })
			var rates []string
			if !strings.Contains(shape, "minute") && random.IntN(3) == 0 {
				algorithm, override, rates = inLog, "2/"+long, []string{"9/" + long} // so that a log of a month has room
			} else {
				windows[len(windows)-1] = long
			}
			counts += ", algorithm: " + algorithm
			for _, window := range windows[:2+random.IntN(2)] {
				if window != "1s" || !strings.Contains(shape, "minute") {
					rates = append(rates, fmt.Sprintf("%d/%s", random.IntN(12), window))
				}
			}
			rule := fmt.Sprintf("{per: [%s], name: rule%d, rate: [%s]", per, len(rules), strings.Join(rates, ", ")) + counts + shape + some(4, ", shadow: true")
			if strings.Contains(per, "ip") {
				rule += prefix + some(3, `, allow: [192.0.2.2, "2001:db8::2"]`) + some(3, `, deny: [192.0.2.0/31, "2001:db8::1"]`)
			}
			if per == "user" {
				rule += some(2, ", overrides: {anna: "+override+"}")
			}
			rules = append(rules, rule+some(4, fmt.Sprintf(", throttle: soft %d%%", 1+random.IntN(150)))+"}")
		}
	}
	// Rules of the same kinds might have to agree in what shapes the counter.
	if !slices.Contains(pers, "") && !slices.Contains(pers, "path") {
		rules = append(rules, some(2, "{per: path, rate: 2/m, name: elastic, throttle: elastic}, {per: [], rate: 9/h, name: everybody}"))
	}
	r.limits = "[" + strings.Join(rules, ", ") + "]"
	return r
}

// On small logs, with any rules, the two implementations agree as well.
func TestOnLogsByChance(t *testing.T) {
	for seed := range testkit.Seeds(600) {
		random := rand.New(rand.NewPCG(seed, 7))
		rules, text := someRules(random), someLog(random)
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { rules.agree(t, text) }) {
			t.Fatalf("%s\n%s", rules.limits, text)
		}
	}
}
