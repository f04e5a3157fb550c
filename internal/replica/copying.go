package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// claimFor is for how long a process has claimed what it copies, unless it claims it again.
const claimFor = 30 * time.Second

// ErrOvertaken is the error of a copying that has ended: a server has lost something meanwhile, or another
// process copies.
var ErrOvertaken = errors.New("replication: a server has lost something meanwhile, or another process copies")

// Key is an item of a counter that a server holds.
type Key struct {
	Hash    store.Hash
	Item    uint64
	Expires int64 // Unix second
}

// Copying is a claim of this process to copy to a server what that lacks. It has one owner.
type Copying struct {
	set     *Set
	target  Server
	version version // of the target's marker
}

// version is what tells whether a server has lost something meanwhile.
type version struct{ id, losses uint64 }

func (k *marker) version() version { return version{k.ID, k.Losses} }

// Source is a server from which a Copying copies.
type Source struct {
	server  Server
	version version
	leaves  copied
}

// Claim claims the copying to a server that lacks something, if there is one, and others that it can
// be copied from, and no other process copies to it. It returns nil if there is nothing to copy.
func (s *Set) Claim(ctx context.Context) (*Copying, error) {
	// What fails with one server again and again is not to keep others waiting.
	for _, target := range s.turned(int(s.turn.Add(1))) {
		if !s.isDue(target) {
			continue
		}
		var c *Copying
		err := s.write(ctx, target, func(k *marker) bool {
			c = nil
			now := s.now().Unix()
			if len(k.Former) == 0 || k.isClaimed(s.process, now) {
				return false
			}
			k.Claim = s.claim(0)
			c = &Copying{s, target, k.version()}
			return true
		})
		if err != nil {
			return nil, err
		}
		if c != nil {
			return c, nil
		}
	}
	return nil, nil
}

// turned returns the servers, another one first each turn.
func (s *Set) turned(turn int) []Server {
	servers := s.Servers()
	if len(servers) == 0 {
		return nil
	}
	at := turn % len(servers)
	return slices.Concat(servers[at:], servers[:at])
}

// claim returns that of this process, from now on.
func (s *Set) claim(percent int) *claim {
	return &claim{By: s.process, Until: s.now().Unix() + int64(claimFor/time.Second), Percent: percent}
}

// isDue reports whether something is to be copied to the server, and can be.
func (s *Set) isDue(target Server) bool {
	s.Losses.mu.Lock()
	defer s.Losses.mu.Unlock()
	m, now := s.memories[target.Name()], s.now().Unix()
	if s.replicas < 2 || m == nil || !m.isSteady() || m.known.isClaimed(s.process, now) {
		return false
	}
	if quiet := now - m.known.Evicted; quiet >= 0 && quiet < int64(calmAfter/time.Second) {
		return false // it would drop what it is given
	}
	return s.sourceOf(m) != nil
}

// sourceOf returns a server from which something that the one of the memory lacks can be copied now, one that has
// lost nothing itself before others; nil: there is none. The memories are locked.
func (s *Set) sourceOf(m *Memory) (source Server) {
	if len(m.known.Former) == 0 {
		return nil
	}
	for _, server := range s.turned(int(s.turn.Load())) {
		of := s.memories[server.Name()]
		if of == nil || of == m || !server.Lists() || !of.isSteady() {
			continue
		}
		leaves := s.leaves(m, of)
		c, done := m.known.Copied[server.Name()]
		if done && c.since() <= leaves.since() { // else it was repaired itself meanwhile
			continue
		}
		if source == nil || leaves.since() == 0 {
			source = server
		}
	}
	return source
}

// leaves returns what is missing on one server after all was copied to it from another. The memories are locked.
func (s *Set) leaves(to, from *Memory) copied {
	left := from.known.leaves(from.name, to.name, s.replicas)
	if !keptOne(to.name, to.known, from.name, from.known, s.replicas) {
		left.Left = left.since()
	}
	return left
}

// isSteady reports whether the server is up, and all that it has lost is known. The memories are locked.
func (m *Memory) isSteady() bool {
	return m.known != nil && m.isUp() && !m.isAway() && slices.Equal(m.known.Servers, m.all.list)
}

// write changes the marker of a server, and reads it at least.
func (s *Set) write(ctx context.Context, server Server, change func(*marker) bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return server.Marker(ctx, func(item MarkerItem) error { return server.Memory().update(item, change) })
}

// Target returns the name of the server that is copied to.
func (c *Copying) Target() string { return c.target.Name() }

// Next returns the next server to copy from; nil: there is none that could be copied from now.
func (c *Copying) Next(ctx context.Context) (*Source, error) {
	s, to := c.set, c.target.Memory()
	s.Losses.mu.Lock()
	server := s.sourceOf(to)
	s.Losses.mu.Unlock()
	if server == nil {
		return nil, nil
	}
	if err := s.write(ctx, server, nil); err != nil {
		return nil, err
	}
	s.Losses.mu.Lock()
	defer s.Losses.mu.Unlock()
	k := server.Memory().known
	return &Source{server: server, version: k.version(), leaves: s.leaves(to, server.Memory())}, nil
}

// Parts returns in how many parts its keys are to be listed, of that many each at the most, or twice
// as many.
func (s *Source) Parts(most int64) int { return int(s.server.Memory().items.Load()/most) + 1 }

// Keys calls yield for each item of a counter that both servers have, as far as the source holds
// it, until it returns an error: for those of one part of the counters. yield must not wait.
func (c *Copying) Keys(ctx context.Context, source *Source, part, parts int, yield func(Key) error) error {
	t := c.set.topology.Load()
	var list [MaxReplicas]Server
	return source.server.Keys(ctx, func(key Key) error {
		if int(binary.BigEndian.Uint32(key.Hash[8:]))%parts != part {
			return nil
		}
		servers := t.of(key.Hash, &list)
		if !slices.Contains(servers, c.target) || !slices.Contains(servers, source.server) {
			return nil
		}
		return yield(key)
	})
}

// Alias names the counter in ops.
func (k Key) Alias() string { return store.NewAlias("", k.Hash[:]) }

// Name returns the name of the server.
func (s *Source) Name() string { return s.server.Name() }

// Progress says how much of a source was copied, and keeps the claim.
func (c *Copying) Progress(ctx context.Context, percent int) error {
	return c.update(ctx, func(k *marker) {
		k.Claim = c.set.claim(percent)
	})
}

// Look looks at the source: what it has dropped by now changes its marker.
func (c *Copying) Look(ctx context.Context, source *Source) error {
	ctx, cancel := context.WithTimeout(ctx, c.set.timeout)
	defer cancel()
	return source.server.Look(ctx)
}

// Done says that all was copied from the source. It is an error if one of the servers has lost
// something meanwhile.
func (c *Copying) Done(ctx context.Context, source *Source) error {
	if err := c.Look(ctx, source); err != nil {
		return err
	}
	var is version
	if err := c.set.write(ctx, source.server, func(k *marker) bool { is = k.version(); return false }); err != nil {
		return err
	}
	if is != source.version {
		return fmt.Errorf("%w: %s", ErrOvertaken, source.Name())
	}
	return c.update(ctx, func(k *marker) {
		if k.Copied == nil {
			k.Copied = map[string]copied{}
		}
		k.Copied[source.Name()] = source.leaves
		k.Claim.Percent = 0
		k.settle(c.Target(), c.set.replicas)
	})
}

// Release ends the claim.
func (c *Copying) Release(ctx context.Context) error {
	err := c.update(ctx, func(k *marker) { k.Claim = nil })
	if errors.Is(err, ErrOvertaken) {
		return nil
	}
	return err
}

// update changes the target's marker while it is that of the claim.
func (c *Copying) update(ctx context.Context, change func(*marker)) error {
	held := false
	err := c.set.write(ctx, c.target, func(k *marker) bool {
		held = k.version() == c.version && k.Claim != nil && k.Claim.By == c.set.process
		if held {
			change(k)
		}
		return held
	})
	if err == nil && !held {
		return fmt.Errorf("%w: %s", ErrOvertaken, c.Target())
	}
	return err
}

// Unlisted reports whether a server in use does not list its keys: what others lack of its counters
// is known only of the counters that this process has used.
func (s *Set) Unlisted() bool {
	return slices.ContainsFunc(s.Servers(), func(server Server) bool { return !server.Lists() })
}
