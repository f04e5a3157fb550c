package copies

// What a trip landed is one number, for whoever takes back or owes later: how many
// adds each copy acknowledged, and of which list of servers the copies are. It is 0
// where nothing was.
const (
	copyBits       = 4 // adds of one copy
	maxAdds        = 1<<copyBits - 1
	landedBits     = copyBits * MaxReplicas
	generationBits = 8
	// maxAddsAlone is the same where a counter has one copy.
	maxAddsAlone = 1<<landedBits - 1
)

// pack returns the number for what each copy acknowledged.
func (t *topology) pack(landed []int) int {
	packed := 0
	for i, n := range landed {
		packed |= n << (copyBits * i)
	}
	return stamp(packed, t.generation)
}

// stamp adds the list of servers.
func stamp(packed, generation int) int {
	if packed == 0 {
		return 0
	}
	return packed | generation&(1<<generationBits-1)<<landedBits
}

// landedOn returns how many of the adds the i-th copy acknowledged.
func landedOn(packed, i int) int { return packed >> (copyBits * i) & maxAdds }

// Alone returns the number for so many adds on the only server of a counter.
func Alone(landed, generation int) int { return stamp(min(landed, maxAddsAlone), generation) }

// AloneOn returns the server that the number is of, nil where that is forgotten, and
// how many of the adds it acknowledged.
func (s *Set) AloneOn(h Hash, packed int) (server Server, landed int) {
	t := s.at(packed)
	if t == nil {
		return nil, 0
	}
	return t.first(h), packed & maxAddsAlone
}

// at returns the list of servers that the number is of; nil where that is forgotten.
func (s *Set) at(packed int) *topology {
	generation := packed >> landedBits
	if t := s.topology.Load(); t.generation&(1<<generationBits-1) == generation {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.former {
		if f.generation&(1<<generationBits-1) == generation {
			return f.topology
		}
	}
	return nil
}
