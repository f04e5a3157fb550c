package replication

// formerLists is how many lists of servers are remembered.
const formerLists = 8

// former is a list of servers that was in use until a Unix second.
type former struct {
	*topology
	until int64
}

// Changed returns the Unix second of the last change of the list of servers that may
// have moved counters; 0: there was none.
func (s *Set) Changed() int64 { return s.changed.Load() }

// Since returns the Unix second since which nothing of the counter was lost: since which
// one of its servers that is up has had it, and has forgotten nothing, as whole says.
// 0: as far as is known always.
func (s *Set) Since(h Hash, whole func(Server) int64) int64 {
	var list [MaxReplicas]Server
	since := int64(-1)
	servers := s.topology.Load().of(h, &list)
	for _, server := range servers {
		if server.Up() {
			since = earlier(since, max(whole(server), s.movedTo(server, h)))
		}
	}
	if since >= 0 {
		return since
	}
	for _, server := range servers { // none is up: what they will have when they are back
		since = earlier(since, max(whole(server), s.movedTo(server, h)))
	}
	return max(since, 0)
}

func earlier(a, b int64) int64 {
	if a < 0 {
		return b
	}
	return min(a, b)
}

// movedTo returns the Unix second in which the counter got a copy on the server; 0: as
// far as is known it always had.
func (s *Set) movedTo(server Server, h Hash) int64 {
	if s.changed.Load() == 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list [MaxReplicas]Server
	for i := len(s.former) - 1; i >= 0; i-- {
		if s.former[i].version < s.repaired {
			return 0
		}
		had := false
		for _, other := range s.former[i].of(h, &list) {
			had = had || other == server
		}
		if !had {
			return s.former[i].until
		}
	}
	return s.forgot
}

// Mended forgets that counters have moved: what the copies that are new to them lacked
// was copied to them, for all reasons up to that number of Gaps. It cannot have been, and
// nothing is forgotten, where there is another reason since, or where so many servers came,
// went, or forgot what they had that some counters may have lost all of their copies. It
// reports whether it was.
func (s *Set) Repaired(forgetful int, gaps uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Gaps() != gaps {
		return false
	}
	now := s.topology.Load()
	lost := forgetful // of any one counter's copies, at the most
	for i, f := range s.former {
		if f.version < s.repaired {
			continue
		}
		next := now
		if i+1 < len(s.former) {
			next = s.former[i+1].topology
		}
		lost += max(f.without(next), next.without(f.topology))
	}
	if lost >= s.replicas {
		return false
	}
	s.repaired = now.version
	s.forgot = 0
	s.changed.Store(0)
	return true
}

// Joined reports whether the server has come to the list by a change for which counters were
// not mended yet.
func (s *Set) Joined(server Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.former {
		if f.version >= s.repaired && !f.has(server) {
			return true
		}
	}
	return false
}

// without returns how many servers of the list the other one has not.
func (t *topology) without(other *topology) (n int) {
	for i := range t.members {
		if !other.has(t.members[i].Server) {
			n++
		}
	}
	return n
}

// Forget drops the lists of servers that were in use until before the Unix second: nobody
// asks for what was counted then.
func (s *Set) Forget(before int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forgot < before {
		s.forgot = 0
	}
	if s.changed.Load() < before {
		s.changed.Store(0)
	}
	for i := range s.former {
		if s.former[i].until < before {
			s.repaired = max(s.repaired, s.former[i].version+1)
		}
	}
}
