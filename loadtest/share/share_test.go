package share_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/share"
)

func TestShares(t *testing.T) {
	for text, want := range map[string]share.Share{"0": 0, "0.1": 1000, "5": 50_000, "30%": 300_000, "99.9999": 999_999, "0.0001%": 1, "10.50": 105_000} {
		one, err := share.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, one, text)
		for _, again := range []string{one.String(), one.String() + "%"} {
			var read share.Share
			require.NoError(t, read.UnmarshalText([]byte(again)), again)
			require.Equal(t, one, read, again)
		}
	}
	for _, text := range []string{"", "%", "100", "100%", "-1", "0.00001", "1.", ".1", "a", "1e1", "0,1", "+5", "1.-1", "5%%", "%5", "5 %"} {
		_, err := share.Parse(text)
		require.ErrorIs(t, err, share.Err, text)
	}
}
