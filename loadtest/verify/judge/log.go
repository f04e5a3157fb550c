package judge

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/loadtest/verify/contract"
)

// Kind is a kind of call.
type Kind uint8

// The kinds of calls whose answers are kept.
const (
	Hit Kind = iota
	Batch
	Check
	Increment
	Late   // an increment of the past
	Count  // or a history
	Forget // a counter
	Settle // a hit: its leases are released
	Renew  // leases: they are released, and others are taken
	Kinds  // how many there are
)

// String returns its name.
func (k Kind) String() string {
	return [Kinds]string{"hit", "batch", "check", "increment", "late", "count", "reset", "settle", "renew"}[k]
}

// Outcome is what became of a call.
type Outcome uint8

// The outcomes of calls.
const (
	Admitted Outcome = iota // or acknowledged
	Denied
	Unknown // it may have been counted
	Refused // nothing was done
)

// Call is one exchange of a client with a target, by their numbers. Times are nanoseconds since
// the log began.
type Call struct {
	Sent, Answered int64
	Client, Target uint16
}

func (c Call) took() time.Duration { return time.Duration(c.Answered - c.Sent) }

// Entry is one call, or one hit of a batch, as its client saw it.
type Entry struct {
	Call
	Stamp      int64  // Unix seconds; 0: not told
	Denies     uint64 // the limits that deny, by their bits
	Incomplete uint64 // limits with an incomplete state
	OnError    uint64 // those decided by on_error
	Inexact    uint64 // those with an upper bound for a count
	User       int32
	Cost       int32
	RetryAfter int32 // seconds, or contract.Never
	Renewed    int32 // seconds for which a renewal has leases last at the least
	Renews     int32 // the entry that has taken them
	Kind       Kind
	Outcome    Outcome
}

func (e Entry) isHit() bool { return e.Kind <= Batch }

// takesLeases reports whether the entry takes leases if it is admitted.
func (e Entry) takesLeases() bool { return e.isHit() || e.Kind == Renew }

// Look is an answer to a count, or a bucket of a history: what it surely spans, what it spans at the
// most, and what that holds.
type Look struct {
	Call
	Counter     int32
	Bucket      bool
	Least, Most Times
	Count       int64
}

// Reset is a counter that was forgotten, or may have been in part.
type Reset struct {
	Call
	Counter int32
	Done    bool // it was acknowledged

	effective bool  // what was before it is gone for good
	underWay  int64 // the cost of what was under way at it
}

// Release is what releases the leases of an entry, or renews them, and settles what it reserved.
type Release struct {
	Call
	Entry    int32
	Reserved bool  // the entry has reserved its cost
	Cost     int32 // the true one
	Done     bool  // it was acknowledged
}

func (r Reset) outcome() Outcome {
	if r.Done {
		return Admitted
	}
	return Unknown
}

// Log holds all answers, up to a bound. It is safe for concurrent use until it is judged.
type Log struct {
	*Users
	Began time.Time // with the reading of the monotonic clock, by which calls are timed
	// Unstamped is of answers that do not tell when they were decided: it was while their calls were under way, and
	// the stamps of entries are of their ends.
	Unstamped bool
	contract  *contract.Contract
	targets   []string // their hosts
	bound     int

	mu      sync.Mutex
	entries []Entry
	counts  []int64 // of each entry what its limits said, one behind the other
	looks   []Look
	resets  []Reset
	// releases of leases, by the entries that took them.
	releases map[int32]Release
}

// NewLog returns an empty log of so many entries and looks at most. It begins now, and has so many
// busy users.
func NewLog(c *contract.Contract, targets []string, bound, busy int) *Log {
	return &Log{Users: newUsers(c, busy), Began: time.Now(), contract: c, targets: targets, bound: bound, releases: map[int32]Release{}}
}

// Note adds an entry, with what its limits said; nil: it has none. It returns its number.
func (l *Log) Note(e Entry, counts []int64) int32 {
	if e.Kind == Late && e.Stamp != 0 {
		l.late(e.User, e.Stamp)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
	l.counts = append(l.counts, counts...)
	l.counts = append(l.counts, make([]int64, len(l.contract.Limits)-len(counts))...)
	return int32(len(l.entries) - 1)
}

// Look adds an answer to a count.
func (l *Log) Look(k Look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks = append(l.looks, k)
}

// Reset adds a reset.
func (l *Log) Reset(r Reset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resets = append(l.resets, r)
}

// Release adds a release.
func (l *Log) Release(r Release) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releases[r.Entry] = r
}

// Full reports whether it takes no more calls. Those under way are still noted.
func (l *Log) Full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)+len(l.looks) >= l.bound
}

// At returns the time of this machine's clock.
func (l *Log) At(nanoseconds int64) time.Time {
	return l.Began.Add(time.Duration(nanoseconds)).UTC()
}

func (l *Log) second(at int64) int64 { return l.At(at).Unix() }

// during returns when a call was, by clocks that differ by up to the skew.
func (l *Log) during(c Call, skew time.Duration) Times {
	return Times{l.At(c.Sent).Add(-skew).UnixMilli(), l.At(c.Answered).Add(skew).UnixMilli()}
}

// countsOf returns what the limits of the i-th entry said.
func (l *Log) countsOf(i int32) []int64 {
	width := len(l.contract.Limits)
	return l.counts[int(i)*width : (int(i)+1)*width]
}

// Event returns an entry as a violation has it, with what its limits said.
func (l *Log) Event(e Entry, counts []int64) Event {
	out := Event{
		Sent: l.At(e.Sent), Answered: l.At(e.Answered), Client: int(e.Client), Target: l.targets[e.Target],
		Call: e.Kind.String(), Cost: int64(e.Cost), Answer: e.answer(counts),
	}
	if e.Stamp != 0 && !l.Unstamped {
		out.Stamped = time.Unix(e.Stamp, 0).UTC()
	}
	return out
}

// answer is the answer to an entry, in words.
func (e Entry) answer(counts []int64) string {
	text := [...]string{"admitted", "denied", "unknown", "refused"}[e.Outcome]
	switch {
	case e.Kind == Forget && e.Outcome == Admitted:
		text = "forgotten"
	case e.Kind == Renew && e.Outcome == Admitted:
		text = fmt.Sprintf("renewed for %ds", e.Renewed)
	case e.Kind == Count, e.Kind > Check && e.Outcome == Admitted:
		text = "counted"
	case e.Outcome == Denied && e.RetryAfter == contract.Never:
		text += ", never"
	case e.Outcome == Denied:
		text += fmt.Sprintf(", again in %ds", e.RetryAfter)
	}
	if len(counts) > 0 && e.Stamp != 0 && e.Kind <= Check && !slices.Contains(counts, unlimited) {
		text += fmt.Sprintf(", count %v", counts)
	}
	if e.Incomplete != 0 {
		text += ", incomplete"
	}
	if e.OnError != 0 {
		text += ", on_error"
	}
	return text
}
