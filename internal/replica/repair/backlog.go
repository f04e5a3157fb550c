package repair

import (
	"sync"
	"time"
)

const (
	// A counter whose replicas were seen to differ has a cooldown after its repair, which
	// doubles each time that there was nothing to raise: adds under way reach the replicas
	// at different moments.
	firstCooldown, lastCooldown = 10 * time.Second, time.Hour
	// maxLeft bounds what a Repairer has to come back to.
	maxLeft = 1 << 16
)

// backlog is what a Repairer has to come back to, beside a pass over all counters.
type backlog struct {
	mu        sync.Mutex
	fresh     []Counter       // noted for the first time during the pass, as far as there is room
	left      map[string]bool // not repaired: to be tried again
	again     bool            // so many that they were not written down
	failed    int             // of left, when a repair ended last
	cooldowns map[string]cooldown
}

// cooldown is until when a counter is left alone whose replicas differ.
type cooldown struct {
	until time.Time
	step  time.Duration
}

func newBacklog() *backlog {
	return &backlog{left: map[string]bool{}, cooldowns: map[string]cooldown{}}
}

// begin empties the backlog for a pass over all counters.
func (b *backlog) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.left)
	b.fresh, b.again, b.failed = nil, false, 0
}

// come notes a counter that came during a pass.
func (b *backlog) come(c Counter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.fresh) < maxLeft {
		b.fresh = append(b.fresh, c)
	}
}

// leave notes counters that have to be repaired.
func (b *backlog) leave(ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		b.put(id)
	}
}

// put notes a counter that is not repaired. The backlog is locked.
func (b *backlog) put(id string) {
	if len(b.left) < maxLeft {
		b.left[id] = true
	} else {
		b.again = true
	}
	b.failed = len(b.left)
}

// ended notes what became of the repair of a counter.
func (b *backlog) ended(id string, raised int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.put(id)
	} else {
		delete(b.left, id)
		b.failed = len(b.left)
	}
	quiet, found := b.cooldowns[id]
	if !found {
		return // its repair was not for differing replicas
	}
	quiet.step = min(2*quiet.step, lastCooldown)
	if raised > 0 {
		quiet.step = firstCooldown
	}
	quiet.until = time.Now().Add(quiet.step)
	b.cooldowns[id] = quiet
}

// size returns how many counters failed, and whether there are more than were written down.
func (b *backlog) size() (failed int, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed, b.again
}

// isEmpty reports whether no counter has to be tried again.
func (b *backlog) isEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.again && len(b.left) == 0
}

// takeLeft returns the counters whose repair failed.
func (b *backlog) takeLeft() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.left
	b.left = map[string]bool{}
	return left
}

// takeFresh returns the counters that came during the pass.
func (b *backlog) takeFresh() []Counter {
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh := b.fresh
	b.fresh = nil
	return fresh
}

// isDue reports whether a counter whose replicas differ is to be repaired now.
func (b *backlog) isDue(id string) bool {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	quiet, found := b.cooldowns[id]
	if found && now.Before(quiet.until) {
		return false
	}
	if !found && len(b.cooldowns) >= maxLeft {
		for other, quiet := range b.cooldowns {
			if now.After(quiet.until) {
				delete(b.cooldowns, other)
			}
		}
		if len(b.cooldowns) >= maxLeft {
			return false
		}
	}
	if !found {
		b.cooldowns[id] = cooldown{step: firstCooldown}
	}
	return true
}
