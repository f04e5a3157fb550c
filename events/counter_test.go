package events

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func counterOf(t *testing.T, event string, features Features) Counter {
	t.Helper()
	counter, err := (&Event{Name: event, Rules: []Rule{{}}}).Counter(features)
	require.NoError(t, err)
	return counter
}

// Counters whose texts, put together without lengths, would be the same.
func TestCountersThatLookAlikeHaveTheirOwnIDs(t *testing.T) {
	counters := []Counter{
		counterOf(t, "a", nil),
		counterOf(t, "a", Features{"b": "c"}),
		counterOf(t, "ab", Features{"c": "c"}),
		counterOf(t, "a", Features{"bc": "c"}),
		counterOf(t, "a", Features{"b": "cc"}),
		counterOf(t, "a", Features{"b": "c", "d": "e"}),
		counterOf(t, "a", Features{"b": "cde"}),
		counterOf(t, "a", Features{"b": "c\x01d\x01e"}),
		counterOf(t, "a", Features{"b": "c+d:e"}),
		counterOf(t, "a", Features{"b": "e", "d": "c"}),
	}
	ids := make(map[string]bool)
	for _, counter := range counters {
		assert.False(t, ids[counter.ID()], "%v", counter)
		ids[counter.ID()] = true
	}
}

func TestIDIsOfEventAndFeatureAlone(t *testing.T) {
	a := counterOf(t, "e", Features{"user": "42", "ip": "::ffff:192.0.2.1"})
	b := counterOf(t, "e", Features{"ip": "192.0.2.1", "user": "42"})
	b.Retention, b.Precision = time.Hour, Hour
	assert.Equal(t, a.ID(), b.ID())
	assert.True(t, a.Feature == b.Feature)
}

// An ID from which event and features can be read again is shared by no two
// counters.
func FuzzCounterID(f *testing.F) {
	f.Add("e", "user", "42", "email", "a@example.com")
	f.Add("e", "a", "b\x01c", "d", "\x00\r\n")
	f.Add("e", "a", string(make([]byte, 300)), "b", "é")
	f.Fuzz(func(t *testing.T, event, kind1, value1, kind2, value2 string) {
		features := Features{kind1: value1, kind2: value2}
		delete(features, KindIP) // not counted as given
		if !ValidName(event) || features.Validate() != nil || len(features) == 0 {
			t.Skip()
		}
		counter := counterOf(t, event, features)
		again, rest := cutString(counter.ID())
		require.Equal(t, event, again)
		require.Equal(t, features, Features(maps.Collect(Feature{rest}.All())))
	})
}
