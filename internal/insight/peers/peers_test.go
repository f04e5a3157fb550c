package peers

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/testkit"
)

func TestCheck(t *testing.T) {
	many := make([]string, Max+1)
	for i := range many {
		many[i] = fmt.Sprintf("http://10.0.0.%d:8080", i)
	}
	require.NoError(t, Check(many[:Max]))
	require.NoError(t, Check([]string{"https://counterd.example"}))
	for fault, urls := range map[string][]string{
		"at most 64":   many,
		"no URL":       {"10.0.0.1:8080"},
		`"" is no URL`: {""},
		"twice":        {many[0], many[1], many[0]},
	} {
		assert.ErrorContains(t, Check(urls), fault)
	}
}

// The sum of the lists of several processes holds what each feature had in all, within its error, whatever part of
// them each process lists; and what is not listed had at most the rest.
func TestMerge(t *testing.T) {
	for seed := range testkit.Seeds(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		hits, lists := map[string]int64{}, []wire.Top{}
		for range 1 + rng.IntN(4) {
			one := top.New(top.Config{Size: 16 * (1 + rng.IntN(4)), Clock: testkit.NewClock(time.Time{}).Now})
			zipf := rand.NewZipf(rng, 1.1, 1, 299)
			for range rng.IntN(3000) {
				counter, _ := events.CounterOf([]byte("login"), 0, [2]string{"user", fmt.Sprint(zipf.Uint64())})
				hits[counter.Feature.String()]++
				one.Add(top.Denied, top.Key{Event: "login", Feature: counter.Feature}, "minute")
			}
			list := wireOf(one.List(top.Query{Outcome: top.Denied, N: 1 + rng.IntN(100), Window: time.Hour}))
			require.NoError(t, check(list))
			lists = append(lists, list)
		}
		merged := merge(lists, 1+rng.IntN(50))
		listed := map[string]bool{}
		for i, one := range merged.Features {
			listed[one.Feature] = true
			require.LessOrEqual(t, hits[one.Feature], one.Count, seed)
			require.GreaterOrEqual(t, hits[one.Feature], one.Count-one.Error, seed)
			require.LessOrEqual(t, one.Limits[0].Count, hits[one.Feature], seed)
			require.True(t, i == 0 || one.Count <= merged.Features[i-1].Count)
		}
		for feature, n := range hits {
			require.True(t, listed[feature] || n <= merged.Rest, "%d: %s had %d hits", seed, feature, n)
		}
	}
}

// A process without peers has an id, too: other processes may ask it.
func TestProcessesHaveIDs(t *testing.T) {
	one, other := New(nil), New(nil)
	assert.NotEmpty(t, one.Alone(top.List{}).Process)
	assert.NotEqual(t, one.Alone(top.List{}).Process, other.Alone(top.List{}).Process)
	assert.Equal(t, top.Query{N: 3}, one.Asked(top.Query{N: 3}))
	var none *Fleet
	for _, f := range []*Fleet{one, none} {
		assert.Equal(t, wireOf(top.List{}), f.Top(t.Context(), "", top.List{}, top.Query{N: 3}))
		assert.Equal(t, 1, f.Processes())
	}
}

// A program that embeds the package may have replaced the default transport by one of another type.
func TestAReplacedDefaultTransport(t *testing.T) {
	usual := http.DefaultTransport
	defer func() { http.DefaultTransport = usual }()
	http.DefaultTransport = struct{ http.RoundTripper }{usual}
	f := New(nil)
	defer f.Close()
	assert.Nil(t, f.transport.Proxy)
	assert.EqualValues(t, maxHeader, f.transport.MaxResponseHeaderBytes)
}
