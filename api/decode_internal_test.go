package api

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
)

// FuzzDecodeBody holds what is read of a body, and what is said of its faults,
// against the reader of any body.
func FuzzDecodeBody(f *testing.F) {
	for _, text := range []string{
		`{"features":{"ip":"203.0.113.9"}}`, ` { "cost" : 3 , "features" : { "user" : "" } } `, `{"features":{"ip":null}}`, `{"cost":3,"cost":3}`,
		`{"cost":1.5}`, `{"cost":9223372036854775808}`, `{"Cost":1}`, `{"features":{"a":"\ud800"}}`, "{\"features\":{\"a\":\"\xff\"}}", `{"hits":[{"event":"e"},null]}`, `{"hits":[]}`,
		`{"hits":[{"event":"e","features":{"ip":"::1","ip":"::1"}}]}`, `{"hits":[{"event":"e","features":{"ip":"::1"},"cost":1}]}`, ``, `{}x`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		equalStrictly[wire.Hit](t, text)
		equalStrictly[wire.Batch](t, text)
	})
}

func equalStrictly[T any](t *testing.T, text string) {
	r := httptest.NewRequest("POST", "/v1/batch", strings.NewReader(text))
	r.Header.Set("Content-Type", wire.TypeJSON)
	var in, want T
	err := decodeBody(r, &in)
	require.Equal(t, decodeStrictly([]byte(text), &want), err, "%q", text)
	require.Equal(t, want, in, "%q", text)
}
