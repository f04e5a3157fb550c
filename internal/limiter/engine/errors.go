package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/counterd/counterd/internal/store"
)

var (
	// ErrStore is what every error wraps that came from the store: it could not
	// be reached, or not in time. Of an increment that fails with it a part may
	// have been counted.
	ErrStore = errors.New("engine: store failed")
	// ErrOverload is why the store was not asked: too much waited for it. It wraps
	// ErrStore, and nothing was counted.
	ErrOverload = fmt.Errorf("%w: too much waits for it", ErrStore)
	// ErrBadCounter is what an error wraps where an item of the counter holds nothing that counts:
	// it is damaged, or another client of the server wrote it. It wraps ErrStore; other counters are unharmed.
	// The counter fails until the item expires, or a Reset deletes it.
	ErrBadCounter = fmt.Errorf("%w: bad counter", ErrStore)
	// ErrEnded is the error of a reservation or a lease that has ended.
	ErrEnded = errors.New("engine: the reservation has ended")
	// ErrAhead is the cause of an AheadError.
	ErrAhead = errors.New("engine: a clock that is ahead has stamped the reservation")
	// ErrSettled is the error of a reservation that was settled with another cost.
	ErrSettled = errors.New("engine: the reservation was settled with another cost")
	// ErrOutOfRange is what every RangeError wraps.
	ErrOutOfRange = errors.New("engine: out of range")
)

// StoreError wraps an error of the store.
func StoreError(err error) error {
	if errors.Is(err, store.ErrNoCount) || errors.Is(err, store.ErrNoData) {
		return fmt.Errorf("%w: %w", ErrBadCounter, err)
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}

// Argument names an argument of a call.
type Argument string

// The arguments that a RangeError can name.
const (
	ArgBy     Argument = "by"
	ArgAt     Argument = "at"
	ArgWindow Argument = "window"
	ArgLevel  Argument = "level"
	ArgFrom   Argument = "from"
	ArgTo     Argument = "to"
	ArgCost   Argument = "cost"
	ArgHits   Argument = "hits"
	ArgRenew  Argument = "renew"
	ArgUntil  Argument = "until"

	ArgReserve     Argument = "reserve"
	ArgReservation Argument = "reservation"

	ArgCounters Argument = "counters"
)

// RangeError says that an argument lies outside of what the counter can answer.
// It wraps ErrOutOfRange.
type RangeError struct {
	Argument Argument
	Reason   string
}

func (e *RangeError) Error() string { return fmt.Sprintf("%s: %s", e.Argument, e.Reason) }

func (e *RangeError) Unwrap() error { return ErrOutOfRange }

// OutOfRange returns a *RangeError.
func OutOfRange(a Argument, format string, args ...any) error {
	return &RangeError{a, fmt.Sprintf(format, args...)}
}

// AheadError is the error of a reservation that a clock which is ahead has stamped: it is to be sent again After that
// time. It wraps ErrAhead.
type AheadError struct{ After time.Duration }

func (e *AheadError) Error() string { return ErrAhead.Error() }

func (e *AheadError) Unwrap() error { return ErrAhead }
