package limiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/testkit"
)

// The verdict on a hit follows from its limits alone.
func TestFold(t *testing.T) {
	var (
		perUser  = &events.Rule{Per: []string{"user"}}
		ofAll    = &events.Rule{}
		shadow   = &events.Rule{Per: []string{"user"}, Shadow: true}
		elastic  = &events.Rule{Per: []string{"user"}, Throttle: events.Throttle{Kind: events.Elastic}}
		allowing = &events.Rule{Per: []string{"user"}, OnError: events.OnErrorAllow}
		refusing = &events.Rule{Per: []string{"user"}, OnError: events.OnErrorDeny}
		shadowed = &events.Rule{Per: []string{"user"}, OnError: events.OnErrorDeny, Shadow: true}
	)
	on := func(rule *events.Rule, outcome engine.Outcome) limitEval {
		return limitEval{ruling: ruling{rule: rule, outcome: outcome}}
	}
	listed := func(rule *events.Rule, outcome engine.Outcome, listing events.Listing) limitEval {
		u := on(rule, outcome)
		u.listing = listing
		return u
	}
	without := func(rule *events.Rule, outcome engine.Outcome) limitEval {
		u := on(rule, outcome)
		u.source = ofNone
		return u
	}
	local := func(rule *events.Rule, outcome engine.Outcome) limitEval {
		u := on(rule, outcome)
		u.source = ofLocal
		return u
	}
	for name, test := range map[string]struct {
		limits []limitEval
		want   verdict
		allows []bool
	}{
		"no limit":                      {nil, admitted, nil},
		"room":                          {[]limitEval{on(perUser, engine.Fits)}, admitted, []bool{true}},
		"full":                          {[]limitEval{on(perUser, engine.Full)}, denied, []bool{false}},
		"full for now":                  {[]limitEval{on(perUser, engine.FullForNow)}, denied, []bool{false}},
		"one of two full":               {[]limitEval{on(perUser, engine.Fits), on(ofAll, engine.Full)}, denied, []bool{true, false}},
		"a shadow only reports":         {[]limitEval{on(shadow, engine.Full), on(ofAll, engine.Fits)}, admitted, []bool{false, true}},
		"allow list":                    {[]limitEval{listed(perUser, engine.Full, events.Allowed)}, admitted, []bool{true}},
		"allow list and another limit":  {[]limitEval{listed(perUser, engine.Full, events.Allowed), on(ofAll, engine.Full)}, denied, []bool{true, false}},
		"deny list of a shadow":         {[]limitEval{listed(shadow, engine.Fits, events.Denied)}, admitted, []bool{false}},
		"deny list":                     {[]limitEval{listed(perUser, engine.Fits, events.Denied)}, denied, []bool{false}},
		"elastic, the whole has room":   {[]limitEval{on(ofAll, engine.Fits), on(elastic, engine.Full)}, admitted, []bool{true, true}},
		"elastic, the whole has none":   {[]limitEval{on(ofAll, engine.Full), on(elastic, engine.Full)}, denied, []bool{false, false}},
		"elastic, the whole has, after": {[]limitEval{on(elastic, engine.Full), on(ofAll, engine.Fits)}, admitted, []bool{true, true}},
		"elastic, the whole is unknown": {[]limitEval{on(elastic, engine.Full), without(ofAll, engine.Unknown)}, admitted, []bool{true, true}},
		"elastic without a whole":       {[]limitEval{on(elastic, engine.Full)}, admitted, []bool{true}},
		"no store, allowed":             {[]limitEval{without(allowing, engine.Unknown)}, admitted, []bool{true}},
		"no store, refused":             {[]limitEval{without(refusing, engine.Unknown)}, unavailable, []bool{false}},
		"no store, a shadow":            {[]limitEval{without(shadowed, engine.Unknown)}, admitted, []bool{false}},
		"no store, on an allow list": {
			[]limitEval{func() limitEval { u := without(refusing, engine.Unknown); u.listing = events.Allowed; return u }()}, admitted, []bool{true},
		},
		"no store, and it never fits":       {[]limitEval{without(allowing, engine.Full)}, denied, []bool{false}},
		"a denial outranks a refusal":       {[]limitEval{without(refusing, engine.Unknown), on(perUser, engine.Full)}, denied, []bool{false, false}},
		"a refusal outranks an admission":   {[]limitEval{on(perUser, engine.Fits), without(refusing, engine.Unknown)}, unavailable, []bool{true, false}},
		"a denial outranks OnErrorAllow":    {[]limitEval{without(allowing, engine.Unknown), on(perUser, engine.Full)}, denied, []bool{true, false}},
		"local counters admit":              {[]limitEval{local(refusing, engine.Fits)}, admitted, []bool{true}},
		"local counters deny":               {[]limitEval{local(allowing, engine.Full)}, denied, []bool{false}},
		"no store for a shadow, never fits": {[]limitEval{without(shadowed, engine.Full)}, admitted, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, fold(test.limits))
			for i, allows := range test.allows {
				assert.Equal(t, allows, test.limits[i].allows, i)
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
		"a fixed log":          {"rate: 2/m, algorithm: fixed-log", "40s"},
		"an hour in Kathmandu": {"rate: 2/h, calendar: Asia/Kathmandu", "1m40s"},
		"a token bucket":       {"rate: 2/m, burst: 3", "1m30s"},
	} {
		limit := testkit.Event(t, "[{per: ip, "+test.limit+"}]").Rules[0].Limits[0]
		u := limitEval{counter: &counterState{moment: &engine.Moment{Stamp: 1_700_000_000}}, window: &limitWindow{limit: limit, ceiling: limit.Most()}}
		assert.Equal(t, test.want, time.Duration(u.leaves()).String(), name)
	}
}
