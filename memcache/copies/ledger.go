package copies

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// payEvery is how often it is looked whether a server that is owed something is up.
	payEvery = 50 * time.Millisecond
	// A server that did not acknowledge a payment is not tried again before that, at the
	// first time, and then longer and longer to the most: what it was too slow to
	// acknowledge counts once more with each try.
	payAgain     = 100 * time.Millisecond
	payAgainMost = 2 * time.Second
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
	owed   map[Server]map[Hash][]debt // the oldest first
	batch  []payment                  // under way
	n      int                        // debts, those included
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
	switch {
	case l.closed, !l.set.topology.Load().has(server):
		return // nobody will ever pay
	case l.merge(server, h, by, buckets, expires):
		return
	case l.n >= l.most:
		l.set.Gap()
		return
	}
	l.n++
	l.put(server, h, append(l.owed[server][h], debt{by, slices.Clone(buckets), slices.Clone(expires), l.nextDue()}))
	if !l.paying {
		l.paying = true
		l.others.Go(l.pay)
	}
}

// put makes these the debts to a counter on a server.
func (l *ledger) put(server Server, h Hash, debts []debt) {
	if len(debts) == 0 {
		delete(l.owed[server], h)
		return
	}
	if l.owed[server] == nil {
		l.owed[server] = map[Hash][]debt{}
	}
	l.owed[server][h] = debts
}

// nextDue returns when a debt of now is made up for. A server that was too slow to be
// waited for has answered by then, and Credit has taken note.
func (l *ledger) nextDue() time.Time { return time.Now().Add(2 * l.set.timeout) }

// find returns the debt with these buckets; nil where there is none. That of this very
// second is the last one.
func find(debts []debt, buckets []uint64) *debt {
	for i := len(debts) - 1; i >= 0; i-- {
		if slices.Equal(debts[i].buckets, buckets) {
			return &debts[i]
		}
	}
	return nil
}

// merge makes one debt of two with the same buckets, if there is such a one.
func (l *ledger) merge(server Server, h Hash, by int64, buckets []uint64, expires []int64) bool {
	d := find(l.owed[server][h], buckets)
	if d == nil {
		return false
	}
	d.by += by
	for k, at := range expires {
		d.expires[k] = max(d.expires[k], at)
	}
	d.due = l.nextDue()
	return true
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
		l.put(server, h, slices.DeleteFunc(debts, func(d debt) bool { return d.by <= 0 }))
		l.n--
	}
}

// forgive drops debts to buckets of the counter, which are deleted. One that is just
// being made up for is not tried again.
func (l *ledger) forgive(h Hash, buckets []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deleted := func(d debt) bool {
		return slices.ContainsFunc(d.buckets, func(b uint64) bool { return slices.Contains(buckets, b) })
	}
	for server, owed := range l.owed {
		before := len(owed[h])
		l.put(server, h, slices.DeleteFunc(owed[h], deleted))
		l.n -= before - len(owed[h])
	}
	for i := range l.batch {
		if p := &l.batch[i]; p.hash == h && deleted(p.debt) {
			p.forgiven = true
		}
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

// size returns how many debts there are, and of how many servers.
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
	later := map[Server]retry{}
	for {
		select {
		case <-ticker.C:
		case <-l.ctx.Done():
			return
		}
		for _, server := range l.payable() {
			again := later[server]
			if time.Now().Before(again.at) {
				continue
			}
			if l.payAll(server, pace) {
				delete(later, server)
			} else {
				later[server] = again.next(time.Now())
			}
		}
		if l.done() {
			return
		}
	}
}

// retry is when a server is tried again.
type retry struct {
	wait time.Duration
	at   time.Time
}

func (r retry) next(now time.Time) retry {
	wait := min(max(2*r.wait, payAgain), payAgainMost)
	return retry{wait, now.Add(wait)}
}

// payable returns the servers that are owed something and are up.
func (l *ledger) payable() []Server {
	l.mu.Lock()
	defer l.mu.Unlock()
	var servers []Server
	for _, m := range l.set.topology.Load().members {
		if len(l.owed[m.Server]) > 0 && m.Up() {
			servers = append(servers, m.Server)
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

// payAll makes up for what a server is owed. It reports whether all of that was
// acknowledged.
func (l *ledger) payAll(server Server, pace *rate.Limiter) bool {
	for {
		batch := l.take(server)
		if len(batch) == 0 {
			return true
		}
		if !l.payBatch(server, batch, pace) {
			return false
		}
	}
}

func (l *ledger) payBatch(server Server, batch []payment, pace *rate.Limiter) (all bool) {
	if pace.WaitN(l.ctx, len(batch)) != nil {
		return false // the set is closed
	}
	ended := make(chan int, len(batch))
	deadline := time.Now().Add(l.set.timeout)
	exchanges := make([]Exchange, len(batch))
	for i, p := range batch {
		exchanges[i] = server.Start(l.ctx, deadline, Counter{Hash: p.hash}, p.by, p.buckets, p.expires, nil, i, ended)
	}
	landed := make([]int, len(batch))
	for range batch {
		i := <-ended
		var err error
		landed[i], err = exchanges[i].End(make([]int64, len(batch[i].buckets)))
		// One bucket that holds no count must not delay what is owed to others. The trip that
		// found it has listed the counter as differing.
		if err == nil || errors.Is(err, strconv.ErrSyntax) {
			landed[i] = len(batch[i].buckets)
		}
	}
	return l.settle(server, landed)
}

// payment is a debt that is being made up for.
type payment struct {
	hash Hash
	debt
	forgiven bool
}

// take takes some debts to be made up for, and drops those whose buckets have expired.
// They are the ledger's until they are settled.
func (l *ledger) take(server Server) []payment {
	now, second := time.Now(), l.set.now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batch = l.batch[:0]
	for h, debts := range l.owed[server] {
		for len(debts) > 0 && len(l.batch) < paysAtOnce && !debts[0].due.After(now) {
			d := debts[0]
			debts = debts[1:]
			if slices.Max(d.expires) > second {
				l.batch = append(l.batch, payment{hash: h, debt: d})
			} else {
				l.n--
			}
		}
		l.put(server, h, debts)
		if len(l.batch) == paysAtOnce {
			break
		}
	}
	return slices.Clone(l.batch)
}

// settle drops what of the batch was made up for: so many buckets of each debt. What is
// not known to have been added is owed again, ahead of what has come since. It reports
// whether there was no such thing.
func (l *ledger) settle(server Server, landed []int) (all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = true
	known := l.set.topology.Load().has(server)
	for i, p := range slices.Backward(l.batch) {
		p.buckets, p.expires = p.buckets[landed[i]:], p.expires[landed[i]:]
		if len(p.buckets) == 0 {
			l.n--
			continue
		}
		all = false
		if p.forgiven || !known || l.merge(server, p.hash, p.by, p.buckets, p.expires) {
			l.n--
			continue
		}
		l.put(server, p.hash, slices.Insert(l.owed[server][p.hash], 0, p.debt))
	}
	clear(l.batch)
	l.batch = l.batch[:0]
	return all
}
