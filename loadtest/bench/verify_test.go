package bench

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVerifyFindsWhatIsMissing(t *testing.T) {
	added := make([]atomic.Int64, 1000)
	holds := func(i int) (int64, error) { return added[i].Load(), nil }
	assert.Error(t, verifySome(added, holds), "nothing was done")
	added[7].Store(3)
	added[999].Store(1)
	assert.NoError(t, verifySome(added, holds))
	assert.ErrorContains(t, verifySome(added, func(i int) (int64, error) { return int64(1000-i) / 331, nil }), "holds 0")
	broken := errors.New("broken")
	assert.ErrorIs(t, verifySome(added, func(int) (int64, error) { return 0, broken }), broken)
	for i := range added {
		added[i].Store(1)
	}
	asked := map[int]bool{}
	assert.NoError(t, verifySome(added, func(i int) (int64, error) {
		asked[i] = true
		return 1, nil
	}))
	assert.Len(t, asked, sampled)
}
