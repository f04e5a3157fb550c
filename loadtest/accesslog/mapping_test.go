package accesslog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzMapping(f *testing.F) {
	f.Add("ip=host,user=a.b=c")
	f.Add(" ip , user =x")
	f.Fuzz(func(t *testing.T, text string) {
		mapping, err := ParseMapping(text)
		if err != nil {
			return
		}
		again, err := ParseMapping(mapping.String())
		require.NoError(t, err, "%q", mapping.String())
		require.Equal(t, mapping, again)
	})
}
