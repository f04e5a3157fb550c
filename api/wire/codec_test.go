package wire_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
)

type appender interface {
	AppendTo([]byte) ([]byte, error)
}

// equalMarshal holds what a body appends against what json.Marshal gives for want.
func equalMarshal(t *testing.T, body appender, want any) {
	t.Helper()
	text, wrong := json.Marshal(want)
	const before = `x[`
	appended, err := body.AppendTo([]byte(before))
	require.Equal(t, wrong == nil, err == nil, "%v, %v", wrong, err)
	if wrong == nil {
		require.Equal(t, before+string(text), string(appended))
	}
}

// results returns the sequence of those.
func results(all []wire.Result) wire.ResultSeq { return wire.ResultSeq(slices.Values(all)) }

// variants returns the zero value, and values in which one field after the other,
// at any depth, is what else it can be. A field that is added to a body is among
// them without a word here.
func variants(t reflect.Type) []reflect.Value {
	all := []reflect.Value{reflect.Zero(t)}
	with := func(set func(v reflect.Value)) {
		v := reflect.New(t).Elem()
		set(v)
		all = append(all, v)
	}
	switch {
	case t == reflect.TypeFor[wire.Moment]():
		for _, at := range []time.Time{time.Unix(0, 0).UTC(), time.Unix(1773531033, 5e8), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} {
			all = append(all, reflect.ValueOf(wire.Moment{Time: at}))
		}
	case t.Kind() == reflect.String:
		for _, s := range []string{"ip:203.0.113.9", "\"\\/\x00\x1f\x7f\u2028<&>", "naïve ✓ 😀", "\xff"} {
			with(func(v reflect.Value) { v.SetString(s) })
		}
	case t.Kind() == reflect.Bool:
		with(func(v reflect.Value) { v.SetBool(true) })
	case t.Kind() == reflect.Int64 || t.Kind() == reflect.Int:
		for _, n := range []int64{1, -1, 429, 1<<63 - 1, -1 << 63} {
			with(func(v reflect.Value) { v.SetInt(n) })
		}
	case t.Kind() == reflect.Float64: // seconds, with milliseconds
		for _, ms := range []float64{1, 200, 1000, 999_999_999_999} {
			with(func(v reflect.Value) { v.SetFloat(ms / 1000) })
		}
	case t.Kind() == reflect.Pointer:
		for _, to := range variants(t.Elem()) {
			with(func(v reflect.Value) {
				v.Set(reflect.New(t.Elem()))
				v.Elem().Set(to)
			})
		}
	case t.Kind() == reflect.Slice:
		with(func(v reflect.Value) { v.Set(reflect.MakeSlice(t, 0, 0)) })
		for _, one := range variants(t.Elem()) {
			with(func(v reflect.Value) { v.Set(reflect.Append(v, one)) })
			with(func(v reflect.Value) { v.Set(reflect.Append(v, reflect.Zero(t.Elem()), one, one)) })
		}
	case t.Kind() == reflect.Map:
		with(func(v reflect.Value) { v.Set(reflect.MakeMap(t)) })
		for _, key := range variants(t.Key()) {
			for _, one := range variants(t.Elem()) {
				with(func(v reflect.Value) {
					v.Set(reflect.MakeMap(t))
					v.SetMapIndex(key, one)
				})
			}
		}
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			for _, one := range variants(t.Field(i).Type) {
				with(func(v reflect.Value) { v.Field(i).Set(one) })
			}
		}
	default:
		panic(fmt.Sprintf("a %s is none of the bodies' types", t))
	}
	return all
}

func TestAppendIsMarshal(t *testing.T) {
	decisions := variants(reflect.TypeFor[wire.Decision]())
	assert.Greater(t, len(decisions), 100)
	for _, v := range decisions {
		d := v.Interface().(wire.Decision)
		equalMarshal(t, &d, d)
	}
	for _, v := range variants(reflect.TypeFor[wire.Denial]()) {
		d := v.Interface().(wire.Denial)
		equalMarshal(t, &d, d)
	}
	all := variants(reflect.TypeFor[wire.Results]())
	assert.Greater(t, len(all), 400)
	for _, v := range all {
		r := v.Interface().(wire.Results)
		equalMarshal(t, results(r.Results), r)
	}
	for _, v := range variants(reflect.TypeFor[wire.BatchHit]()) {
		h := v.Interface().(wire.BatchHit)
		equalMarshal(t, &h, h)
	}
	several := wire.BatchHit{Event: "e", Features: map[string]string{"ip": "203.0.113.9", "user": "a\"b", "host": "ü"}, Cost: new(int64(2))}
	text, err := several.AppendTo(nil)
	require.NoError(t, err)
	var read wire.BatchHit
	require.NoError(t, json.Unmarshal(text, &read))
	assert.Equal(t, several, read)
}

// FuzzAppend puts what it is given into all fields at once.
func FuzzAppend(f *testing.F) {
	f.Add("ip-5-per-1m", "ip:203.0.113.9", int64(1773531033), int64(5), int64(0), uint16(0xffff))
	f.Add("\"\\\x00\u2028", "\xc3", int64(-1), int64(-1<<63), int64(1<<63-1), uint16(0x1234))
	f.Fuzz(func(t *testing.T, name, feature string, at, n, m int64, flags uint16) {
		flag := func(i int) bool { return flags>>i&1 == 1 }
		pointer := func(i int, n int64) *int64 {
			if !flag(i) {
				return nil
			}
			return &n
		}
		moment, err := wire.ParseMoment(fmt.Sprint(at))
		if err != nil {
			t.Skip()
		}
		limit := wire.LimitState{
			Name: name, Feature: feature, Limit: n, Window: name, Count: m, Remaining: n, Reset: pointer(0, m), Allowed: flag(1),
			Shadow: flag(2), Over: flag(3), Incomplete: flag(4), Unreserved: flag(12), OnError: feature,
		}
		if flag(5) {
			limit.Exact = new(flag(6))
		}
		decision := wire.Decision{Allowed: flag(7), Event: name, At: moment, RetryAfter: pointer(8, n), RetryAfterMS: n % 3, MayFitAfter: n % 2, Limits: make([]wire.LimitState, flags>>9&3)}
		for i := range decision.Limits {
			decision.Limits[i] = limit
		}
		equalMarshal(t, &decision, decision)

		problem := wire.Problem{Type: name, Title: feature, Status: int(n), Detail: feature, Errors: make([]wire.Fault, flags>>11&3)}
		for i := range problem.Errors {
			problem.Errors[i] = wire.Fault{Detail: name, Pointer: feature, Parameter: name}
		}
		denial := wire.Denial{Problem: problem, Decision: decision, ViolatedPolicies: slices.Repeat([]string{name}, int(flags>>13&3))}
		equalMarshal(t, &denial, denial)

		all := []wire.Result{{Status: int(m), Decision: &decision}, {Status: int(n), Problem: &problem}, {Decision: &decision, Problem: &problem}, {}}
		all = all[flags>>14:]
		equalMarshal(t, results(all), wire.Results{Results: all})
	})
}

// What is appended takes no memory but that of the text.
func TestAppendAllocatesNothing(t *testing.T) {
	limit := wire.LimitState{Name: "ip-5-per-1m", Feature: "ip:203.0.113.9", Window: "1m", Reset: new(int64(17))}
	d := wire.Denial{
		Problem:  wire.Problem{Type: wire.TypeQuotaExceeded, Title: "x", Status: 429, Detail: "y"},
		Decision: wire.Decision{Event: "e", At: wire.Moment{Time: time.Unix(1773531033, 0)}, Limits: []wire.LimitState{limit, limit, limit, limit}},
	}
	b := make([]byte, 0, 4<<10)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := d.AppendTo(b); err != nil {
			t.Error(err)
		}
	}))
}

// equalUnmarshal holds what is read of a plain body against what json.Unmarshal
// reads of it, which takes every plain body. It reports whether it was one.
func equalUnmarshal[T any, P interface {
	*T
	ReadPlain([]byte) bool
}](t *testing.T, text string) bool {
	t.Helper()
	var in, want T
	plain := P(&in).ReadPlain([]byte(text))
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

// What the server writes is plain, but for what it seldom writes.
func TestAnswersArePlain(t *testing.T) {
	limit := wire.LimitState{
		Name: "ip-5-per-1m", Feature: "ip:203.0.113.9", Limit: 5, Window: "1m", Count: 3, Remaining: 2, Reset: new(int64(0)), Allowed: true,
	}
	d := wire.Decision{Allowed: true, Event: "login", At: wire.Moment{Time: time.Unix(1773531033, 0).UTC()}, RetryAfter: new(int64(0))}
	d.Limits = []wire.LimitState{limit, limit, limit, limit, limit}
	later := d // with more texts of its own than are kept
	later.Event, later.At, later.Limits = "logout", wire.Moment{Time: time.Unix(1773531034, 0).UTC()}, nil
	for i := range 20 {
		limit.Name, limit.Feature = fmt.Sprint("limit-", i), fmt.Sprint("ip:203.0.113.", i)
		later.Limits = append(later.Limits, limit)
	}
	all := []wire.Result{{Status: 200, Decision: &d}, {Status: 429, Decision: &d}, {Status: 200, Decision: &later}, {Status: 200, Decision: &d}}
	text, err := d.AppendTo(nil)
	require.NoError(t, err)
	assert.True(t, equalUnmarshal[wire.Decision](t, string(text)), "%s", text)
	text, err = results(all).AppendTo(nil)
	require.NoError(t, err)
	assert.True(t, equalUnmarshal[wire.Results](t, string(text)), "%s", text)
	assert.False(t, equalUnmarshal[wire.Decision](t, string(text)))

	plain := 0
	for _, v := range variants(reflect.TypeFor[wire.Results]()) {
		r := v.Interface().(wire.Results)
		for i := range r.Results {
			if r.Results[i].Decision == nil || r.Results[i].Problem != nil {
				r.Results[i] = wire.Result{Status: 200, Decision: &d}
			}
			// Text enough, and what is never null.
			if r.Results[i].Limits == nil {
				r.Results[i].Limits = []wire.LimitState{limit}
			}
		}
		if text, err := results(r.Results).AppendTo(nil); err == nil && equalUnmarshal[wire.Results](t, string(text)) {
			plain++
		}
		if len(r.Results) == 1 {
			text, err := r.Results[0].Decision.AppendTo(nil)
			if err == nil {
				equalUnmarshal[wire.Decision](t, string(text))
			}
		}
	}
	assert.Greater(t, plain, 100)
	whole := `{"allowed":true,"event":"login","at":"2026-03-14T23:30:33Z","retry_after":0,"limits":[` + strings.Repeat(`{},`, 9) + `{}]}`
	assert.False(t, equalUnmarshal[wire.Decision](t, whole), "the limits take far more memory than their text")
	for _, text := range []string{
		`{"event":"login","allowed":true,"at":"2026-03-14T23:30:33Z","retry_after":0,"retry_after_ms":0,"limits":[]}`, // not in order
		`{"allowed":true,"allowed":true,"event":"login","at":"2026-03-14T23:30:33Z","retry_after":0,"limits":[]}`,
		`{"allowed":true,"event":"login","at":"2026-03-14T23:30:33Z","retry_after":null,"retry_after_ms":0,"limits":[]}`,
		`{"allowed":tru,"event":"login","at":"2026-03-14T23:30:33Z","retry_after":0,"retry_after_ms":0,"limits":[]}`,
		`{"allowed":true,"event":"login","at":"2026-13-14T23:30:33Z","retry_after":0,"retry_after_ms":0,"limits":[]}`,
		`{"allowed":true,"event":"login","at":"2026-03-14T23:30:33Z","retry_after":0,"later":1,"limits":[]}`,
		`{"allowed":true,"event":"login","at":"","retry_after":0,"reservation":"0123456789","limits":[]}`,
		`{"status":200,"allowed":true,"event":"login","at":"2026-03-14T23:30:33Z","retry_after":0,"limits":[]}`,
	} {
		assert.False(t, equalUnmarshal[wire.Decision](t, text), text)
	}
}

// No decision takes the room that the one before it has needed.
func TestLimitsTakeTheirOwnRoom(t *testing.T) {
	d := wire.Decision{Allowed: true, Event: "login", At: wire.Moment{Time: time.Unix(1773531033, 0).UTC()}, RetryAfter: new(int64(0))}
	var all []wire.Result
	for _, n := range []int{1000, 0, 1000, 1, 3, 1000, 499, 1000, 501} {
		of := d
		of.Limits = make([]wire.LimitState, n)
		for i := range of.Limits {
			of.Limits[i] = wire.LimitState{Name: "ip-5-per-1m", Feature: "ip", Limit: 5, Window: "1m", Reset: new(int64(0))}
		}
		all = append(all, wire.Result{Status: 200, Decision: &of})
	}
	text, err := results(all).AppendTo(nil)
	require.NoError(t, err)
	var read wire.Results
	require.True(t, read.ReadPlain(text))
	for i, r := range read.Results {
		require.Len(t, r.Limits, len(all[i].Limits))
		assert.LessOrEqual(t, cap(r.Limits), 2*len(r.Limits))
	}
}

func FuzzPlain(f *testing.F) {
	for _, text := range []string{
		`{"features":{"ip":"203.0.113.9","user":"42"},"cost":3}`, "{ \"cost\" : 0 ,\n\"features\":{} }", `{"cost":1,"cost":1}`, `{"features":{"a":"1","a":"2"}}`,
		`{"features":{"a":"\u0031"}}`, `{"features":null}`, `{"cost":01}`, `{"cost":1e0}`, `{"features":{"a":"ü"}}`,
		`{"hits":[{"event":"e","features":{"ip":"203.0.113.9"}},{"event":"e","features":{"ip":"203.0.113.9","user":"1"},"cost":2},{}]}`,
		`{"hits":[{"event":"","event":"e"}]}`, `{"hits":[null,{},]}`, `{"hits":[]}`,
		`{"allowed":true,"event":"e","at":"2026-03-14T23:30:33Z","retry_after":0,"reservation":"r","limits":[` +
			`{"name":"n","feature":"ip:::1","limit":5,"window":"1m","count":3,"remaining":2,"reset":0,"allowed":true,"exact":false,"shadow":true}]}`,
		`{"results":[{"status":429,"allowed":false,"event":"e","at":"2026-03-14T23:30:33Z","retry_after":9,"retry_after_ms":20,"may_fit_after":1,"limits":[]}]}`,
		`{"results":[{"status":200` + strings.Repeat(" ", 60) + `}]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		equalUnmarshal[wire.Hit](t, text)
		equalUnmarshal[wire.Batch](t, text)
		equalUnmarshal[wire.Decision](t, text)
		equalUnmarshal[wire.Results](t, text)
	})
}
