package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
)

// Of the buckets that a hit reads, those are open that ended less than twice the grace ago, or are ahead.
func TestOpenReads(t *testing.T) {
	far := farReadsOf(events.Counter{Retention: time.Minute}, []events.Limit{{Window: time.Minute}}, 2*time.Second)
	// The minute before is read but in the last second of one, and is open in four; the next one in the last two
	// seconds.
	assert.InDelta(t, (4+2)/60., far.open[hierarchy.Minute], 1e-6)
	assert.InDelta(t, (60-1-4)/60., far.closed[hierarchy.Minute], 1e-6)
	assert.Zero(t, far.closed[hierarchy.Second]+far.open[hierarchy.Second])
}
