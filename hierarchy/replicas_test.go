package hierarchy

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
)

// withReplicas makes a simulation one with replicas, and breaks nothing.
var withReplicas = sabotage{copies: func(*simReplicas) {}}

// While one replica is reached by every hit no window holds more than its limit, whatever
// befalls the others; and when these are well again and their hints are replayed, it may
// die.
func TestNoWindowHoldsMoreWithReplicas(t *testing.T) {
	total := simulateAll(t, testkit.Seeds(4000), withReplicas)
	t.Logf("%d seeds in which the replica that all reach died, %d in which a hit missed a replica", total.handed, total.missed)
	require.Greater(t, total.handed, total.seeds/4)
	require.Less(t, total.missed, total.seeds/10, "they prove nothing")
}

// Nor does a window of a calendar.
func TestNoCalendarWindowHoldsMoreWithReplicas(t *testing.T) {
	broken := withReplicas
	broken.algorithm, broken.zone = "fixed-window", "Asia/Kathmandu"
	simulateAll(t, testkit.Seeds(2000), broken)
}

// What each part of replication is for: without it the simulation finds windows that hold
// more than they may.
func TestSimulationFindsSabotageOfReplicas(t *testing.T) {
	for name, broken := range map[string]func(*simReplicas){
		"the smallest value counts": func(c *simReplicas) {
			c.wrapServer = func(l *simLink) replica.Server { return &turnedServer{l} }
			c.wrapStore = func(s replicatedStore) store.Store { return &turnedStore{s} }
		},
		"hints are not replayed": func(c *simReplicas) {
			c.wrapStore = func(s replicatedStore) store.Store { return &hintlessStore{s} }
		},
		"rolls back on replicas that did not acknowledge": func(c *simReplicas) {
			c.wrapStore = func(s replicatedStore) store.Store { return &credulousReplicas{s} }
		},
		"leaves hints of rollbacks": func(c *simReplicas) {
			c.wrapStore = func(s replicatedStore) store.Store { return &hintedRollBacks{s} }
		},
		"takes a trip for made that failed midway": func(c *simReplicas) {
			c.wrapServer = func(l *simLink) replica.Server { return &trustedServer{l} }
		},
		"adds to the coarsest level first on one replica": func(c *simReplicas) { // the only one that is up
			c.handover, c.weather = false, 0
			c.begin = func() {
				for _, server := range c.servers {
					if server != c.safe {
						c.setAll(server, refusing)
					}
				}
			}
			c.wrapServer = func(l *simLink) replica.Server {
				if l.server != c.safe {
					return l
				}
				return &coarseServer{l}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := simulateUntilBroken(t, name, sabotage{copies: broken})
			assert.Positive(t, o.broken, "not found in %d seeds", o.seeds)
			t.Logf("%s: found in the %dth seed: %s", name, o.seeds, o.first)
		})
	}
}

// The promise does not depend on the order in which a hint's adds are replayed: a replica
// counts again when the whole hint is. (The repair makes use of it.)
func TestHintsMayBeReplayedInAnyOrder(t *testing.T) {
	o := simulate(t, 0, testkit.Seeds(500), sabotage{copies: func(c *simReplicas) {
		c.handover = true
		c.wrapServer = func(l *simLink) replica.Server { return &coarseReplay{coarseServer{l}} }
	}}, true)
	assert.Zero(t, o.broken, o.first)
	assert.Positive(t, o.handed)
}

// turnedServer makes all values negative, and turnedStore turns them back: so the smallest
// is taken for the largest.
type turnedServer struct{ *simLink }

func (s *turnedServer) Start(ctx context.Context, deadline time.Time, counter replica.Counter, op *store.Op, index int, ended chan<- int, late replica.Acknowledger) replica.Exchange {
	return turnedExchange{s.simLink.Start(ctx, deadline, counter, op, index, ended, late)}
}

type turnedExchange struct{ replica.Exchange }

func (x turnedExchange) End(op *store.Op) {
	x.Exchange.End(op)
	turn(op)
}

func turn(op *store.Op) {
	for i := range op.Writes {
		op.Writes[i].Result *= -1
	}
	for i := range op.Reads {
		op.Reads[i].Value *= -1
	}
}

type turnedStore struct{ replicatedStore }

func (s *turnedStore) Do(ctx context.Context, ops ...*store.Op) {
	s.replicatedStore.Do(ctx, ops...)
	for _, op := range ops {
		if storetest.IsTrip(op) {
			turn(op)
		}
	}
}

// hintlessStore gives no hints.
type hintlessStore struct{ replicatedStore }

func (s *hintlessStore) Do(ctx context.Context, ops ...*store.Op) {
	s.replicatedStore.Do(ctx, slices.DeleteFunc(slices.Clone(ops), func(op *store.Op) bool { return op.Kind() == store.Hint })...)
}

// credulousReplicas rolls the adds back on every replica.
type credulousReplicas struct{ replicatedStore }

func (s *credulousReplicas) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		if op.Kind() == store.Subtract {
			for i := range op.Receipt.Acknowledged {
				op.Receipt.Acknowledged[i] = uint32(len(op.Writes))
			}
		}
	}
	s.replicatedStore.Do(ctx, ops...)
}

// hintedRollBacks leaves hints of rollbacks for the replicas that did not acknowledge the
// adds.
type hintedRollBacks struct{ replicatedStore }

func (s *hintedRollBacks) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		if op.Kind() == store.Subtract {
			var hint store.Op
			hint.Hint(op.Counter, op.Writes, op.Receipt, -op.Writes[0].By)
			slices.Reverse(hint.Writes)
			s.replicatedStore.Do(ctx, &hint)
		}
	}
	s.replicatedStore.Do(ctx, ops...)
}

// trustedServer takes all that was sent for acknowledged.
type trustedServer struct{ *simLink }

func (s *trustedServer) Start(ctx context.Context, deadline time.Time, counter replica.Counter, op *store.Op, index int, ended chan<- int, late replica.Acknowledger) replica.Exchange {
	return trustedExchange{s.simLink.Start(ctx, deadline, counter, op, index, ended, late)}
}

type trustedExchange struct{ replica.Exchange }

func (x trustedExchange) End(op *store.Op) {
	x.Exchange.End(op)
	if !op.Receipt.None() {
		op.Receipt = store.Acknowledged(len(op.Writes))
	}
}

// coarseServer adds to the coarsest level first.
type coarseServer struct{ *simLink }

func (s *coarseServer) Start(ctx context.Context, deadline time.Time, counter replica.Counter, op *store.Op, index int, ended chan<- int, late replica.Acknowledger) replica.Exchange {
	coarse := *op
	coarse.Writes = slices.Clone(op.Writes)
	slices.Reverse(coarse.Writes)
	return coarseExchange{s.simLink.Start(ctx, deadline, counter, &coarse, index, ended, late)}
}

type coarseExchange struct{ replica.Exchange }

func (x coarseExchange) End(op *store.Op) {
	x.Exchange.End(op)
	slices.Reverse(op.Writes)
	if op.Err != nil {
		op.Receipt = store.Receipt{}
	}
}

// coarseReplay replays hints that way.
type coarseReplay struct{ coarseServer }

func (s *coarseReplay) Start(ctx context.Context, deadline time.Time, counter replica.Counter, op *store.Op, index int, ended chan<- int, late replica.Acknowledger) replica.Exchange {
	if ctx.Value(operationKey{}) == nil {
		return s.coarseServer.Start(ctx, deadline, counter, op, index, ended, late)
	}
	return s.simLink.Start(ctx, deadline, counter, op, index, ended, late)
}

// Outside the promise, in each of these cases, windows do hold more
// than they may, and the simulation finds it.
func TestOutsideThePromiseOfReplicas(t *testing.T) {
	for name, outside := range map[string]func(*simReplicas){
		"each process reaches another replica only": func(c *simReplicas) {
			c.replicas, c.handover, c.noneSafe, c.weather, c.processes = 2, false, true, 0, 2
			c.begin = func() {
				for i, n := range c.nodes {
					for k, link := range n.links {
						if k%2 != i%2 {
							link.state = refusing
						}
					}
				}
			}
		},
		"no replica is reached by all": func(c *simReplicas) {
			c.replicas, c.handover, c.noneSafe, c.wipes = 2, false, true, false
		},
		"a process takes the intact replica for down": func(c *simReplicas) {
			c.replicas, c.handover, c.wipes, c.processes = 2, false, false, 2
			c.begin = func() {
				for _, link := range c.nodes[0].links {
					link.suspected.Store(link.server == c.safe)
				}
			}
		},
		"the replica dies before hints are replayed": func(c *simReplicas) {
			c.handover, c.withoutReplay = true, true
		},
		"the replica dies under hits that began before hints were replayed": func(c *simReplicas) {
			c.handover, c.atOnce = true, true
			c.replicas, c.processes, c.faults, c.weather = 2, 4, 0.2, 0.2 // else it takes thousands of seeds
		},
		"the process with the hints crashes": func(c *simReplicas) {
			c.handover, c.processes = true, 2
			c.atHandover = c.crashHolders
		},
		"hints beyond their bound": func(c *simReplicas) {
			c.handover, c.maxHints = true, 1
		},
		"the replica that is left had come back empty": func(c *simReplicas) {
			c.handover = true
			c.atHandover = func() {
				for _, server := range c.servers {
					if server != c.safe {
						clear(server.Of)
					}
				}
			}
		},
		"the replica that is left has lost a bucket": func(c *simReplicas) {
			c.handover = true
			c.atHandover = c.evict
		},
		"as many servers are changed at once as there are replicas": func(c *simReplicas) {
			c.replicas, c.handover = 2, true
			c.atHandover = func() {
				for _, n := range c.nodes {
					n.use(n.links[len(n.links)/2:])
				}
			}
			c.spare = 2
		},
		"two lists of servers at a time": func(c *simReplicas) {
			c.replicas, c.handover, c.noneSafe, c.weather, c.processes = 2, false, true, 0, 2
			c.spare = 2
			c.begin = func() {
				for i, n := range c.nodes {
					half := len(n.links) / 2
					n.use(n.links[i%2*half:][:half])
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := simulateUntilBroken(t, name, sabotage{copies: outside})
			assert.Positive(t, o.broken, "not found in %d seeds: is it outside the promise?", o.seeds)
			t.Logf("outside the promise: %s: over-admits, found in the %dth seed: %s", name, o.seeds, o.first)
		})
	}
}

// crashHolders crashes the processes that hold hints.
func (c *simReplicas) crashHolders() {
	for i, n := range c.nodes {
		if owed, _ := n.set.PendingHints(); owed > 0 {
			c.s.processes[i].crashed = true
		}
	}
}

// evict has the servers but the one that all reach lose the coarsest buckets.
func (c *simReplicas) evict() {
	for _, server := range c.servers {
		for _, buckets := range server.Of {
			if server != c.safe && len(buckets) > 0 {
				delete(buckets, slices.Max(slices.Collect(maps.Keys(buckets))))
			}
		}
	}
}

// With copies, too, all follows from the seed.
func TestSimulationWithReplicasRepeats(t *testing.T) {
	for seed := range testkit.Seeds(200) {
		one, two := simulateOne(t, seed, withReplicas), simulateOne(t, seed, withReplicas)
		if one.reloaded == one.event {
			require.Equal(t, one.trace, two.trace, seed)
		}
	}
}
