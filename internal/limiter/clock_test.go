package limiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A hit is late half the grace after its moment, and too early a quarter before its stamp.
func TestLateHits(t *testing.T) {
	const grace = 40 * time.Second
	began := time.Unix(1_700_000_000, 0)
	for _, test := range []struct {
		ahead int64 // the stamp's lead, in seconds
		after time.Duration
		late  bool
	}{
		{0, 0, false}, {0, 20 * time.Second, false}, {0, 20*time.Second + 1, true},
		{10, 0, false}, {11, 0, true}, {11, time.Second, false}, {11, 20*time.Second + 1, true},
		{0, -10 * time.Second, false}, {0, -10*time.Second - 1, true}, // a clock set back
	} {
		c := &clock{grace: grace, now: func() time.Time { return began.Add(test.after) }}
		assert.Equal(t, test.late, c.isLate(Moment{Time: began, Second: began.Unix() + test.ahead}), "%+v", test)
	}
}
