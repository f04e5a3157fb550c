package bench

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asNothing makes the test binary be the server that does nothing.
const asNothing = "COUNTERD_TEST_AS_NOTHING"

func TestMain(m *testing.M) {
	if os.Getenv(asNothing) != "" {
		if err := ServeNothing(context.Background(), os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		os.RemoveAll(built)
		os.Exit(status)
	}))
}

var built string // the folder of counterd, once it is built

// steps counts what a run says of its progress.
type steps struct{ announced, done atomic.Int64 }

func (s *steps) Start(_ string, n int) { s.announced.Add(int64(n)) }
func (s *steps) Add(n int)             { s.done.Add(int64(n)) }

func TestConfigIsChecked(t *testing.T) {
	good := Config{Rounds: 1, Duration: time.Second, Rows: regexp.MustCompile("^A3 ")}
	require.NoError(t, good.Check())
	for want, spoil := range map[string]func(*Config){
		"rounds":             func(c *Config) { c.Rounds = 0 },
		"duration":           func(c *Config) { c.Duration = time.Hour },
		"no row":             func(c *Config) { c.Rows = regexp.MustCompile("nothing like it") },
		"counterd is needed": func(c *Config) { c.Rows = nil },
	} {
		bad := good
		spoil(&bad)
		assert.ErrorContains(t, bad.Check(), want)
		_, err := Run(t.Context(), bad)
		assert.ErrorContains(t, err, want)
	}
	pure := Config{Rounds: 1, Duration: time.Second, Rows: regexp.MustCompile("^[AC]")}
	assert.NoError(t, pure.Check(), "rows in this process need no counterd")
	t.Setenv("PATH", t.TempDir())
	assert.ErrorContains(t, good.Check(), "memcached is needed")
}
