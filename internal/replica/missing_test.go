package replica

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A server misses a counter until that is repaired after it was taken, and no more was missed since. Of one
// that is down none is taken.
func TestWhatServersMiss(t *testing.T) {
	process := &worldProcess{}
	up, down := &reached{worldServer: &worldServer{name: "up"}, by: process}, &reached{worldServer: &worldServer{name: "down", down: true}, by: process}
	var o missing
	assert.False(t, o.note(down, "b"), "nothing repairs it")
	assert.Empty(t, o.take())
	for range 2 {
		assert.True(t, o.note(up, "a"))
		assert.True(t, o.note(down, "b"))
	}
	o.settle("a")
	assert.True(t, o.isAny(up), "its repair may have begun before")
	assert.Equal(t, []string{"a"}, o.take())
	assert.Empty(t, o.take())
	assert.True(t, o.note(up, "a"))
	o.settle("a")
	assert.Equal(t, []string{"a"}, o.take(), "it has missed more")
	o.settle("a")
	assert.False(t, o.isAny(up))
	down.down = false
	assert.Equal(t, []string{"b"}, o.take())
	assert.True(t, o.isAny(down))
	for i := range maxMissing - 1 {
		assert.True(t, o.note(up, strconv.Itoa(i)))
	}
	assert.True(t, o.note(down, "b"))
	assert.False(t, o.note(down, "c"), "there is no room")
	assert.False(t, o.isAny(down), "all is to be copied")
	o.drop(up)
	assert.False(t, o.isAny(up))
	assert.Zero(t, o.n)
}
