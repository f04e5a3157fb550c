package hierarchy

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
)

// readsStore is empty at every trip, and counts what is read, by level.
type readsStore struct {
	store.Store
	reads [Levels]int
}

func (s *readsStore) Capabilities() store.Capabilities { return store.Capabilities{} }

func (s *readsStore) Do(_ context.Context, ops ...*store.Op) {
	for _, op := range ops {
		for i := range op.Writes {
			op.Writes[i].Result = op.Writes[i].By
		}
		for i := range op.Reads {
			op.Reads[i].Value = 0
			s.reads[bucketOf(op.Reads[i].Item).Level]++
		}
		op.Receipt = store.Acknowledged(len(op.Writes))
	}
}

// What is said of a hit's reads is what a limiter reads at every second of a day.
func TestFarReadsAreThoseOfALimiter(t *testing.T) {
	for _, c := range []struct {
		rates     []string
		precision events.Precision
	}{
		{rates: []string{"5/s", "10/m", "20/h", "100/d"}},
		{rates: []string{"100/15m", "200/d"}, precision: events.Minute},
	} {
		t.Run(fmt.Sprint(c.rates), func(t *testing.T) {
			rule := events.Rule{Per: []string{"ip"}, Precision: c.precision}
			for _, rate := range c.rates {
				limit, err := events.ParseRate(rate)
				require.NoError(t, err)
				rule.Limits = append(rule.Limits, limit)
			}
			event := &events.Event{Name: "e", Rules: []events.Rule{rule}}
			store := &readsStore{}
			now := time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC)
			l, err := limiter.New(limiter.Config{Timeout: DefaultGrace / 2}, NewCounters(Config{Store: store, Clock: func() time.Time { return now }}))
			require.NoError(t, err)
			const seconds = 86400
			for i := range seconds {
				d, err := l.Hit(t.Context(), limiter.Hit{Event: event, Features: events.Features{"ip": fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}, Cost: 1})
				require.NoError(t, err)
				require.True(t, d.Allowed)
				now = now.Add(time.Second)
			}
			far := FarReadsOf(events.Counter{Retention: event.Remembered(), Precision: c.precision}, rule.Limits, DefaultGrace)
			for level, reads := range store.reads {
				assert.InDelta(t, float64(reads)/seconds, far.Closed[level]+far.Open[level], 1e-6, Level(level))
			}
		})
	}
}

// Of the buckets that a hit reads, those are open that ended less than twice the grace ago,
// or are ahead.
func TestOpenReads(t *testing.T) {
	far := FarReadsOf(events.Counter{Retention: time.Minute}, []events.Limit{{Window: time.Minute}}, 2*time.Second)
	// The minute before is read but in the last second of one, and is open in four; the
	// next one in the last two seconds.
	assert.InDelta(t, (4+2)/60., far.Open[Minute], 1e-6)
	assert.InDelta(t, (60-1-4)/60., far.Closed[Minute], 1e-6)
	assert.Zero(t, far.Closed[Second]+far.Open[Second])
}
