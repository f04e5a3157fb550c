package process

import (
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
)

func TestTimesOf(t *testing.T) {
	got := timesOf(procfs.CPUStat{User: 1, Nice: .25, System: .5, Idle: 40, Iowait: 5, IRQ: .125, SoftIRQ: .0625, Steal: .75, Guest: .5})
	assert.Equal(t, Times{Busy: 1937500 * time.Microsecond, Stolen: 750 * time.Millisecond, Total: 47687500 * time.Microsecond}, got)
}
