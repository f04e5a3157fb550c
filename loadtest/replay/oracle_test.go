package replay

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOracleCounters(t *testing.T) {
	o := newOracle(4)
	o.add([]uint32{1}, 7)
	o.add([]uint32{1, 2}, 8)
	o.doubt([]uint32{2, 3})
	sure, unsure := o.counters()
	assert.Equal(t, 1, sure)
	assert.Equal(t, 2, unsure)
}
