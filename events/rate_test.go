package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseRate(t *testing.T) {
	for s, want := range map[string]Limit{
		"2/s":             {N: 2, Window: time.Second},
		"5/m":             {N: 5, Window: time.Minute},
		"10/h":            {N: 10, Window: time.Hour},
		"100/d":           {N: 100, Window: 24 * time.Hour},
		"0/d":             {N: 0, Window: 24 * time.Hour},
		"007/s":           {N: 7, Window: time.Second},
		"100/15m":         {N: 100, Window: 15 * time.Minute},
		"40/8s":           {N: 40, Window: 8 * time.Second},
		"5000/7d":         {N: 5000, Window: 7 * 24 * time.Hour},
		"1/1h30m":         {N: 1, Window: 90 * time.Minute},
		"1/30d":           {N: 1, Window: MaxWindow},
		"1000000000000/s": {N: MaxN, Window: time.Second},
	} {
		limit, err := ParseRate(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, limit, s)
	}
	for _, s := range []string{
		"", "/", "5", "5/", "/m", "m/5", "-5/m", "+5/m", "5.0/m", "1e3/m", "1_000/m", "0x5/m", "٥/m",
		" 5/m", "5 /m", "5/ m", "5/m ", "5/M", "5/w", "5/0s", "5/-1s", "5/500ms", "5/1.5s", "5/31d", "5/720h1s",
		"1000000000001/s", "99999999999999999999/s", "5/m/m",
	} {
		_, err := ParseRate(s)
		assert.ErrorIs(t, err, ErrInvalid, "%q", s)
	}
}

func TestFormatRate(t *testing.T) {
	for s, want := range map[string]string{
		"5/60s": "5/m", "5/60m": "5/h", "5/24h": "5/d", "5/1d": "5/d", "5/7d": "5/168h", "5/90s": "5/90s", "5/1000ms": "5/s",
	} {
		limit, err := ParseRate(s)
		require.NoError(t, err)
		assert.Equal(t, want, FormatRate(limit))
	}
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"2/s", "5/m", "0/h", "1000000000000/30d", "100/15m", "1/1h0.5m", "7/7d", "/", "18446744073709551616/s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		limit, err := ParseRate(s)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.True(t, 0 <= limit.N && limit.N <= MaxN)
		require.True(t, time.Second <= limit.Window && limit.Window <= MaxWindow)
		require.Zero(t, limit.Window%time.Second)
		again, err := ParseRate(FormatRate(limit))
		require.NoError(t, err)
		require.Equal(t, limit, again)
	})
}
