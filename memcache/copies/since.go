package copies

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
		if s.former[i].until <= s.mended {
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
// was copied to them. It cannot have been, and nothing is forgotten, where as many
// servers came, went, or forgot what they had, as there are copies: then some counters
// may have lost all of theirs. It reports whether it was.
func (s *Set) Mended(forgetful int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, moved := s.topology.Load(), map[string]bool{}
	for _, f := range s.former {
		if f.until <= s.mended {
			continue
		}
		for i := range now.members {
			if name := now.members[i].Name(); !f.has(now.members[i].Server) {
				moved[name] = true
			}
		}
		for i := range f.members {
			if name := f.members[i].Name(); !now.has(f.members[i].Server) {
				moved[name] = true
			}
		}
	}
	if len(moved)+forgetful >= s.replicas {
		return false
	}
	s.mended = s.now().Unix()
	s.forgot = 0
	s.changed.Store(0)
	return true
}
