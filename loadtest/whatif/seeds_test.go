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
	begin := time.Date(2024, 2, 28, 23, 57, random.IntN(60), 0, time.UTC)
	span := []int{3, 90, 4000, 200_000}[random.IntN(4)]
	var text strings.Builder
	for range 1 + random.IntN(120) {
		at := begin.Add(time.Duration(random.IntN(span)) * time.Second).In(time.FixedZone("", (random.IntN(5)-2)*1800))
		fmt.Fprintf(&text, "%s - %s [%s] \"GET /%d HTTP/1.1\" 200 %d\n", hosts[random.IntN(len(hosts))], users[random.IntN(len(users))],
			at.Format("02/Jan/2006:15:04:05 -0700"), random.IntN(3), random.IntN(6))
	}
	return text.String()
}

// someRules are rules for such a log.
func someRules(random *rand.Rand) ruled {
	pers := [][]string{{"ip"}, {"ip", "user"}, {"user"}, {"path"}, {}}
	random.Shuffle(len(pers), func(i, j int) { pers[i], pers[j] = pers[j], pers[i] })
	r := ruled{mapping: "ip=host,user=user,path=path"}
	if random.IntN(2) == 0 {
		r.cost = "bytes"
	}
	var texts []string
	prefix := []int{0, 48, 64, 128}[random.IntN(4)]
	for _, per := range pers[:1+random.IntN(3)] {
		all := random.IntN(4) == 0
		precision := int64(1)
		if random.IntN(5) == 0 {
			precision = 60
		}
		for range 1 + random.IntN(2) {
			rule := slowRule{per: per, all: all, precision: precision, shadow: random.IntN(4) == 0}
			name := fmt.Sprintf("rule%d", len(r.rules))
			text := fmt.Sprintf("{per: [%s], name: %s, count: %s, shadow: %t", strings.Join(per, ", "), name, map[bool]string{true: "all", false: "admitted"}[all], rule.shadow)
			if precision == 60 {
				text += ", precision: minute"
			}
			windows := []string{"1s", "1m", "5m", "1h", "24h", "48h", "90s"}
			random.Shuffle(len(windows), func(i, j int) { windows[i], windows[j] = windows[j], windows[i] })
			windows = slices.DeleteFunc(windows[:2+random.IntN(3)], func(w string) bool { return precision == 60 && w == "1s" })
			var rates []string
			for _, window := range windows {
				length, err := time.ParseDuration(window)
				if err != nil {
					panic(err)
				}
				n := int64(random.IntN(12))
				limit := slowLimit{fmt.Sprintf("%s-%d-per-%s", name, n, window), "", n, int64(length / time.Second)}
				if len(windows) == 1 {
					limit.name = name
				}
				limit.rate = fmt.Sprintf("%d/%s", n, map[string]string{"1s": "s", "1m": "m", "1h": "h", "24h": "d", "5m": "5m", "48h": "48h", "90s": "90s"}[window])
				rule.limits = append(rule.limits, limit)
				rates = append(rates, fmt.Sprintf("%d/%s", n, window))
			}
			text += ", rate: [" + strings.Join(rates, ", ") + "]"
			if slices.Contains(per, "ip") {
				rule.prefix = prefix
				if prefix > 0 {
					text += fmt.Sprintf(", ipv6_prefix: %d", prefix)
				}
				if random.IntN(3) == 0 {
					rule.allow = []string{"192.0.2.2", "2001:db8::2"}
					text += `, allow: [192.0.2.2, "2001:db8::2"]`
				}
				if random.IntN(3) == 0 {
					rule.deny = []string{"192.0.2.0/31", "2001:db8::1"}
					text += `, deny: [192.0.2.0/31, "2001:db8::1"]`
				}
			}
			if slices.Equal(per, []string{"user"}) && random.IntN(2) == 0 {
				limit := slowLimit{name + "-2-per-3m", "2/3m", 2, 180}
				if len(windows) == 1 {
					limit.name = name
				}
				limit.name = name
				rule.overrides = map[string][]slowLimit{"anna": {limit}}
				text += ", overrides: {anna: 2/3m}"
			}
			if random.IntN(4) == 0 {
				rule.soft = 1 + random.Int64N(150)
				text += fmt.Sprintf(", throttle: soft %d%%", rule.soft)
			}
			r.rules = append(r.rules, rule)
			texts = append(texts, text+"}")
		}
	}
	if !slices.ContainsFunc(r.rules, func(rule slowRule) bool { return len(rule.per) == 0 }) && random.IntN(2) == 0 {
		r.rules = append(r.rules,
			slowRule{per: []string{"path"}, limits: []slowLimit{{"elastic", "2/m", 2, 60}}, elastic: true},
			slowRule{limits: []slowLimit{{"everybody", "9/h", 9, 3600}}})
		if shared := slices.IndexFunc(r.rules, func(rule slowRule) bool { return slices.Equal(rule.per, []string{"path"}) }); shared < len(r.rules)-2 {
			r.rules = r.rules[:len(r.rules)-2] // it might have to agree in what shapes the counter
		} else {
			texts = append(texts, "{per: path, rate: 2/m, name: elastic, throttle: elastic}", "{per: [], rate: 9/h, name: everybody}")
		}
	}
	r.limits = "[" + strings.Join(texts, ", ") + "]"
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
