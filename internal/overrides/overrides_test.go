package overrides_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/eventlog/footprint"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/seal"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/memcache"
)

const text = `
events:
  login:
    limits: [{per: ip, rate: 5/m}, {per: user, rate: 10/h, algorithm: sliding-log}]
`

func parse(t *testing.T, text string) *events.Rules {
	t.Helper()
	rules, err := rulesfile.Parse([]byte(text))
	require.NoError(t, err)
	return rules
}

// process is one of a fleet: it has the overrides, and rules.
type process struct {
	*overrides.Set
	rules atomic.Pointer[events.Rules]
}

func start(t *testing.T, s store.Store, change ...func(*overrides.Config)) *process {
	t.Helper()
	p := &process{}
	p.rules.Store(parse(t, text))
	config := overrides.Config{Store: s, Rules: p.rules.Load, OnError: func(err error) { t.Error("the overrides fail:", err) }}
	for _, one := range change {
		one(&config)
	}
	p.Set = overrides.Start(t.Context(), config)
	t.Cleanup(p.Close)
	return p
}

// quietly is for a process whose store fails.
func quietly(c *overrides.Config) { c.OnError = nil }

// of returns an override of an address of the event login.
func of(ip string, until time.Time, rates ...string) events.Override {
	o := events.Override{Event: "login", Until: until, By: "ops"}
	o.Kind, o.Value, o.Listing = "ip", ip, events.Allowed
	for _, text := range rates {
		rate, err := events.ParseRate(text)
		if err != nil {
			panic(err)
		}
		o.Listing, o.Rates = events.Unlisted, append(o.Rates, rate)
	}
	return o
}

func (p *process) put(t *testing.T, o events.Override) {
	t.Helper()
	_, err := p.Put(t.Context(), o)
	require.NoError(t, err)
}

// names returns the overrides in force as texts, and what the rules say: a difference is a fault.
func (p *process) names(t *testing.T) (names []string) {
	t.Helper()
	for _, o := range p.List() {
		names = append(names, o.Feature()+" "+o.String())
		applied, err := p.Rules().Events[o.Event].Apply(nil, events.Features{o.Kind: o.Value})
		require.NoError(t, err)
		if o.Listing != events.Unlisted {
			assert.Equal(t, o.Listing, applied[0].Listing, o.Feature())
			continue
		}
		limits := applied[0].Rule.LimitsOf(applied[0].Counter.Feature)
		assert.Equal(t, o.String(), events.FormatRate(limits[0]), o.Feature())
	}
	return names
}

// follow waits until a process has read the store since, and some more.
func follow() { time.Sleep(1500 * time.Millisecond) }

// embedded returns a store whose time is that of the bubble.
func embedded() store.Store { return memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: time.Now}) }

func TestProcessesShareOverrides(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := embedded()
		one, other := start(t, s), start(t, s)
		one.put(t, of("192.0.2.1", time.Now().Add(time.Hour)))
		assert.Equal(t, []string{"ip:192.0.2.1 allow"}, one.names(t), "the process itself does not wait")
		assert.Empty(t, other.names(t))
		follow()
		assert.Equal(t, []string{"ip:192.0.2.1 allow"}, other.names(t))

		other.put(t, of("192.0.2.1", time.Now().Add(time.Hour), "9/m"))
		other.put(t, of("192.0.2.2", time.Now().Add(time.Minute)))
		follow()
		assert.Equal(t, []string{"ip:192.0.2.1 9/m", "ip:192.0.2.2 allow"}, one.names(t))
		assert.Equal(t, one.List(), other.List())

		late := start(t, s)
		assert.Equal(t, one.List(), late.List(), "of a process that starts")

		_, removed, err := one.Remove(t.Context(), "login", "ip", "192.0.2.1")
		require.NoError(t, err)
		assert.True(t, removed)
		follow()
		for _, p := range []*process{one, other, late} {
			assert.Equal(t, []string{"ip:192.0.2.2 allow"}, p.names(t))
		}
		_, removed, err = other.Remove(t.Context(), "login", "ip", "192.0.2.1")
		require.NoError(t, err)
		assert.False(t, removed)

		time.Sleep(time.Minute)
		for _, p := range []*process{one, other, late} {
			assert.Empty(t, p.names(t), "its time is over")
			applied, err := p.Rules().Events["login"].Apply(nil, events.Features{"ip": "192.0.2.2"})
			require.NoError(t, err)
			assert.Equal(t, events.Unlisted, applied[0].Listing)
		}
	})
}

// In one process's own store overrides end without any reading.
func TestOverridesOfOneProcessAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		counted := &counting{Store: embedded()}
		p := start(t, counted, func(c *overrides.Config) { c.Alone = true })
		before := counted.calls.Load()
		p.put(t, of("192.0.2.1", time.Now().Add(time.Minute)))
		calls := counted.calls.Load()
		assert.Greater(t, calls, before)
		time.Sleep(59 * time.Second)
		assert.Len(t, p.names(t), 1)
		time.Sleep(2 * time.Second)
		assert.Empty(t, p.names(t))
		assert.LessOrEqual(t, counted.calls.Load(), calls+2, "the store is asked at the end alone")
	})
}

// counting counts the calls of a store.
type counting struct {
	store.Store
	calls atomic.Int64
	fails atomic.Bool
}

func (c *counting) Do(ctx context.Context, ops ...*store.Op) {
	c.calls.Add(1)
	if c.fails.Load() {
		for _, op := range ops {
			op.Err = errors.New("the store fails")
		}
		return
	}
	c.Store.Do(ctx, ops...)
}

// All that is set at the same time by several processes is in force on all of them.
func TestOverridesThatAreSetAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := embedded()
		var fleet []*process
		for range 4 {
			fleet = append(fleet, start(t, s))
		}
		var setting sync.WaitGroup
		var set atomic.Int64
		for i := range 40 {
			setting.Go(func() {
				_, err := fleet[i%4].Put(t.Context(), of(fmt.Sprintf("192.0.2.%d", i+1), time.Now().Add(time.Hour)))
				if assert.NoError(t, err) {
					set.Add(1)
				}
			})
		}
		setting.Wait()
		follow()
		for _, p := range fleet {
			assert.Len(t, p.names(t), int(set.Load()))
			assert.Equal(t, fleet[0].List(), p.List())
			assert.Equal(t, fleet[0].Rules().Events["login"].Rules[1].Revision, p.Rules().Events["login"].Rules[1].Revision)
		}
		assert.EqualValues(t, 40, set.Load())
	})
}

// The store is asked again until it answers, and the failure is said once.
func TestTheStoreFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &counting{Store: embedded()}
		other := start(t, s.Store)
		other.put(t, of("192.0.2.1", time.Now().Add(time.Hour)))
		s.fails.Store(true)
		var failures atomic.Int64
		p := start(t, s, func(c *overrides.Config) { c.OnError = func(error) { failures.Add(1) } })
		time.Sleep(10 * time.Second)
		assert.EqualValues(t, 1, failures.Load())
		_, err := p.Put(t.Context(), of("192.0.2.2", time.Now().Add(time.Hour)))
		require.ErrorIs(t, err, engine.ErrStore)
		_, _, err = p.Remove(t.Context(), "login", "ip", "192.0.2.1")
		require.ErrorIs(t, err, engine.ErrStore)
		assert.Empty(t, p.names(t))
		s.fails.Store(false)
		follow()
		assert.Len(t, p.names(t), 1)
		s.fails.Store(true)
		follow()
		assert.EqualValues(t, 2, failures.Load())
		assert.Len(t, p.names(t), 1, "what is known stays in force")
	})
}

// An override ends at its time whatever the store does.
func TestAnEndWithoutAStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &counting{Store: embedded()}
		p := start(t, s, quietly)
		p.put(t, of("192.0.2.1", time.Now().Add(10*time.Second)))
		s.fails.Store(true)
		time.Sleep(9*time.Second + 900*time.Millisecond)
		assert.Equal(t, events.Allowed, p.listing(t, "192.0.2.1"))
		time.Sleep(200 * time.Millisecond)
		assert.Equal(t, events.Unlisted, p.listing(t, "192.0.2.1"))
		assert.Empty(t, p.List())
		assert.True(t, p.Failing())
	})
}

// listing returns on which list the rules in force have an address.
func (p *process) listing(t *testing.T, ip string) events.Listing {
	t.Helper()
	applied, err := p.Rules().Events["login"].Apply(nil, events.Features{"ip": ip})
	require.NoError(t, err)
	return applied[0].Listing
}

// Each change, and each end, gives rules with logs a higher revision, on all processes the same, whatever their clocks
// say; and so does a reload.
func TestRevisionsRise(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := embedded()
		behind := func(c *overrides.Config) {
			c.Clock = func() time.Time { return time.Now().Add(-300 * time.Millisecond) }
		}
		one, other := start(t, s), start(t, s, behind)
		revision := func(p *process) uint64 { return p.Rules().Events["login"].Rules[1].Revision }
		last := revision(one)
		rises := func(p *process, what string) {
			t.Helper()
			require.Greater(t, revision(p), last, what)
			last = revision(p)
		}
		for i := range 20 {
			p := []*process{one, other}[i%2]
			p.put(t, of("192.0.2.1", time.Now().Add(time.Duration(20+i)*time.Second), fmt.Sprintf("%d/m", i+1)))
			rises(p, "a change")
			if i%3 == 0 {
				_, _, err := p.Remove(t.Context(), "login", "ip", "192.0.2.1")
				require.NoError(t, err)
				rises(p, "a removal")
			}
		}
		follow()
		assert.Equal(t, revision(one), revision(other))
		time.Sleep(time.Minute)
		rises(one, "an end")
		assert.Equal(t, revision(one), revision(other))
		reloaded := parse(t, text)
		reloaded.Modified(time.Now().Add(-time.Hour)) // of an image, before the last change
		one.rules.Store(reloaded)
		rises(one, "a reload")
		assert.Empty(t, one.List())
		follow()
		settled := revision(one)
		time.Sleep(time.Hour)
		assert.Equal(t, settled, revision(one), "nothing changes any more")
	})
}

// What was removed, or replaced by what ends earlier, does not come back with a process, or a server, that missed it.
func TestWhatIsOverStaysOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := embedded()
		cut := &counting{Store: s}
		one, other := start(t, s), start(t, cut, quietly)
		one.put(t, of("192.0.2.1", time.Now().Add(25*24*time.Hour)))
		one.put(t, of("192.0.2.2", time.Now().Add(25*24*time.Hour)))
		follow()
		require.Len(t, other.names(t), 2)
		cut.fails.Store(true)
		one.put(t, of("192.0.2.1", time.Now().Add(15*time.Minute), "9/m"))
		_, found, err := one.Remove(t.Context(), "login", "ip", "192.0.2.2")
		require.NoError(t, err)
		require.True(t, found)
		time.Sleep(25 * time.Hour)
		cut.fails.Store(false)
		time.Sleep(5 * time.Second)
		assert.Empty(t, one.names(t))
		assert.Empty(t, other.names(t))
	})
}

// What was removed takes no room of others.
func TestManyThatAreRemoved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := start(t, embedded())
		for i := range 1000 {
			user := of(fmt.Sprintf("%s%d", strings.Repeat("x", 500), i), time.Now().Add(24*time.Hour))
			user.Kind = "user"
			p.put(t, user)
			_, found, err := p.Remove(t.Context(), "login", "user", user.Value)
			require.NoError(t, err)
			require.True(t, found)
		}
		for i := range overrides.Max {
			p.put(t, of(fmt.Sprintf("192.0.2.%d", i), time.Now().Add(time.Hour)))
		}
		assert.Len(t, p.names(t), overrides.Max)
	})
}

// An override holds as far as the rules of a process can keep it: also after a reload.
func TestOtherRules(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := start(t, embedded())
		p.put(t, of("192.0.2.1", time.Now().Add(time.Hour), "9/m"))
		decided := func() string {
			applied, err := p.Rules().Events["login"].Apply(nil, events.Features{"ip": "192.0.2.1"})
			require.NoError(t, err)
			return events.FormatRate(applied[0].Rule.LimitsOf(applied[0].Counter.Feature)[0])
		}
		assert.Equal(t, "9/m", decided())
		assert.False(t, p.List()[0].Idle)
		p.rules.Store(parse(t, "events: {login: {limits: [{per: ip, rate: 7/h}]}}"))
		assert.Equal(t, "7/h", decided())
		assert.True(t, p.List()[0].Idle, "it has no effect")
		p.rules.Store(parse(t, "events: {login: {limits: [{per: ip, rate: 8/m}]}}"))
		assert.Equal(t, "9/m", decided())
		p.rules.Store(parse(t, "events: {logout: {}}"))
		require.Len(t, p.List(), 1, "it is still listed, to be removed")
		assert.True(t, p.List()[0].Idle)
		_, removed, err := p.Remove(t.Context(), "login", "ip", "192.0.2.1")
		require.NoError(t, err)
		assert.True(t, removed)
		assert.Empty(t, p.List())
	})
}

func TestBoundsOfOverrides(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := start(t, embedded(), func(c *overrides.Config) {
			c.Suits = func(rules *events.Rules) error { return footprint.CheckRules(rules, events.DefaultGrace) }
		})
		hour := time.Now().Add(time.Hour)
		large := of("x", hour, "1000000/h")
		large.Kind = "user"
		unknown := of("192.0.2.1", hour)
		unknown.Event = "logout"
		for name, test := range map[string]struct {
			override events.Override
			cause    error
			text     string
		}{
			"over":             {of("192.0.2.1", time.Now()), engine.ErrOutOfRange, "until: it is over"},
			"too long":         {of("192.0.2.1", time.Now().Add(31*24*time.Hour)), engine.ErrOutOfRange, "30 days at the most"},
			"an unknown event": {unknown, events.ErrUnknownEvent, ""},
			"a fault":          {of("192.0.2.1", hour, "5/h"), events.ErrInvalid, "there are 1m"},
			"a large log":      {large, events.ErrInvalid, "a log of the 1000000 hits"},
		} {
			_, err := p.Put(t.Context(), test.override)
			require.ErrorIs(t, err, test.cause, name)
			assert.ErrorContains(t, err, test.text, name)
		}
		for i := range overrides.Max {
			p.put(t, of(fmt.Sprintf("198.51.100.%d", i+1), hour))
		}
		_, err := p.Put(t.Context(), of("192.0.2.1", hour))
		require.ErrorIs(t, err, overrides.ErrTooMany)
		p.put(t, of("198.51.100.1", hour, "9/m")) // instead of one
		assert.Len(t, p.List(), overrides.Max)
		_, _, err = p.Remove(t.Context(), "login", "ip", "198.51.100.1")
		require.NoError(t, err)
		p.put(t, of("192.0.2.1", hour))

		long := start(t, embedded())
		var refused error
		for i := 0; i < overrides.Max && refused == nil; i++ {
			o := of(strings.Repeat("x", events.MaxValue-10)+fmt.Sprint(i), hour)
			o.Kind = "user"
			_, refused = long.Put(t.Context(), o)
		}
		require.ErrorIs(t, refused, overrides.ErrTooMany)
	})
}

// What the store has tells nothing without the key, and what another one made is no override.
func TestSealedOverrides(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := embedded()
		sealed := func(secret string) func(*overrides.Config) {
			return func(c *overrides.Config) { c.Seal = seal.KeyOf([]byte(secret), "overrides") }
		}
		one, other := start(t, s, sealed("one")), start(t, s, sealed("one"))
		one.put(t, of("192.0.2.1", time.Now().Add(time.Hour)))
		follow()
		assert.Len(t, other.names(t), 1)
		op := overrides.ReadOp()
		s.Do(t.Context(), op)
		require.NoError(t, op.Err)
		assert.NotEmpty(t, op.Reads[0].Data)
		assert.NotContains(t, string(op.Reads[0].Data), "192.0.2.1")

		var faults atomic.Int64
		foreign := start(t, s, sealed("another"), func(c *overrides.Config) { c.OnError = func(error) { faults.Add(1) } })
		follow()
		assert.Empty(t, foreign.List())
		assert.EqualValues(t, 1, faults.Load())
		assert.Len(t, one.List(), 1)
	})
}
