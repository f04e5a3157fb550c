package copies

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/counterd/counterd/store"
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
	early  credits                    // for what may be owed yet
	batch  []payment                  // under way
	n      int                        // debts, those included
	paying bool
	closed bool
	others sync.WaitGroup
}

// debt is an add to the buckets of a counter. What has the same buckets is one debt.
type debt struct {
	adds []store.Write
	due  time.Time // until then the answer may come after all
}

func newLedger(set *Set, most int) *ledger {
	l := &ledger{set: set, most: most, owed: map[Server]map[Hash][]debt{}}
	l.early = credits{life: 2 * set.timeout, most: most}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// owe notes a debt, and sees to it that it is made up for. Where there are too many it
// is dropped, and known to be. It does not keep the slices.
func (l *ledger) owe(server Server, h Hash, adds []store.Write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed, !l.set.topology.Load().has(server):
		return // nobody will ever pay
	}
	if server.Up() && server.Whole() { // it has what it acknowledged
		if adds = l.early.use(time.Now(), server, h, adds); adds == nil {
			return
		}
	}
	switch {
	case l.merge(server, h, adds):
		return
	case l.n >= l.most:
		l.set.Gap()
		return
	}
	l.n++
	adds = slices.Clone(adds)
	for i := range adds {
		adds[i].Kind = store.Add
	}
	l.put(server, h, append(l.owed[server][h], debt{adds, l.nextDue()}))
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

// find returns the debt to the items of these adds; nil where there is none. That of this very
// second is the last one.
func find(debts []debt, adds []store.Write) *debt {
	for i := len(debts) - 1; i >= 0; i-- {
		if slices.EqualFunc(debts[i].adds, adds, func(a, b store.Write) bool { return a.Item == b.Item }) {
			return &debts[i]
		}
	}
	return nil
}

// merge makes one debt of two with the same buckets, if there is such a one.
func (l *ledger) merge(server Server, h Hash, adds []store.Write) bool {
	d := find(l.owed[server][h], adds)
	if d == nil {
		return false
	}
	for i := range d.adds {
		d.adds[i].By += adds[i].By
		d.adds[i].Expires = max(d.adds[i].Expires, adds[i].Expires)
	}
	d.due = l.nextDue()
	return true
}

// credit takes from a debt what was acknowledged after all. Where nothing is owed yet it takes
// from what will be.
func (l *ledger) credit(server Server, h Hash, adds []store.Write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	debts := l.owed[server][h]
	d := find(debts, adds)
	if d == nil {
		l.early.keep(time.Now(), server, h, adds)
		return
	}
	for i := range d.adds {
		d.adds[i].By -= adds[i].By
	}
	if d.adds[0].By <= 0 { // the adds of a debt are equal
		l.put(server, h, slices.DeleteFunc(debts, func(d debt) bool { return d.adds[0].By <= 0 }))
		l.n--
	}
}

// forgive drops debts to buckets of the counter, which are deleted. One that is just
// being made up for is not tried again.
func (l *ledger) forgive(h Hash, deletes []store.Write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deleted := func(d debt) bool {
		return slices.ContainsFunc(d.adds, func(add store.Write) bool {
			return slices.ContainsFunc(deletes, func(w store.Write) bool { return w.Item == add.Item })
		})
	}
	l.early.drop(h)
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
	exchanges, ops := make([]Exchange, len(batch)), make([]store.Op, len(batch))
	for i, p := range batch {
		ops[i].Writes = slices.Clone(p.adds)
		exchanges[i] = server.Start(l.ctx, deadline, Counter{Hash: p.hash}, &ops[i], i, ended)
	}
	landed := make([]int, len(batch))
	for range batch {
		i := <-ended
		exchanges[i].End(&ops[i])
		landed[i] = ops[i].Receipt.On(0)
		// One bucket that holds no count must not delay what is owed to others. The trip that
		// found it has listed the counter as differing.
		if err := ops[i].Err; err == nil || errors.Is(err, store.ErrNoCount) {
			landed[i] = len(ops[i].Writes)
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
			if slices.ContainsFunc(d.adds, func(add store.Write) bool { return add.Expires > second }) {
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
		if p.adds = p.adds[landed[i]:]; len(p.adds) > 0 {
			all = false
			p.adds = l.early.use(time.Now(), server, p.hash, p.adds)
		}
		if len(p.adds) == 0 {
			l.n--
			continue
		}
		if p.forgiven || !known || l.merge(server, p.hash, p.adds) {
			l.n--
			continue
		}
		l.put(server, p.hash, slices.Insert(l.owed[server][p.hash], 0, p.debt))
	}
	clear(l.batch)
	l.batch = l.batch[:0]
	return all
}
