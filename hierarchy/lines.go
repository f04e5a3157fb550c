package hierarchy

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Hits on one counter that come while others on it are being decided wait in line,
// and go together: one trip for all of them. Nobody waits for others to come. So the
// busier a counter is, the more hits share a trip, and the fewer of this process
// stand in each other's way.
//
// A hit waits in the line of one of its counters only, and while its group is being
// decided another may decide hits on the others: what it adds counts for those in
// full, so nothing depends on the lines but speed.

const (
	lineShards = 64
	spareLines = 64 // for each shard
	// patienceShare is the share of the timeout for which hits wait in line. Those
	// ahead may be held up by another server, or by the one that is down; then those
	// who wait go without them.
	patienceShare = 8
	// apartFor is how long hits on several counters go by themselves after a trip of such
	// hits has failed: whoever goes together waits for all trips, and one server that
	// does not answer would hold up those too who need nothing of it.
	apartFor = time.Second
)

// lines are the counters on which hits are being decided.
type lines struct {
	patience time.Duration
	seed     maphash.Seed
	shards   [lineShards]lineShard
	epoch    time.Time
	apart    atomic.Int64 // until when hits on several counters go by themselves, since the epoch
}

type lineShard struct {
	mu    sync.Mutex
	busy  map[string]*line // by the counter's ID
	spare []*line
}

// line is a counter on which hits are being decided, and those that wait meanwhile.
type line struct {
	shard    *lineShard
	id       string
	turn     uint64 // of the group that holds the line; it grows with each
	waiting  []*request
	patience *time.Timer // runs while there are any
}

// group is hits that are decided together, and the lines that are held meanwhile.
type group struct {
	requests []*request
	held     []hold
	try      int
	began    time.Time // the first try
}

type hold struct {
	line *line
	turn uint64
}

var groups = sync.Pool{New: func() any { return new(group) }}

func newGroup(requests ...*request) *group {
	g := groups.Get().(*group)
	g.requests = append(g.requests, requests...)
	return g
}

func (g *group) free() {
	clear(g.requests)
	clear(g.held)
	*g = group{requests: g.requests[:0], held: g.held[:0]}
	groups.Put(g)
}

func newLines(patience time.Duration) *lines {
	return &lines{patience: patience, seed: maphash.MakeSeed(), epoch: time.Now()}
}

func (ls *lines) shardOf(id string) *lineShard {
	return &ls.shards[maphash.String(ls.seed, id)%lineShards]
}

// enter returns the group of the request alone, which holds the lines of its
// counters; or nil, if hits on one of them are being decided: then it waits for its
// turn with others.
func (ls *lines) enter(r *request) *group {
	if ls.goesApart(r) {
		return newGroup(r)
	}
	if len(r.applied) > 1 {
		for i := range r.applied {
			shard := ls.shardOf(r.applied[i].ID)
			shard.mu.Lock()
			if ln := shard.busy[r.applied[i].ID]; ln != nil {
				ls.wait(ln, r)
				shard.mu.Unlock()
				return nil
			}
			shard.mu.Unlock()
		}
	}
	var g *group
	for i := range r.applied {
		id := r.applied[i].ID
		shard := ls.shardOf(id)
		shard.mu.Lock()
		ln := shard.busy[id]
		switch {
		case ln == nil:
			if g == nil {
				g = newGroup(r)
			}
			ln = ls.open(shard, id)
			g.held = append(g.held, hold{ln, ln.turn})
		case g == nil:
			ls.wait(ln, r)
			shard.mu.Unlock()
			return nil
		}
		shard.mu.Unlock()
	}
	return g
}

// stayApart has hits on several counters go by themselves for a while.
func (ls *lines) stayApart() { ls.apart.Store(int64(time.Since(ls.epoch) + apartFor)) }

// goesApart reports whether the hit should go by itself.
func (ls *lines) goesApart(r *request) bool {
	until := ls.apart.Load()
	return until != 0 && r.onSeveral() && int64(time.Since(ls.epoch)) < until
}

// open returns a line for the counter. The shard is locked.
func (ls *lines) open(shard *lineShard, id string) *line {
	var ln *line
	if n := len(shard.spare); n > 0 {
		ln = shard.spare[n-1]
		shard.spare = shard.spare[:n-1]
	} else {
		ln = &line{shard: shard}
	}
	ln.id = id
	ln.turn++
	if shard.busy == nil {
		shard.busy = map[string]*line{}
	}
	shard.busy[id] = ln
	return ln
}

// wait puts the request in line. The shard is locked.
func (ls *lines) wait(ln *line, r *request) {
	r.waited = true
	ln.waiting = append(ln.waiting, r)
	switch {
	case len(ln.waiting) > 1:
	case ln.patience == nil:
		ln.patience = time.AfterFunc(ls.patience, func() { ls.overtake(ln) })
	default:
		ln.patience.Reset(ls.patience)
	}
}

// overtake lets those go who have waited for too long.
func (ls *lines) overtake(ln *line) {
	ln.shard.mu.Lock()
	next := ls.next(ln)
	ln.shard.mu.Unlock()
	ls.pass(next)
}

// next lets those go who wait, and returns their group: it holds the line now. They are
// not in the group who go by themselves, or are beyond MaxHits. The shard is locked; nobody
// is waiting then.
func (ls *lines) next(ln *line) *group {
	if len(ln.waiting) == 0 {
		return nil
	}
	ln.patience.Stop()
	ln.turn++
	g := newGroup()
	g.held = append(g.held, hold{ln, ln.turn})
	others := g
	for _, r := range ln.waiting {
		switch {
		case ls.goesApart(r):
			ls.pass(newGroup(r))
		case len(others.requests) < MaxHits:
			others.requests = append(others.requests, r)
		default:
			if others != g {
				ls.pass(others)
			}
			others = newGroup(r)
		}
	}
	if others != g {
		ls.pass(others)
	}
	clear(ln.waiting)
	ln.waiting = ln.waiting[:0]
	return g
}

// pass has the caller of the group's first request lead it. A group of nobody lets go of
// its lines.
func (ls *lines) pass(g *group) {
	switch {
	case g == nil:
	case len(g.requests) == 0:
		ls.leave(g)
	default:
		leader := g.requests[0]
		leader.waited = false
		leader.turn <- g
	}
}

// leave gives the group's lines to those who wait. Where these were not patient enough
// they have gone already.
func (ls *lines) leave(g *group) {
	for _, h := range g.held {
		ls.pass(ls.leaveLine(h))
	}
	g.free()
}

// leaveLine ends the group's hold of the line, and returns the group that has it next.
func (ls *lines) leaveLine(h hold) *group {
	ln, shard := h.line, h.line.shard
	shard.mu.Lock()
	defer shard.mu.Unlock()
	switch {
	case ln.turn != h.turn:
	case len(ln.waiting) > 0:
		return ls.next(ln)
	default:
		delete(shard.busy, ln.id)
		ln.id = ""
		ln.turn++
		if len(shard.spare) < spareLines {
			shard.spare = append(shard.spare, ln)
		}
	}
	return nil
}
