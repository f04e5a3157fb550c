package accesslog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

func readTexts(t *testing.T, features string, texts ...string) (*Log, error) {
	t.Helper()
	mapping, err := ParseMapping(features)
	require.NoError(t, err)
	format, err := New(Config{Fields: mapping.Fields()})
	require.NoError(t, err)
	var inputs []Input
	for i, text := range texts {
		inputs = append(inputs, Stream(fmt.Sprintf("log.%d", i+1), strings.NewReader(text)))
	}
	return ReadLog(t.Context(), format, mapping, inputs...)
}

func TestReadLog(t *testing.T) {
	log, err := readTexts(t, "ip=host,user",
		`{"ts": 7.5, "host": "192.0.2.1", "user": "a"}
{"ts": 3, "host": "192.0.2.1"}
`, `{"ts": 7.25, "host": "192.0.2.1", "user": "a"}
{"ts": 7.25, "host": "www.example.com", "user": "a"}
{"ts": 7.25, "user": "-"}
{"ts": 7.25, "host": "-", "user": "a"}
{"ts": 1}
foo`)
	require.NoError(t, err)
	assert.Equal(t, 8, log.Lines)
	assert.Equal(t, 2, log.Malformed)
	assert.Equal(t, []string{"log.2:2", "log.2:6"}, log.Places)
	assert.Equal(t, []events.Features{{"ip": "192.0.2.1", "user": "a"}, {"ip": "192.0.2.1"}, {}, {"user": "a"}}, log.Actors)
	assert.Equal(t, []Event{{1e6, 2}, {3e6, 1}, {7_250_000, 0}, {7_250_000, 2}, {7_250_000, 3}, {7_500_000, 0}}, log.Events)
	assert.EqualValues(t, 7, log.Events[5].Second())

	var all []string
	for at, features := range log.All() {
		all = append(all, fmt.Sprint(at.Format("05.00"), features))
		if len(all) == 4 {
			break
		}
	}
	assert.Equal(t, []string{"01.00map[]", "03.00map[ip:192.0.2.1]", "07.25map[ip:192.0.2.1 user:a]", "07.25map[]"}, all)
}

// Which values go together is not lost where they are put together.
func TestActorsAreKeptApart(t *testing.T) {
	log, err := readTexts(t, "a,b", `{"ts": 1, "a": "x0:", "b": "z"}`+"\n"+`{"ts": 1, "a": "x", "b": "0:z"}`+"\n"+`{"ts": 1, "a": "1:x", "b": ""}`+"\n"+`{"ts": 1, "a": "", "b": "1:x"}`+"\n"+`{"ts": 1, "a": "x1:", "b": "y"}`+
		"\n"+`{"ts": 1, "a": "x", "b": "1:y"}`+"\n")
	require.NoError(t, err)
	assert.Len(t, log.Actors, 6)
}
