package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
)

// equalUnmarshal holds what is read of a plain body against what json.Unmarshal
// reads of it, which takes every plain body. It reports whether it was one.
func equalUnmarshal[T any, P interface {
	*T
	ReadPlain(string) bool
}](t *testing.T, text string) bool {
	t.Helper()
	var in, want T
	plain := P(&in).ReadPlain(text)
	if plain {
		require.NoError(t, json.Unmarshal([]byte(text), &want, json.RejectUnknownMembers(true)), "%s", text)
	}
	require.Equal(t, want, in, "of what is not plain nothing is kept: %s", text)
	return plain
}

func TestPlainHits(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"features":{}}`, `{"features":{"ip":"203.0.113.9"}}`, `{"cost":1,"features":{"ip":"203.0.113.9","user":""}}`,
		" {\n\t\"features\" :\r{ \"\" : \" x \" , \"b\":\"~\"} , \"cost\" : 0 } \n", `{"cost":999999999999999999}`,
	} {
		assert.True(t, equalUnmarshal[wire.Hit](t, text), text)
		assert.Equal(t, strings.TrimSpace(text) == "{}", equalUnmarshal[wire.Batch](t, text), text)
	}
	for _, text := range []string{
		`{`, `}`, `[]`, `null`, `"x"`, `{}x`, `{},`, `{}{}`, `{,}`, `{"cost":1,}`, `{"cost"}`, `{"cost":}`, `{"cost" 1}`, `{"cost":1"features":{}}`, `{"cost":1 1}`,
		`{"cost":-1}`, `{"cost":01}`, `{"cost":1.0}`, `{"cost":1e3}`, `{"cost":1E3}`, `{"cost":+1}`, `{"cost":"1"}`, `{"cost":null}`, `{"cost":9223372036854775808}`,
		`{"cost":1000000000000000000}`, `{"cost":18446744073709551617}`, `{"cost":1,"cost":1}`, `{"Cost":1}`, `{"costs":1}`, `{"":1}`, `{"c\u006fst":1}`,
		`{"features":null}`, `{"features":[]}`, `{"features":{},"features":{}}`, `{"features":{"a":"1","a":"1"}}`, `{"features":{"a":1}}`, `{"features":{"a":null}}`,
		`{"features":{"a":"\n"}}`, `{"features":{"a":"` + "\n" + `"}}`, `{"features":{"a":"` + "\x7f" + `"}}`, `{"features":{"a":"ü"}}`, `{"features":{"a":"` + "\xff" + `"}}`,
		`{"features":{"a":"x}}`, `{"features":{"a":"x"`, `{"features":{"a":"x"}`, `{"features":{"a":"x",}}`, `{"features":{'a':'x'}}`, `{"features":{"a":"x"}]`,
		"\ufeff{}", "{}\x00", "\v{}", `{/**/}`,
	} {
		assert.False(t, equalUnmarshal[wire.Hit](t, text), text)
		assert.False(t, equalUnmarshal[wire.Batch](t, text), text)
		assert.False(t, equalUnmarshal[wire.Batch](t, `{"hits":[`+text+`]}`), text)
	}
	for _, text := range []string{``, ` `, `{"event":"e","features":{}}`, `{"hits":[]}`} {
		assert.False(t, equalUnmarshal[wire.Hit](t, text), text)
	}
}

func TestPlainBatches(t *testing.T) {
	for _, text := range []string{
		`{"hits":[]}`, `{"hits":[{}]}`, `{"hits":[{},{}]}`, `{"hits" : [ { "event" : "e" , "cost":3 } , {"features":{"ip":"::1"},"event":"f"} ] }`,
	} {
		assert.True(t, equalUnmarshal[wire.Batch](t, text), text)
	}
	for _, text := range []string{
		`{"hits":null}`, `{"hits":{}}`, `{"hits":[null]}`, `{"hits":[{},]}`, `{"hits":[,{}]}`, `{"hits":[{}{}]}`, `{"hits":[{}}`, `{"hits":[{}]`, `{"hits":[],"hits":[]}`,
		`{"hits":[{"event":"e","event":"e"}]}`, `{"hits":[{"event":"","event":"e"}]}`, `{"hits":[{"event":"","event":""}]}`, `{"hits":[{"event":null}]}`,
		`{"hits":[{"cost":1,"cost":1}]}`, `{"hits":[{"hits":[]}]}`, `{"Hits":[]}`, `{"hits":[[]]}`,
	} {
		assert.False(t, equalUnmarshal[wire.Batch](t, text), text)
	}
}

// What a client of ours writes is plain, but for what has to be escaped.
func TestOurClientsAreReadPlainly(t *testing.T) {
	hit := wire.Hit{Features: map[string]string{"ip": "2001:db8::1", "user": "a b+c@example.org"}, Cost: new(int64(1_000_000))}
	text, err := json.Marshal(hit)
	require.NoError(t, err)
	assert.True(t, equalUnmarshal[wire.Hit](t, string(text)))
	batch := wire.Batch{}
	for i := range 100 {
		batch.Hits = append(batch.Hits, wire.BatchHit{Event: fmt.Sprintf("e%d", i), Features: hit.Features, Cost: hit.Cost})
	}
	text, err = json.Marshal(batch)
	require.NoError(t, err)
	assert.True(t, equalUnmarshal[wire.Batch](t, string(text)))
}

func FuzzPlain(f *testing.F) {
	for _, text := range []string{
		`{"features":{"ip":"203.0.113.9","user":"42"},"cost":3}`, "{ \"cost\" : 0 ,\n\"features\":{} }", `{"cost":1,"cost":1}`, `{"features":{"a":"1","a":"2"}}`,
		`{"features":{"a":"\u0031"}}`, `{"features":null}`, `{"cost":01}`, `{"cost":1e0}`, `{"features":{"a":"ü"}}`,
		`{"hits":[{"event":"e","features":{"ip":"203.0.113.9"}},{"event":"e","features":{"ip":"203.0.113.9","user":"1"},"cost":2},{}]}`,
		`{"hits":[{"event":"","event":"e"}]}`, `{"hits":[null,{},]}`, `{"hits":[]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		equalUnmarshal[wire.Hit](t, text)
		equalUnmarshal[wire.Batch](t, text)
	})
}
