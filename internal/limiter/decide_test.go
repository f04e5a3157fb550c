package limiter

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
)

// The verdict on a hit follows from its limits alone.
func TestCombine(t *testing.T) {
	var (
		perUser  = &events.Rule{Per: []string{"user"}}
		ofAll    = &events.Rule{}
		shadow   = &events.Rule{Per: []string{"user"}, Shadow: true}
		elastic  = &events.Rule{Per: []string{"user"}, Throttle: events.Throttle{Kind: events.Elastic}}
		allowing = &events.Rule{Per: []string{"user"}, OnError: events.OnErrorAllow}
		refusing = &events.Rule{Per: []string{"user"}, OnError: events.OnErrorDeny}
		shadowed = &events.Rule{Per: []string{"user"}, OnError: events.OnErrorDeny, Shadow: true}
	)
	on := func(rule *events.Rule, o outcome) answer {
		return answer{Applied: &events.Applied{Rule: rule}, outcome: o, known: true}
	}
	listed := func(rule *events.Rule, o outcome, listing events.Listing) answer {
		u := on(rule, o)
		u.Listing = listing
		return u
	}
	without := func(rule *events.Rule, o outcome) answer {
		u := on(rule, o)
		u.known = false
		return u
	}
	for name, test := range map[string]struct {
		limits []answer
		want   verdict
		allows []bool
	}{
		"no limit":                      {nil, admitted, nil},
		"room":                          {[]answer{on(perUser, fits)}, admitted, []bool{true}},
		"full":                          {[]answer{on(perUser, full)}, denied, []bool{false}},
		"one of two full":               {[]answer{on(perUser, fits), on(ofAll, full)}, denied, []bool{true, false}},
		"a shadow only reports":         {[]answer{on(shadow, full), on(ofAll, fits)}, admitted, []bool{false, true}},
		"allow list":                    {[]answer{listed(perUser, full, events.Allowed)}, admitted, []bool{true}},
		"allow list and another limit":  {[]answer{listed(perUser, full, events.Allowed), on(ofAll, full)}, denied, []bool{true, false}},
		"deny list of a shadow":         {[]answer{listed(shadow, fits, events.Denied)}, admitted, []bool{false}},
		"deny list":                     {[]answer{listed(perUser, fits, events.Denied)}, denied, []bool{false}},
		"elastic, the whole has room":   {[]answer{on(ofAll, fits), on(elastic, full)}, admitted, []bool{true, true}},
		"elastic, the whole has none":   {[]answer{on(ofAll, full), on(elastic, full)}, denied, []bool{false, false}},
		"elastic, the whole has, after": {[]answer{on(elastic, full), on(ofAll, fits)}, admitted, []bool{true, true}},
		"elastic, the whole is unknown": {[]answer{on(elastic, full), without(ofAll, unknown)}, admitted, []bool{true, true}},
		"elastic without a whole":       {[]answer{on(elastic, full)}, admitted, []bool{true}},
		"no store, allowed":             {[]answer{without(allowing, unknown)}, admitted, []bool{true}},
		"no store, refused":             {[]answer{without(refusing, unknown)}, unavailable, []bool{false}},
		"no store, a shadow":            {[]answer{without(shadowed, unknown)}, admitted, []bool{false}},
		"no store, on an allow list": {
			[]answer{func() answer { u := without(refusing, unknown); u.Listing = events.Allowed; return u }()}, admitted, []bool{true},
		},
		"no store, and it never fits":       {[]answer{without(allowing, full)}, denied, []bool{false}},
		"a denial outranks a refusal":       {[]answer{without(refusing, unknown), on(perUser, full)}, denied, []bool{false, false}},
		"a refusal outranks an admission":   {[]answer{on(perUser, fits), without(refusing, unknown)}, unavailable, []bool{true, false}},
		"a denial outranks OnErrorAllow":    {[]answer{without(allowing, unknown), on(perUser, full)}, denied, []bool{true, false}},
		"no store for a shadow, never fits": {[]answer{without(shadowed, full)}, admitted, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, combine(test.limits))
			for i, allows := range test.allows {
				assert.Equal(t, allows, test.limits[i].allowed, i)
			}
		})
	}
}

// A hit has left a sliding window when that is over, and one of windows that follow one another at their turn.
func TestWhenAHitHasLeft(t *testing.T) {
	for name, test := range map[string]struct{ limit, want string }{
		"a window":             {"rate: 2/m", "1m0s"},
		"a sliding log":        {"rate: 2/m, algorithm: sliding-log", "1m0s"},
		"a fixed window":       {"rate: 2/m, algorithm: fixed-window", "40s"},
		"an hour in Kathmandu": {"rate: 2/h, calendar: Asia/Kathmandu", "1m40s"},
		"a token bucket":       {"rate: 2/m, burst: 3", "1m30s"},
	} {
		limit := testkit.Event(t, "[{per: ip, "+test.limit+"}]").Rules[0].Limits[0]
		b := &batch{at: Moment{Second: 1_700_000_000}}
		a := &answer{Applied: &events.Applied{}, limit: &Limit{Limit: limit, Ceiling: limit.Most()}}
		assert.Equal(t, test.want, b.leaves(a).String(), name)
	}
}
