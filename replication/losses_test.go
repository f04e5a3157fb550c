package replication

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeMarker is the item of a marker.
type fakeMarker struct {
	text    string // empty: there is none
	refuses bool
}

func (f *fakeMarker) Read() (text string, found bool, err error) { return f.text, f.text != "", nil }

func (f *fakeMarker) Add(text string) (added bool, err error) {
	if f.refuses {
		return false, ErrRefused
	}
	f.text = text
	return true, nil
}

func (f *fakeMarker) Replace(text string) error {
	f.text = text
	return nil
}

// lossy is a set of three servers with two replicas of each counter, under a clock that the test
// sets, and the markers of the servers.
type lossy struct {
	t       *testing.T
	set     *Set
	second  int64
	markers []*fakeMarker
	fakes   []*fakeServer
	told    []Loss
}

func newLossy(t *testing.T) *lossy {
	l := &lossy{t: t, second: 1_800_000_000}
	l.set = New(Config{
		Replicas: 2, Timeout: time.Minute, Hash: hashOfName, Retention: func() time.Duration { return time.Hour },
		Clock: func() time.Time { return time.Unix(l.second, 0) },
	})
	t.Cleanup(l.set.Close)
	var servers []Server
	l.fakes, servers = newFakes(3)
	for _, f := range l.fakes {
		l.markers = append(l.markers, &fakeMarker{})
		f.joined = l.set.Join(false, func(loss Loss) { l.told = append(l.told, loss) })
	}
	l.set.Use(servers)
	l.check()
	for _, f := range l.fakes {
		f.joined.Count(Stats{}) // it holds nothing
	}
	return l
}

// check has the markers be read.
func (l *lossy) check() {
	l.t.Helper()
	for i, f := range l.fakes {
		require.NoError(l.t, f.joined.Check(l.markers[i], nil))
	}
}

// lose has a server come back empty so many seconds later.
func (l *lossy) lose(i int, later int64) {
	l.t.Helper()
	l.second += later
	l.markers[i].text = ""
	l.check()
}

func (l *lossy) since() (since []int64) {
	for _, f := range l.fakes {
		since = append(since, f.joined.Since())
	}
	return since
}

func TestALossIsDetectedAndRepaired(t *testing.T) {
	l := newLossy(t)
	assert.Equal(t, []int64{0, 0, 0}, l.since())
	gaps := l.set.Gaps()
	l.lose(1, 100)
	assert.Equal(t, []int64{0, l.second, 0}, l.since())
	assert.Equal(t, []Loss{Emptied}, l.told)
	assert.Greater(t, l.set.Gaps(), gaps, "counters are to be compared")
	assert.Regexp(t, `^\+`, l.markers[1].text)
	for i := range 50 {
		assert.Zero(t, l.set.Since(counter(i).Name), "the other replica has it all")
	}
	l.set.Repaired(gaps)
	assert.Equal(t, []int64{0, l.second, 0}, l.since(), "that was before the loss")
	l.set.Repaired(l.set.Gaps())
	assert.Equal(t, []int64{0, 0, 0}, l.since())
	assert.Equal(t, []Loss{Emptied, Repaired}, l.told)
}

// Where two of three servers lose what they hold, the counters whose replicas were there have
// lost it.
func TestTwoLossesAtATimeStay(t *testing.T) {
	l := newLossy(t)
	l.lose(0, 100)
	first := l.second
	l.lose(1, 10)
	l.set.Repaired(l.set.Gaps())
	assert.Equal(t, []int64{first, l.second, 0}, l.since())
	lost := 0
	for i := range 100 {
		if l.set.Since(counter(i).Name) != 0 {
			lost++
		}
	}
	assert.Positive(t, lost)
	assert.Less(t, lost, 100)
	l.second += 25*3600 + 1
	for _, f := range l.fakes {
		f.joined.Count(Stats{})
	}
	assert.Equal(t, []int64{0, 0, 0}, l.since(), "no window reaches back that far")
}

// Evictions are a loss, and no repair ends it: a full server goes on to drop what it is given.
func TestEvictionsAreALoss(t *testing.T) {
	l := newLossy(t)
	m := l.fakes[2].joined
	m.Count(Stats{Items: 10, Evictions: 0})
	assert.Empty(t, l.told)
	l.second += 10
	m.Count(Stats{Items: 10, Evictions: 3})
	assert.Equal(t, []Loss{Evicting}, l.told)
	assert.True(t, m.Evicting())
	l.set.Repaired(l.set.Gaps())
	assert.Equal(t, []int64{0, 0, l.second}, l.since())
}

// A process that does not know all counters does not call a server repaired.
func TestAYoungProcessRepairsNothing(t *testing.T) {
	l := newLossy(t)
	for _, f := range l.fakes {
		f.joined.wasEmpty = false // another process had counted before
	}
	l.lose(1, 100)
	l.set.Repaired(l.set.Gaps())
	assert.Equal(t, []int64{0, l.second, 0}, l.since())
	lost := l.second
	l.second += 3600 - 50 // by now it has run for long, but not when the server lost its counters
	l.set.Repaired(l.set.Gaps())
	assert.Equal(t, []int64{0, lost, 0}, l.since())
}

func TestAServerWithoutAMarkerLosesNothing(t *testing.T) {
	l := newLossy(t)
	l.markers[0].refuses = true
	l.lose(0, 100)
	l.markers[1].text = "something else"
	l.check()
	assert.Equal(t, []int64{0, 0, 0}, l.since())
	var none Memory
	require.NoError(t, none.Check(l.markers[0], nil))
	none.Leave()
	assert.True(t, none.Whole())
}
