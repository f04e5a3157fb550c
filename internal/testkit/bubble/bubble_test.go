package bubble_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

// TestTimersOfManyGoroutines is what the race detector breaks off in on several
// processors: many goroutines wake at once, and each finds that a timer of its own is due.
func TestTimersOfManyGoroutines(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	var during int
	for range 20 {
		bubble.Test(t, func(*testing.T) {
			during = runtime.GOMAXPROCS(0)
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					for range 20 {
						timer := time.NewTimer(time.Millisecond)
						time.Sleep(2 * time.Millisecond)
						<-timer.C
					}
				})
			}
			all.Wait()
		})
	}
	require.Equal(t, before, runtime.GOMAXPROCS(0), "after the last bubble")
	if bubble.RaceDetector {
		require.Equal(t, 1, during)
	} else {
		require.Equal(t, before, during)
	}
}

// TestBubblesSideBySide: the first that ends does not give the others their processors
// back.
func TestBubblesSideBySide(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	var seen sync.Map
	t.Run("all", func(t *testing.T) {
		for i := range 8 {
			t.Run("one", func(t *testing.T) {
				t.Parallel()
				bubble.Test(t, func(*testing.T) {
					for range 100 * (i + 1) {
						time.Sleep(time.Second)
						seen.Store(runtime.GOMAXPROCS(0), true)
					}
				})
			})
		}
	})
	require.Equal(t, before, runtime.GOMAXPROCS(0), "after the last bubble")
	seen.Range(func(processors, _ any) bool {
		if bubble.RaceDetector {
			require.Equal(t, 1, processors)
		} else {
			require.Equal(t, before, processors)
		}
		return true
	})
}

// TestAllBubblesAreOfThisPackage: a test that goes around it breaks off now and then.
func TestAllBubblesAreOfThisPackage(t *testing.T) {
	var bubbles int
	err := filepath.WalkDir("../../..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		bubbles += bytes.Count(text, []byte("bubble.Test("))
		if entry.Name() == "faketime_test.go" { // the example of docs/testing.md, which users are to copy
			return nil
		}
		require.NotContains(t, string(text), "synctest."+"Test(", file)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, bubbles, 50)
}
