package service

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/seal"
)

// MaxReservation is the most characters of a reservation.
const MaxReservation = 16 << 10

// Reservation is what a hit has reserved, in a form that clients keep: a text without any meaning to them,
// which each process can settle by itself.
type Reservation []engine.Reserved

var (
	errNoReservation = engine.OutOfRange(engine.ArgReservation, "it is no reservation of this fleet: send it as it came")
	errUnsealed      = engine.OutOfRange(engine.ArgReserve, "the server reserves only with -key-secret where it has -tokens")
	errUnsettled     = engine.OutOfRange(engine.ArgReservation, "the server settles only with -key-secret where it has -tokens")
)

// SealOf returns what seals reservations by a secret.
func SealOf(secret []byte) []byte { return seal.KeyOf(secret, "counterd: reservations") }

const maxReserved = events.MaxCounters

// seal returns the text of the reservation, which open reads.
func (r Reservation) seal(key []byte) (string, error) {
	content := r.append(nil)
	b, err := seal.Key(key).Seal(content)
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(b)
	var again Reservation
	if err := again.read(content); err != nil || len(text) > MaxReservation {
		return "", errNoReservation
	}
	return text, nil
}

// open reads the text of a reservation. One that was altered, or that is of another fleet, is an error.
func (r *Reservation) open(text string, key []byte) error {
	if len(text) > MaxReservation {
		return errNoReservation
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || base64.RawURLEncoding.EncodeToString(b) != text {
		return errNoReservation
	}
	content, ok := seal.Key(key).Open(b)
	if !ok {
		return errNoReservation
	}
	return r.read(content)
}

// append appends the content: of each counter what an engine needs.
func (r Reservation) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(r)))
	for i := range r {
		one := &r[i]
		b = append(b, byte(one.Engine), byte(one.Precision))
		b = appendText(b, one.Counter)
		b = binary.BigEndian.AppendUint64(b, one.ID)
		for _, n := range []int64{
			int64(one.Retention / time.Second), one.Time, one.Ends, one.Cost, one.Lease.Milliseconds(),
		} {
			b = binary.AppendUvarint(b, uint64(n))
		}
		turn := byte(0)
		if one.Turn {
			turn = 1
		}
		b = append(b, turn)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// read undoes append.
func (r *Reservation) read(b []byte) error {
	c := content{rest: b}
	*r = nil
	for n := c.number(maxReserved); n > 0; n-- {
		one := engine.Reserved{Engine: c.byte(math.MaxInt8), Precision: events.Precision(c.byte(int64(events.Hour)))}
		one.Counter, one.ID = c.text(MaxReservation), c.word()
		one.Retention = time.Duration(c.number(int64(events.MaxRetention/time.Second))) * time.Second
		one.Time, one.Ends = c.number(1<<46), c.number(1<<46)
		one.Cost = c.number(limiter.MaxCost)
		one.Lease = time.Duration(c.number(events.MaxWindow.Milliseconds())) * time.Millisecond
		one.Turn = c.byte(1) == 1
		c.bad = c.bad || one.ID>>engine.IDBits != 0
		*r = append(*r, one)
	}
	if c.bad || len(c.rest) > 0 || len(*r) == 0 {
		*r = nil
		return errNoReservation
	}
	return nil
}

// content is what is left to read. After a fault it is empty.
type content struct {
	rest []byte
	bad  bool
}

func (c *content) take(n int) []byte {
	if n > len(c.rest) {
		c.rest, c.bad = nil, true
		return nil
	}
	taken := c.rest[:n]
	c.rest = c.rest[n:]
	return taken
}

// number returns the next number, which is at most most.
func (c *content) number(most int64) int64 {
	n, size := binary.Uvarint(c.rest)
	if size <= 0 || n > uint64(most) {
		c.rest, c.bad = nil, true
		return 0
	}
	c.rest = c.rest[size:]
	return int64(n)
}

func (c *content) byte(most int64) int {
	if b := c.take(1); len(b) == 1 && int64(b[0]) <= most {
		return int(b[0])
	}
	c.rest, c.bad = nil, true
	return 0
}

func (c *content) word() uint64 {
	if b := c.take(8); len(b) == 8 {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (c *content) text(most int64) string { return string(c.take(int(c.number(most)))) }

// Reserve adds a hit of which the cost is an estimate, and decides it: Settle takes the true cost, for so
// long; 0: the cost is final. See Hit.
func (s *Service) Reserve(ctx context.Context, event Event, features events.Features, cost int64, reserve time.Duration) (events.Decision, error) {
	result := s.ReserveUnsealed(ctx, event, features, cost, reserve)
	result.Decision.Reservation = s.ReservationOf(result.Reserved)
	return result.Decision, result.Err
}

// ReserveUnsealed is Reserve without the Reservation of the decision.
func (s *Service) ReserveUnsealed(ctx context.Context, event Event, features events.Features, cost int64, reserve time.Duration) limiter.Result {
	if err := s.CheckReserve(reserve); err != nil {
		return limiter.Result{Err: err}
	}
	return s.Decide(ctx, limiter.Hit{Event: event.Event, Features: features, Cost: cost, Reserved: reserve}, limiter.CallHit)
}

// CheckReserve returns why a hit may not reserve for so long; 0: it does not reserve.
func (s *Service) CheckReserve(reserve time.Duration) error {
	if reserve > 0 && s.config.Unsealed {
		return errUnsealed
	}
	return nil
}

// ReservationOf returns what a hit has reserved in the form that clients keep. It is empty if that is nothing, or if
// clients could alter it.
func (s *Service) ReservationOf(reserved []engine.Reserved) string {
	if len(reserved) == 0 || s.config.Unsealed {
		return ""
	}
	text, err := Reservation(reserved).seal(s.config.Seal)
	if err != nil {
		return ""
	}
	return text
}

// Release settles what a decided hit has reserved with the cost 0, and releases its leases. See
// counting.Counters.Settle.
func (s *Service) Release(ctx context.Context, reserved []engine.Reserved) error {
	if err := s.calls.enter(); err != nil {
		return err
	}
	defer s.calls.leave()
	return s.config.Counters.Settle(ctx, reserved, 0)
}

// Extend has the leases among what a decided hit has reserved end no sooner than so much after now, and returns
// what is reserved then, after an error of the store, too. See counting.Counters.Renew.
func (s *Service) Extend(ctx context.Context, reserved []engine.Reserved, by time.Duration) ([]engine.Reserved, error) {
	if err := s.calls.enter(); err != nil {
		return nil, err
	}
	defer s.calls.leave()
	return s.config.Counters.Renew(ctx, reserved, by)
}

// Settle settles a reservation by its true cost, and releases its leases. See counting.Counters.Settle.
func (s *Service) Settle(ctx context.Context, reservation string, cost int64) error {
	if err := s.calls.enter(); err != nil {
		return err
	}
	defer s.calls.leave()
	r, err := s.read(reservation)
	if err := errors.Join(err, checkSettled(cost)); err != nil {
		return err
	}
	return s.config.Counters.Settle(ctx, r, cost)
}

// read reads the text of a reservation. One that no hit can have made is an error: without a secret a client could
// otherwise carry the log of a counter far into the future.
func (s *Service) read(text string) (r Reservation, err error) {
	if s.config.Unsealed {
		return nil, errUnsettled
	}
	if err := r.open(text, s.config.Seal); err != nil {
		return nil, err
	}
	for i := range r {
		if !s.config.Limiter.MayHave(&r[i]) {
			return nil, errNoReservation
		}
		if len(s.config.Seal) == 0 {
			r[i].Ahead = s.config.Limiter.Ahead(&r[i])
		}
		if r[i].Ahead > maxAhead {
			return nil, errNoReservation
		}
	}
	return r, nil
}

// maxAhead is by how much the clock of a process may be wrong that has carried a log ahead.
const maxAhead = 24 * time.Hour

func checkSettled(cost int64) error {
	if cost < 0 || cost > limiter.MaxCost {
		return engine.OutOfRange(engine.ArgCost, "it is 0 to %d", limiter.MaxCost)
	}
	return nil
}

// Renew has the leases of a reservation end no sooner than so much after now, and returns the new one. See
// counting.Counters.Renew.
func (s *Service) Renew(ctx context.Context, reservation string, by time.Duration) (string, error) {
	if err := s.calls.enter(); err != nil {
		return "", err
	}
	defer s.calls.leave()
	r, err := s.read(reservation)
	if err != nil {
		return "", err
	}
	renewed, err := s.config.Counters.Renew(ctx, r, by)
	if err != nil {
		return "", err
	}
	return Reservation(renewed).seal(s.config.Seal)
}
