package hierarchy

import (
	"sync"
	"time"
)

const (
	// denialLife is how long a denial is remembered, from the beginning of the
	// trip that showed it.
	denialLife = time.Second
	// maxDenials bounds the memory of denials. Beyond it those whose time is over
	// are forgotten, and if that does not help, all.
	maxDenials = 1 << 16
)

// denials remembers which limits denied. While a denial is remembered it is given
// again without asking; after that, one has to look for room before adding: a
// flood of denied hits, each in place for a moment, would else keep everybody
// out.
type denials struct {
	mu   sync.Mutex
	list map[denialKey]*denial
}

// denialKey is what a denial depends on.
type denialKey struct {
	counter string
	window  time.Duration
	ceiling int64
	cost    int64
}

// denial is what is remembered. It is not changed once it is in the list.
type denial struct {
	until time.Time
	count int64
	fits  int64 // first second in which the hit fits; 0: never
}

// wait returns how long after the second the hit fits.
func (d *denial) wait(second int64) Wait {
	if d.fits == 0 {
		return Never
	}
	return Wait(max(d.fits-second, 1))
}

func keyOf(u *use, cost int64) denialKey {
	return denialKey{u.claim.id, u.check.limit.Window, u.check.ceiling, cost}
}

// recall returns the denial that is remembered now, or nil; wary is true where one
// was and no room has been seen since.
func (d *denials) recall(key denialKey, now time.Time) (remembered *denial, wary bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.list[key]
	if found == nil || now.Before(found.until) {
		return found, false
	}
	return nil, true
}

func (d *denials) remember(key denialKey, found *denial, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.list == nil {
		d.list = map[denialKey]*denial{}
	}
	if len(d.list) >= maxDenials {
		for key, old := range d.list {
			if !now.Before(old.until) {
				delete(d.list, key)
			}
		}
		if len(d.list) >= maxDenials {
			clear(d.list)
		}
	}
	d.list[key] = found
}

func (d *denials) forget(key denialKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.list, key)
}
