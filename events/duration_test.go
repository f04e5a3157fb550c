package events

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"1s": time.Second, "90s": 90 * time.Second, "15m": 15 * time.Minute, "24h": 24 * time.Hour, "7d": 168 * time.Hour,
		"1h30m": 90 * time.Minute, "1000ms": time.Second, "1.5m": 90 * time.Second, "106751d": 106751 * 24 * time.Hour,
	} {
		d, err := ParseDuration(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, d, s)
	}
	for _, s := range []string{
		"", "d", "s", "1", "0s", "0d", "-1s", "-1d", "+1d", "999ms", "1500ms", "1.5d", "1h2d", "1d1h", "1w", " 1s", "106752d",
		"4294967296d", "9999999h", "1e3s",
	} {
		_, err := ParseDuration(s)
		assert.ErrorIs(t, err, ErrInvalid, "%q", s)
		fault, ok := errors.AsType[*DurationError](err)
		require.True(t, ok)
		assert.NotContains(t, fault.Reason, "events: ")
	}
}

func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"1s": time.Second, "59s": 59 * time.Second, "1m": time.Minute, "61s": 61 * time.Second, "15m": 15 * time.Minute,
		"500ms": 500 * time.Millisecond, "1.5s": 1500 * time.Millisecond, "1h": time.Hour, "90m": 90 * time.Minute, "24h": 24 * time.Hour, "168h": 7 * 24 * time.Hour,
	} {
		assert.Equal(t, want, FormatDuration(d))
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"1s", "90s", "1h30m", "7d", "106752d", "1.5m", "0d", "2562047h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.GreaterOrEqual(t, d, time.Second)
		require.Zero(t, d%time.Second)
		again, err := ParseDuration(FormatDuration(d))
		require.NoError(t, err)
		require.Equal(t, d, again)
	})
}
