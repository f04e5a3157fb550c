package panics_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/panics"
)

func TestPanicsSayTheirKind(t *testing.T) {
	defer func() {
		assert.Contains(t, panics.Stack(), "panics_test.TestPanicsSayTheirKind ")
		assert.Equal(t, "runtime error: index out of range [1] with length 1", panics.Fault(recover()))
	}()
	assert.Equal(t, "a string", panics.Fault("alice"))
	assert.Equal(t, "a *errors.errorString", panics.Fault(errors.New("alice")))
	one := []int{1}
	_ = one[len(one)]
}
