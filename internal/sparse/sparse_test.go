package sparse

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	var lines Lines
	for range 3 {
		lines.Do("down", func(suppressed int64) { fmt.Println("the store is down; lines left out:", suppressed) })
	}
	// Output: the store is down; lines left out: 0
}

func TestOneLineASecondForEachCause(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var lines Lines
		var written []string
		say := func(cause string) {
			lines.Do(cause, func(suppressed int64) { written = append(written, fmt.Sprint(cause, suppressed)) })
		}
		for range 10 {
			say("a")
			say("b")
		}
		assert.Equal(t, []string{"a0", "b0"}, written)
		time.Sleep(time.Second - time.Nanosecond)
		say("a")
		time.Sleep(1 * time.Nanosecond)
		say("a")
		say("c")
		assert.Equal(t, []string{"a0", "b0", "a10", "c0"}, written)
		time.Sleep(time.Second)
		say("a")
		assert.Equal(t, "a0", written[4])
	})
}

// A log that is blocked holds up only the caller that writes into it.
func TestABlockedLogHoldsUpOneCaller(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var lines Lines
		blocked := make(chan struct{})
		go lines.Do("a", func(int64) { <-blocked })
		synctest.Wait()
		time.Sleep(time.Hour)
		lines.Do("a", func(int64) { t.Error("a second caller writes") })
		wrote := false
		lines.Do("b", func(int64) { wrote = true })
		assert.True(t, wrote)
		close(blocked)
		synctest.Wait()
		lines.Do("a", func(suppressed int64) { assert.Equal(t, int64(1), suppressed) })
	})
}

func TestCausesAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var lines Lines
		for range 2 {
			written := 0
			for i := range 10 * maxCauses {
				lines.Do(fmt.Sprintf("cause %d", i), func(int64) { written++ })
			}
			assert.Equal(t, maxCauses+1, written)
			assert.LessOrEqual(t, len(lines.causes), maxCauses+1)
			time.Sleep(time.Second)
		}
	})
}
