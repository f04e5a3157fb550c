package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fleet is servers without a network: looks take no time.
type fleet struct {
	list    *List
	now     time.Time
	markers map[string]*Marker
	version uint64
}

func newFleet(servers ...string) *fleet {
	return &fleet{list: NewList(servers, 2), now: time.Unix(now, 0), markers: map[string]*Marker{}}
}

// process returns the ledger of a process that has looked at the servers.
func (f *fleet) process(id uint64, servers ...string) *Ledger {
	l := New(id, f.list, 3600)
	for _, s := range servers {
		f.look(l, s)
	}
	l.UseList()
	return l
}

func (f *fleet) look(l *Ledger, server string) {
	look := l.Begin(server)
	if f.markers[server] == nil {
		f.markers[server] = l.Create(server, 1, nil, true, f.now)
	}
	f.finish(l, look)
}

func (f *fleet) finish(l *Ledger, look Look) {
	f.version++
	f.markers[look.Server], _ = l.Reconcile(&look, f.markers[look.Server], 0, f.now)
	l.Learn(look, f.markers[look.Server], f.version, f.now)
}

// The steps of interleaving A: see Ledger.hear.
func TestAPaymentDoesNotOvertakeTheNumber(t *testing.T) {
	f := newFleet("A", "B")
	p, q := f.process(1, "A", "B"), f.process(2, "A", "B")
	p.SetUp("B", false)
	f.look(p, "A")
	f.look(q, "A")
	f.look(q, "B")
	assert.Equal(t, int64(now+Margin), q.Since([]string{"B"}, 0, f.now), "P's debt stands")
	p.SetUp("B", true)
	p.Lose("B", "missed")
	early := q.Begin("B") // a look whose answer takes long
	old := f.markers["B"]
	f.look(p, "B")
	f.now = f.now.Add(2 * time.Second)
	f.look(p, "A")
	f.look(q, "A")
	assert.Equal(t, f.now.Unix()+Margin, q.Since([]string{"B"}, 0, f.now), "B's marker counts as not read")
	q.Learn(early, old, f.version, f.now)
	assert.Equal(t, f.now.Unix()+Margin, q.Since([]string{"B"}, 0, f.now), "nor does a look that began before")
	f.look(q, "B")
	assert.NotZero(t, f.markers["B"].Number(0), "the number of P's raise")
	assert.Equal(t, f.markers["B"].Number(0), q.Since([]string{"B"}, 0, f.now))
	assert.Zero(t, q.Since([]string{"A"}, 0, f.now))
}

// The steps of interleaving B: see Ledger.Recorded.
func TestAPaidDebtIsNotRecorded(t *testing.T) {
	f := newFleet("A", "B", "C")
	p := f.process(1, "A", "B", "C")
	p.Miss("B", f.now)
	f.look(p, "A")
	f.look(p, "C")
	require.True(t, p.Recorded("B", f.now))
	p.Delivered("B")
	f.now = f.now.Add(rests + time.Second)
	f.look(p, "A")
	p.Miss("B", f.now)
	assert.False(t, p.Recorded("B", f.now), "C has only the entry that was paid")
	f.look(p, "A")
	assert.True(t, p.Recorded("B", f.now))
}

// The steps of interleaving E: see Ledger.vouched.
func TestOnlyAServerThatIsAwayKnows(t *testing.T) {
	f := newFleet("A", "B")
	p := f.process(1, "A", "B")
	p.SetUp("B", false)
	f.look(p, "A")
	s := f.process(2, "B")
	assert.Equal(t, int64(now+Margin), s.Since([]string{"B"}, 0, f.now), "nobody vouches for B")

	q := f.process(3, "A", "B")
	q.SetUp("A", false)
	f.look(q, "B")
	s = f.process(4, "B")
	assert.Equal(t, int64(now+Margin), s.Since([]string{"B"}, 0, f.now), "Q has merged P's debt into the marker of B")
	f.now = f.now.Add((lease + 1) * time.Second)
	f.look(s, "B")
	assert.Equal(t, f.now.Unix()+Margin, f.markers["B"].Number(0), "rule 8: the debt of P has run out")
}

// A process must not believe a marker that it read long ago.
func TestOldLooksAreNotBelieved(t *testing.T) {
	f := newFleet("A", "B")
	p := f.process(1, "A", "B")
	assert.Zero(t, p.Since([]string{"A", "B"}, 0, f.now))
	assert.NotZero(t, p.Since([]string{"A", "B"}, 0, f.now.Add(fresh+1)))
}

func TestPlanCopiesFromTheLowestNumber(t *testing.T) {
	f := newFleet("A", "B")
	p := f.process(1, "A", "B")
	p.Lose("B", "emptied")
	f.look(p, "B")
	assert.Nil(t, p.Plan("B", f.now), "the number is not in the past")
	f.now = f.now.Add((Margin + 2) * time.Second)
	f.look(p, "A")
	f.look(p, "B")
	c := p.Plan("B", f.now)
	require.NotNil(t, c)
	assert.Equal(t, "A", c.Source)
	assert.Equal(t, Slots, c.Slots.Len())
	assert.Nil(t, p.Plan("A", f.now))

	p.Spoil("A", 5)
	f.look(p, "A")
	m := p.Lower(c, f.markers["B"])
	require.NotNil(t, m)
	assert.NotZero(t, m.Number(5), "the number of that slot has changed on the source")
	assert.Zero(t, m.Number(6))
}
