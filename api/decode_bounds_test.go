package api_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
)

// allocated returns how many bytes do allocates, all together.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestBoundsOfBodies(t *testing.T) {
	assert.Equal(t, limiter.MaxHits, wire.MaxHits)
	assert.Equal(t, limiter.MaxHits*events.MaxFeatureKinds, wire.MaxFeatures)
}

// Bodies of a mebibyte that are cheap to send take no more memory than honest ones.
func TestHostileBodiesTakeLittleMemory(t *testing.T) {
	s := newServer()
	s.Handler = bare(s.Handler)
	var kinds strings.Builder
	for i := range 90_000 {
		fmt.Fprintf(&kinds, `"k%x":"",`, i)
	}
	features := "{" + strings.TrimSuffix(kinds.String(), ",") + "}"
	const (
		override = "/v1/events/url_shorten/override"
		batch    = "/v1/batch"
		hit      = "/v1/events/url_shorten/hit"
		add      = "/v1/events/url_shorten/increment"
		honest   = 16 << 20       // the text, read in growing pieces, and twice what is made of it
		most     = 300 << 20 / 24 // of a body that is faulty from a list on: 24 at once take at most 300 MiB
	)
	for name, test := range map[string]struct{ target, body, detail string }{
		"empty hits":     {batch, `{"hits":[` + strings.Repeat("{},", 333_000) + `{}]}`, "/hits: a batch is of 1 to 1000 hits, not of more"},
		"hits, not pure": {batch, `{"hits":[{"features":{"user":"\u0041"}},` + strings.Repeat("{},", 333_000) + `{}]}`, "/hits: a batch is of 1 to 1000 hits, not of more"},
		"empty rates":    {override, `{"rates":[` + strings.Repeat(`"",`, 349_000) + `""]}`, "/rates: an override has at most 8 rates"},
		"nulls":          {batch, `{"hits":[` + strings.Repeat("null,", 200_000) + `null]}`, "/hits/0: an object is wanted"},
		"features":       {hit, `{"features":` + features + `}`, "a body has at most 16000 features"},
		"added features": {add, `{"features":` + features + `}`, "a body has at most 16000 features"},
		"features of many hits": {
			batch, `{"hits":[` + strings.Repeat(`{"features":{"a":"","b":"","c":"","d":"","e":"","f":"","g":"","h":"","i":"","j":"","k":"","l":"","m":"","n":"","o":"","p":"","q":""}},`, 990) + `{}]}`,
			"a body has at most 16000 features",
		},
		"features twice":     {hit, `{"features":{` + strings.Repeat(`"a":"",`, 140_000) + `"a":""}}`, "/features/a: the field is given twice"},
		"an object as value": {batch, `{"hits":[{"event":` + features + `}]}`, "/hits/0/event: a string is wanted"},
		"a list as value":    {hit, `{"cost":[` + strings.Repeat("1,", 500_000) + `1]}`, "/cost: a whole number is wanted"},
		"a list as time":     {add, `{"at":[` + strings.Repeat("1,", 500_000) + `1]}`, "/at: " + wire.ErrMoment.Error()},
		"depth":              {hit, `{"features":` + strings.Repeat("[", 1_000_000), "/features: an object of kind: value is wanted"},
		"depth of objects":   {batch, strings.Repeat(`{"hits":`, 120_000), "/hits: a list is wanted"},
		"digits":             {hit, `{"cost":` + strings.Repeat("9", 1_000_000) + `}`, "/cost: the number is too large"},
		"digits of a time":   {add, `{"at":` + strings.Repeat("9", 1_000_000) + `}`, "/at: " + wire.ErrMoment.Error()},
		"an exponent":        {hit, `{"cost":1e999999}`, "/cost: the number is too large"},
		"a long value":       {hit, `{"features":{"user":"` + strings.Repeat("x", 1_000_000) + `"}}`, "/features: no limit of url_shorten is per the features given: wanted are ip"},
	} {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(test.body), 1<<20)
			var detail string
			taken := allocated(func() {
				detail = problem(t, request(t, s, "POST", test.target, test.body), http.StatusBadRequest).Detail
			})
			assert.Equal(t, test.detail, detail)
			assert.Less(t, taken, uint64(honest))
			if strings.HasPrefix(detail, "/hits: ") || strings.HasPrefix(detail, "/rates: ") {
				assert.Less(t, taken, uint64(most))
			}
		})
	}
}

// What is wrong with the features of one hit does not fail the others.
func TestTooManyFeaturesAreTheHitsOwnFault(t *testing.T) {
	l := newLimits(t, "events: {e: {limits: [{per: user, rate: 10/d}]}}")
	many := map[string]string{}
	for i := range events.MaxFeatureKinds + 1 {
		many[fmt.Sprintf("k%d", i)] = "x"
	}
	results := batchOf(t, l, wire.BatchHit{Event: "e", Features: many}, wire.BatchHit{Event: "e", Features: map[string]string{"user": "42"}})
	require.Equal(t, []int{400, 200}, statuses(results))
	assert.Equal(t, "/hits/0/features: a request has at most 16 features, this one has more", results[0].Detail)
}
