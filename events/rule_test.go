package events

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestApply(t *testing.T) {
	event := &Event{Name: "e", Rules: []Rule{{Per: []string{"ip"}}, {Per: []string{"ip", "user"}}, {Per: []string{"email"}}, {Per: []string{"ip"}, Shadow: true}}}
	for _, c := range []struct {
		features Features
		want     []int
	}{
		{Features{"ip": "192.0.2.1"}, []int{0, 3}},
		{Features{"ip": "192.0.2.1", "user": "42"}, []int{0, 1, 3}},
		{Features{"email": "a@example.com", "other": "x"}, []int{2}},
	} {
		applied, err := event.Apply([]Applied{{ID: "before"}}, c.features)
		require.NoError(t, err)
		require.Len(t, applied, 1+len(c.want))
		assert.Equal(t, "before", applied[0].ID)
		for n, i := range c.want {
			a := applied[1+n]
			assert.Same(t, &event.Rules[i], a.Rule)
			assert.Equal(t, a.Rule.Per, a.Counter.Feature.Kinds())
			assert.Equal(t, a.Counter.ID(), a.ID)
		}
	}
	for _, features := range []Features{nil, {"user": "hidden"}} {
		_, err := event.Apply(nil, features)
		require.ErrorIs(t, err, ErrInvalid)
		assert.EqualError(t, err, "no limit of e is per the features given: wanted are ip, or ip and user, or email")
	}
	_, err := event.Apply(nil, Features{"ip": "hidden"})
	assert.EqualError(t, err, `feature of kind "ip": the value is not an IP address`)

	_, err = (&Event{Name: "e"}).Apply(nil, Features{"ip": "192.0.2.1"})
	require.ErrorIs(t, err, ErrInvalid)
	assert.EqualError(t, err, "e has no limits: it is counted, not decided")

	_, err = (*Event)(nil).Apply(nil, Features{"ip": "hidden"})
	assert.Equal(t, ErrUnknownEvent, err)

	whole := &Event{Name: "e", Rules: []Rule{{}}}
	for _, features := range []Features{nil, {"ip": "192.0.2.1"}} {
		applied, err := whole.Apply(nil, features)
		require.NoError(t, err)
		require.Len(t, applied, 1, "the whole event has no kinds to wait for")
		assert.Equal(t, Feature{}, applied[0].Counter.Feature)
	}
}

func TestKinds(t *testing.T) {
	assert.Empty(t, (&Event{Rules: []Rule{{}}}).Kinds())
	event := &Event{Rules: []Rule{{Per: []string{"ip", "user"}}, {}, {Per: []string{"email"}}, {Per: []string{"ip"}}}}
	assert.Equal(t, []string{"email", "ip", "user"}, event.Kinds())
}

func TestCounters(t *testing.T) {
	event := &Event{Name: "e", Rules: []Rule{
		{Limits: []Limit{{N: 1, Window: time.Hour}}},
		{Per: []string{"ip"}, Precision: Minute, IPv6Prefix: 48},
		{Per: []string{"ip", "user"}, Precision: Hour},
		{Per: []string{"ip", "user"}, Precision: Hour},
		{Per: []string{"email", "ip"}},
	}}
	counters, err := event.Counters(Features{"user": "42", "ip": "2001:db8:1:2::3"})
	require.NoError(t, err)
	var got []string
	for _, counter := range counters {
		got = append(got, counter.Feature.String()+" "+counter.Precision.String())
		assert.Equal(t, time.Hour, counter.Retention)
	}
	assert.Equal(t, []string{
		"ip:2001:db8:1::/48 minute", "user:42 second", " second", "ip:2001:db8:1:2::/64+user:42 hour",
	}, got)

	_, err = (&Event{Name: "e"}).Counters(nil)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = (&Event{Name: "e"}).Counter(nil)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = event.Counter(nil)
	require.NoError(t, err, "a rule counts the whole event")
}

func TestRulesByName(t *testing.T) {
	rules := &Rules{Events: map[string]*Event{"b": {Name: "b"}, "a": {Name: "a"}, "c": {Name: "c"}}}
	event, err := rules.Event("b")
	require.NoError(t, err)
	assert.Equal(t, "b", event.Name)
	_, err = rules.Event("d")
	require.ErrorIs(t, err, ErrUnknownEvent)
	var names []string
	for _, event := range rules.All() {
		names = append(names, event.Name)
	}
	assert.Equal(t, []string{"a", "b", "c"}, names)
}

func TestRemembered(t *testing.T) {
	limits := []Rule{{Limits: []Limit{{Window: time.Minute}, {Window: time.Hour}}}, {Limits: []Limit{{Window: time.Second}}}}
	assert.Equal(t, DefaultRetention, (&Event{}).Remembered())
	assert.Equal(t, time.Hour, (&Event{Rules: limits}).Remembered())
	assert.Equal(t, time.Hour, (&Event{Rules: limits, Retention: time.Minute}).Remembered())
	assert.Equal(t, 2*time.Hour, (&Event{Rules: limits, Retention: 2 * time.Hour}).Remembered())
}

func TestNames(t *testing.T) {
	assert.Equal(t, []string{"admitted", "all"}, []string{CountAdmitted.String(), CountAll.String()})
	assert.Equal(t, []string{"allow", "deny", "local"}, []string{OnErrorAllow.String(), OnErrorDeny.String(), OnErrorLocal.String()})
	assert.Equal(t, []string{"ratelimit", "x-ratelimit", "none"}, []string{HeaderRateLimit.String(), HeaderXRateLimit.String(), HeaderNone.String()})
	assert.Equal(t, []string{"second", "minute", "hour"}, []string{Second.String(), Minute.String(), Hour.String()})
}

func TestCeilingIsFloorOfNAndItsPercentage(t *testing.T) {
	for _, c := range []struct {
		n, percent, want int64
	}{
		{0, 10, 0}, {1, 10, 1}, {9, 10, 9}, {10, 10, 11}, {19, 10, 20}, {100, 10, 110}, {3, 33, 3}, {4, 33, 5},
		// In floating point the product is a hair below the whole number.
		{100, 29, 129}, {50, 58, 79}, {MaxN, 1000, 11 * MaxN}, {MaxN - 1, 1, MaxN - 1 + MaxN/100 - 1},
	} {
		assert.Equal(t, c.want, Throttle{Soft, c.percent}.Ceiling(c.n), "%d and %d%%", c.n, c.percent)
	}
	for range 10_000 {
		n, percent := rand.Int64N(MaxN+1), 1+rand.Int64N(MaxSoftPercent)
		more := new(big.Int).Mul(big.NewInt(n), big.NewInt(percent))
		more.Div(more, big.NewInt(100))
		require.Equal(t, n+more.Int64(), Throttle{Soft, percent}.Ceiling(n), "%d and %d%%", n, percent)
	}
	assert.Equal(t, int64(100), Throttle{}.Ceiling(100))
	assert.Equal(t, int64(100), Throttle{Kind: Elastic}.Ceiling(100))
}
