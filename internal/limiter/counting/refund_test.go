package counting_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/memcache"
)

// Buckets give back what there is. Where a log counts, too, nothing is given back, not even by the buckets.
func TestRefunds(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	p := newProcess(t, memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now}), clock.Now, hierarchy.DefaultGrace)
	for name, test := range map[string]struct {
		algorithms []string
		refunded   int64
		reason     string
	}{
		"buckets": {[]string{"sliding-window"}, 3, ""},
		"a log":   {[]string{eventlog.Algorithm}, 0, "a log gives nothing back"},
		"both":    {[]string{"sliding-window", eventlog.Algorithm}, 0, "several engines"},
	} {
		t.Run(name, func(t *testing.T) {
			event := newEvent(t, "[{per: user, rate: 9/h}, {per: user, rate: 8/h}]", test.algorithms...)
			counter := counterOf(t, event, "user", name)
			_, err := p.Increment(t.Context(), 3, time.Time{}, counter)
			require.NoError(t, err)
			refunded, err := p.Refund(t.Context(), 5, counter)
			assert.Equal(t, test.refunded, refunded)
			if test.reason != "" {
				require.ErrorIs(t, err, engine.ErrOutOfRange)
				require.ErrorContains(t, err, test.reason)
			}
			assert.Equal(t, 3-test.refunded, total(t, p, counter))
			for _, by := range []int64{-1, 0} {
				_, err := p.Refund(t.Context(), by, counter)
				require.ErrorIs(t, err, engine.ErrOutOfRange, by)
			}
		})
	}
}
