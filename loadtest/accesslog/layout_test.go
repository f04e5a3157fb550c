package accesslog

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLayouts(t *testing.T) {
	at := time.Date(2015, time.May, 17, 10, 5, 3, 0, time.UTC)
	for _, c := range []struct {
		layout, text string
		want         time.Time // zero: malformed
	}{
		{"auto", "2015-05-17T10:05:03Z", at},
		{"auto", "2015-05-17T12:05:03.123456789+02:00", at.Add(123456789)},
		{"auto", "17/May/2015:12:05:03 +0200", at},
		{"auto", "1431857103", at},
		{"auto", "1431857103.25", at.Add(250 * time.Millisecond)},
		{"auto", "1431857103.9999999999", at.Add(999_999_999)}, // not the next second
		{"auto", "1431857103123", at.Add(123 * time.Millisecond)},
		{"auto", "0", time.Unix(0, 0)},
		{"auto", "20150517", time.Time{}}, // a day, not one of August 1970
		{"auto", "1431857103.", time.Time{}},
		{"auto", "1e9", time.Time{}},
		{"auto", "", time.Time{}},
		{"auto", "2015-05-17 10:05:03", time.Time{}},
		{"auto", "2015-05-17T12:05:03.5+0200", at.Add(500 * time.Millisecond)},
		{"auto", "May 17 10:05:03", time.Date(0, time.May, 17, 10, 5, 3, 0, time.UTC)},
		{"auto", "Feb 30 10:05:03", time.Time{}},
		{TimeLayout, "17/May/2015:10:05:03 +0000", at},
		{TimeLayout, "17/May/2015:10:05:03.5 +0000", time.Time{}},
		{"2006-01-02 15:04:05", "2015-05-17 10:05:03", at},
		{"2006-01-02 15:04:05", "2015-05-17 10:05:03.25", at.Add(250 * time.Millisecond)},
		{"02.01.06 03:04:05 PM -0700", "17.05.15 12:05:03 PM +0200", at},
		{"2006-01-02 15:04:05", "17.05.2015 10:05:03", time.Time{}},
	} {
		layout, err := ParseLayout(c.layout)
		require.NoError(t, err, c.layout)
		got, err := layout.Parse(c.text)
		if c.want.IsZero() {
			require.ErrorIs(t, err, ErrMalformed, "%s %s", c.layout, c.text)
			if c.text != "" {
				assert.NotContains(t, err.Error(), c.text)
			}
			continue
		}
		require.NoError(t, err, "%s %s", c.layout, c.text)
		assert.True(t, c.want.Equal(got), "%s %s is %s", c.layout, c.text, got)
	}
}

// Every form of a time is read without being told which it is.
func FuzzLayouts(f *testing.F) {
	f.Add(int64(1431857103), int64(123456789), 120)
	f.Add(int64(951782399), int64(0), -570)
	f.Fuzz(func(t *testing.T, second, nano int64, zone int) {
		second, nano = mod(second, 1e10), mod(nano, 1e9)
		at := time.Unix(second, nano).In(time.FixedZone("", zone%(14*60)*60))
		check := func(layout Layout, text string, unit time.Duration) {
			got, err := layout.Parse(text)
			require.NoError(t, err, "%s %s", layout, text)
			require.Equal(t, at.UnixNano()/int64(unit), got.UnixNano()/int64(unit), "%s %s", layout, text)
		}
		check("", at.Format(time.RFC3339Nano), 1)
		check("", at.Format(time.RFC3339), time.Second)
		check("", at.Format(TimeLayout), time.Second)
		check(TimeLayout, at.Format(TimeLayout), time.Second)
		if len(fmt.Sprint(second)) != len("20150517") {
			check("", fmt.Sprint(second), time.Second)
			check("", fmt.Sprintf("%d.%09d", second, nano), 1)
		}
		if second >= 1e9 {
			check("", fmt.Sprint(at.UnixMilli()), time.Millisecond)
			check("", fmt.Sprintf("%d.%06d", at.UnixMilli(), nano%1e6), 1)
		}
	})
}

func mod(a, b int64) int64 { return (a%b + b) % b }

// Numbers are read as fractions of any length are.
func FuzzUnix(f *testing.F) {
	f.Add("1431857103.9999999999", false)
	f.Add("1431857103123.456", true)
	f.Fuzz(func(t *testing.T, text string, millis bool) {
		decimals, unit := 9, int64(1e9)
		if millis {
			decimals, unit = 6, 1e6
		}
		got, err := parseUnix(text, decimals)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		number, fine := new(big.Rat).SetString(text)
		require.True(t, fine)
		number.Mul(number, big.NewRat(unit, 1))
		nanos := new(big.Int).Quo(number.Num(), number.Denom())
		want := new(big.Int).Add(new(big.Int).Mul(big.NewInt(got.Unix()), big.NewInt(1e9)), big.NewInt(int64(got.Nanosecond())))
		require.Zero(t, want.Cmp(nanos), "%s is %s", text, got)
	})
}
