package copies

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// payEvery is how often it is looked whether a server that is owed something is up.
	payEvery = 50 * time.Millisecond
	// A debt is made up for by a trip of adds. So many are under way at a time, and no
	// more a second are begun than paysASecond.
	paysAtOnce  = 64
	paysASecond = 20_000
)

// ledger is what servers are owed: the adds of trips that they did not acknowledge.
type ledger struct {
	set  *Set
	most int
	ctx  context.Context
	stop context.CancelFunc

	mu     sync.Mutex
	owed   map[Server]map[Hash][]debt
	n      int // debts
	paying bool
	closed bool
	others sync.WaitGroup
}

// debt is an add to the buckets of a counter. What has the same buckets is one debt.
type debt struct {
	by      int64
	buckets []uint64
	expires []int64
	due     time.Time // until then the answer may come after all
}

func newLedger(set *Set, most int) *ledger {
	l := &ledger{set: set, most: most, owed: map[Server]map[Hash][]debt{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// owe notes a debt, and sees to it that it is made up for. Where there are too many it
// is dropped, and known to be. It does not keep the slices.
func (l *ledger) owe(server Server, h Hash, by int64, buckets []uint64, expires []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	debts := l.owed[server]
	if debts == nil {
		debts = map[Hash][]debt{}
		l.owed[server] = debts
	}
	due := time.Now().Add(2 * l.set.timeout)
	if d := find(debts[h], buckets); d != nil {
		d.by += by
		d.due = due
		return
	}
	if l.n >= l.most {
		l.set.Gap()
		return
	}
	l.n++
	debts[h] = append(debts[h], debt{by, slices.Clone(buckets), slices.Clone(expires), due})
	if !l.paying {
		l.paying = true
		l.others.Go(l.pay)
	}
}

// find returns the debt with these buckets. That of this very second is the last one.
func find(debts []debt, buckets []uint64) *debt {
	for i := len(debts) - 1; i >= 0; i-- {
		if slices.Equal(debts[i].buckets, buckets) {
			return &debts[i]
		}
	}
	return nil
}

// credit takes from a debt what was acknowledged after all.
func (l *ledger) credit(server Server, h Hash, by int64, buckets []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	debts := l.owed[server][h]
	d := find(debts, buckets)
	if d == nil {
		return
	}
	if d.by -= by; d.by <= 0 {
		l.owed[server][h] = slices.DeleteFunc(debts, func(d debt) bool { return d.by <= 0 })
		l.n--
	}
}

// forgive drops debts to buckets of the counter, which are deleted.
func (l *ledger) forgive(h Hash, buckets []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, debts := range l.owed {
		before := len(debts[h])
		if before == 0 {
			continue
		}
		debts[h] = slices.DeleteFunc(debts[h], func(d debt) bool {
			return slices.ContainsFunc(d.buckets, func(b uint64) bool { return slices.Contains(buckets, b) })
		})
		l.n -= before - len(debts[h])
	}
}

// forget drops what a server is owed.
func (l *ledger) forget(server Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, debts := range l.owed[server] {
		l.n -= len(debts)
	}
	delete(l.owed, server)
}

func (l *ledger) size() (debts, servers int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n, len(l.owed)
}

func (l *ledger) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.others.Wait()
}

// pay makes up for debts until there are none.
func (l *ledger) pay() {
	pace := rate.NewLimiter(paysASecond, paysAtOnce)
	ticker := time.NewTicker(payEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-l.ctx.Done():
			return
		}
		for _, server := range l.payable() {
			for l.payBatch(server, pace) {
			}
		}
		if l.done() {
			return
		}
	}
}

func (l *ledger) payable() []Server {
	l.mu.Lock()
	defer l.mu.Unlock()
	var servers []Server
	for server := range l.owed {
		if server.Up() {
			servers = append(servers, server)
		}
	}
	return servers
}

// done reports whether there is nothing left to pay, and the paying ends.
func (l *ledger) done() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for server, debts := range l.owed {
		if len(debts) == 0 {
			delete(l.owed, server)
		}
	}
	l.paying = l.n > 0
	return !l.paying
}

// payBatch makes up for some of what a server is owed. It reports whether all of that
// was acknowledged and there is more.
func (l *ledger) payBatch(server Server, pace *rate.Limiter) (more bool) {
	batch := l.take(server)
	if len(batch) == 0 {
		return false
	}
	if pace.WaitN(l.ctx, len(batch)) != nil {
		return false // the set is closed
	}
	ended := make(chan int, len(batch))
	deadline := time.Now().Add(l.set.timeout)
	exchanges := make([]Exchange, len(batch))
	for i, p := range batch {
		exchanges[i] = server.Start(l.ctx, deadline, Counter{Hash: p.hash}, p.by, p.buckets, p.expires, nil, i, ended)
	}
	var left []payment
	for range batch {
		i := <-ended
		p := batch[i]
		landed, err := exchanges[i].End(make([]int64, len(p.buckets)))
		if err != nil {
			// What is not known to have been added is added again.
			p.buckets, p.expires = p.buckets[landed:], p.expires[landed:]
			left = append(left, p)
		}
	}
	l.giveBack(server, left)
	return len(left) == 0
}

// payment is a debt that is being made up for.
type payment struct {
	hash Hash
	debt
}

// take takes some debts out of the ledger, without those whose buckets have expired.
func (l *ledger) take(server Server) (batch []payment) {
	now, second := time.Now(), l.set.now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	for h, debts := range l.owed[server] {
		for len(debts) > 0 && len(batch) < paysAtOnce && !debts[0].due.After(now) {
			d := debts[0]
			debts = debts[1:]
			l.n--
			if slices.Max(d.expires) > second {
				batch = append(batch, payment{h, d})
			}
		}
		if len(debts) == 0 {
			delete(l.owed[server], h)
		} else {
			l.owed[server][h] = debts
		}
		if len(batch) == paysAtOnce {
			break
		}
	}
	return batch
}

// giveBack owes again what could not be made up for.
func (l *ledger) giveBack(server Server, batch []payment) {
	for _, p := range batch {
		if len(p.buckets) > 0 && l.set.topology.Load().has(server) {
			l.owe(server, p.hash, p.by, p.buckets, p.expires)
		}
	}
}
