package service

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

var someReservation = Reservation{
	{Counter: "\x00hash", Retention: events.MaxRetention, Precision: events.Minute, ID: 1<<55 + 5, Time: 1_800_000_000_000, Ends: 1_800_000_030_000, Cost: 1_000_000},
	{Counter: "\x00hash", Retention: time.Hour, Engine: 2, ID: 7, Time: 1_800_000_000_001, Ends: 1_800_000_030_000, Cost: 1, Lease: 30 * time.Second},
}

// A reservation is read as it was written, by the processes with the same secret alone. Each altered
// character makes it none.
func TestReservations(t *testing.T) {
	secret, other := SealOf([]byte("0123456789abcdef")), SealOf([]byte("0123456789abcdeg"))
	for _, seal := range [][]byte{nil, secret} {
		text, err := someReservation.seal(seal)
		require.NoError(t, err)
		assert.Less(t, len(text), 200)
		var read Reservation
		require.NoError(t, read.open(text, seal))
		assert.Equal(t, someReservation, read)
		for i := range text {
			for _, c := range []string{"A", "_", "", "=", "\n"} {
				if altered := text[:i] + c + text[i+1:]; altered != text {
					require.ErrorIs(t, read.open(altered, seal), engine.ErrOutOfRange, "%q at %d", c, i)
				}
			}
		}
		require.ErrorIs(t, read.open(text[:9]+"\n"+text[9:], seal), engine.ErrOutOfRange, "a decoder passes over it")
		for _, foreign := range [][]byte{nil, secret, other} {
			if string(foreign) != string(seal) {
				require.Error(t, read.open(text, foreign))
			}
		}
		require.Error(t, read.open(strings.Repeat("A", MaxReservation+1), seal))
	}
	text, err := someReservation.seal(secret)
	require.NoError(t, err)
	again, err := someReservation.seal(secret)
	require.NoError(t, err)
	assert.NotEqual(t, text, again, "nothing is to be learned from two of them")
}

// FuzzReservation reads any content, and writes again what it has read.
func FuzzReservation(f *testing.F) {
	f.Add(someReservation.append(nil))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again Reservation
		if r.read(b) != nil {
			require.Zero(t, r)
			return
		}
		require.NoError(t, again.read(r.append(nil)))
		require.Equal(t, r, again)
		if text, err := r.seal(nil); err == nil {
			require.NoError(t, again.open(text, nil))
			require.Equal(t, r, again)
		}
	})
}

// What cannot be read again is not sealed: a hit then has no reservation, rather than one of no use.
func TestOnlyWhatIsReadIsSealed(t *testing.T) {
	one := someReservation[0]
	changed := func(change func(r *engine.Reserved)) Reservation {
		r := one
		change(&r)
		return Reservation{r}
	}
	for name, r := range map[string]Reservation{
		"nothing":                 {},
		"more counters than fit":  slices.Repeat(Reservation{one}, events.MaxCounters+1),
		"longer names than fit":   {{Counter: strings.Repeat("c", MaxReservation)}},
		"a retention beyond all":  changed(func(r *engine.Reserved) { r.Retention = events.MaxRetention + time.Second }),
		"an identity of 57 bits":  changed(func(r *engine.Reserved) { r.ID = 1 << engine.IDBits }),
		"a time after the format": changed(func(r *engine.Reserved) { r.Time = 1<<46 + 1 }),
	} {
		for _, seal := range [][]byte{nil, SealOf([]byte("0123456789abcdef"))} {
			text, err := r.seal(seal)
			require.ErrorIs(t, err, engine.ErrOutOfRange, name)
			assert.Empty(t, text)
		}
	}
	for name, r := range map[string]Reservation{
		"as many counters as a hit has": slices.Repeat(Reservation{{Counter: strings.Repeat("c", 127), Retention: events.MaxRetention, Time: 1 << 46, Ends: 1 << 46, Cost: 1_000_000, Lease: 24 * time.Hour}}, events.MaxCounters),
		"a month of a calendar":         changed(func(r *engine.Reserved) { r.Retention = events.MaxRetention }),
	} {
		_, err := r.seal(SealOf([]byte("0123456789abcdef")))
		require.NoError(t, err, name)
	}
}
