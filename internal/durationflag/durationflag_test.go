package durationflag_test

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/durationflag"
)

func newSet(timeout *time.Duration) *flag.FlagSet {
	set := flag.NewFlagSet("test", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.DurationVar(timeout, "timeout", time.Second, "longest wait")
	set.Int("number", 1, "")
	return set
}

func ExampleExplain() {
	var timeout time.Duration
	set := newSet(&timeout)
	restore := durationflag.Explain(set)
	defer restore()
	fmt.Println(set.Parse([]string{"-timeout", "30"}))
	// Output: invalid value "30" for flag -timeout: 30 has no unit: write 30s, or 30ms
}

func TestExplain(t *testing.T) {
	for text, want := range map[string]string{
		"30": "30 has no unit: write 30s, or 30ms", "1.5": "1.5 has no unit: write 1.5s, or 1.5ms", "-5": "-5 has no unit: write -5s, or -5ms",
		"1d": "it is written like 500ms, 30s, 15m or 1h30m", "": "it is written like 500ms, 30s, 15m or 1h30m",
	} {
		var timeout time.Duration
		set := newSet(&timeout)
		durationflag.Explain(set)
		assert.EqualError(t, set.Parse([]string{"-timeout", text}), fmt.Sprintf("invalid value %q for flag -timeout: %s", text, want))
	}
	var timeout time.Duration
	set := newSet(&timeout)
	help := func() string {
		var out strings.Builder
		set.SetOutput(&out)
		set.PrintDefaults()
		return out.String()
	}
	before := help()
	restore := durationflag.Explain(set)
	require.NoError(t, set.Parse([]string{"-timeout", "1h30m", "-number", "30"}))
	assert.Equal(t, 90*time.Minute, timeout)
	restore()
	assert.Equal(t, before, help())
}
