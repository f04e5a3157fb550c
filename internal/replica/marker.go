package replica

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// A server that restarts, runs flush_all or was away has lost something, and says nothing. So each
// has one item without expiry, its marker, by which all processes know the same of it: whether
// its memory is the one of before, since when it may lack counters, and what was copied to it.

// MarkerItem is a connection to a server, on which its marker is read and written.
type MarkerItem interface {
	// Read returns the text of the item and its version, and whether there is one.
	Read() (text string, version uint64, found bool, err error)
	// Add writes the item unless there is one, and reports whether it did. It returns
	// store.ErrRefused for a server that takes no items.
	Add(text string) (added bool, err error)
	// Swap writes the item if it still has that version, and reports whether it did.
	Swap(text string, version uint64) (swapped bool, err error)
}

// marker is the item's content.
type marker struct {
	ID uint64 `json:"id"` // random: another one is of another memory
	// Founding: it was put there while no server of the fleet had a marker, and that is being
	// done for the others.
	Founding bool     `json:"founding,omitempty"`
	Servers  []string `json:"servers,omitempty"`  // the list in use, in order of the names
	Replicas int      `json:"replicas,omitempty"` // of each counter
	// Former are the lists of before, the oldest first. A counter that was not on this server
	// under one of them may be incomplete here until what is missing was copied. A server that
	// has lost what it held is as one that was not in the list until then.
	Former []formerServers   `json:"former,omitempty"`
	Losses uint64            `json:"losses,omitempty"` // grows with each change of Former but its end
	Copied map[string]copied `json:"copied,omitempty"` // by the name of the server it was copied from
	// Gone are servers that left the list, by the Unix second. One of them that is back with what it
	// held then has missed what came since, until it says that it has Returned later.
	Gone     departed `json:"gone,omitempty"`
	Returned int64    `json:"returned,omitempty"`
	// Away are servers that processes cannot reach, or have hints for: they lack what these count.
	// Each process has said so last in that Unix second.
	Away      map[string]map[uint64]int64 `json:"away,omitempty"`
	Missed    bool                        `json:"missed,omitempty"` // the latest loss: it was away, and has missed something
	Evicted   int64                       `json:"evicted,omitempty"`
	Evictions int64                       `json:"evictions"` // by the server's statistics, at Evicted; -1: not known
	Claim     *claim                      `json:"claim,omitempty"`
}

// formerServers is a list that was in use until a Unix second.
type formerServers struct {
	Until   int64    `json:"until"`
	Servers []string `json:"servers,omitempty"`
}

// copied is what is still missing after all was copied from a server that has the same counters.
type copied struct {
	Left  int64 `json:"left,omitempty"`  // what that one had lost before this Unix second
	Moved int64 `json:"moved,omitempty"` // and what might not have moved to it by then
}

func (c copied) since() int64 { return max(c.Left, c.Moved) }

// claim is that of a process which copies to the server.
type claim struct {
	By      uint64 `json:"by"`
	Until   int64  `json:"until"` // Unix second
	Percent int    `json:"percent"`
}

const (
	// maxFormer bounds the lists of before. The oldest become one, under which no counter was
	// anywhere.
	maxFormer = 4
	// The item is as long as a multiple of markerBytes: a server gives each size of its items a
	// page of memory, and keeps it.
	markerBytes = 1 << 10
	// maxClaim is more seconds than a claim lasts: one that ends later is by a wrong clock.
	maxClaim = 120
	// maxAhead is how many seconds of the future a loss may be: until then the server lacks
	// everything. What is later is by a clock that is very wrong.
	maxAhead = 24 * 60 * 60
	// maxGone bounds the servers that are Gone. The first are forgotten.
	maxGone = 64
	// maxNames is the most servers in a list: more are of another client.
	maxNames = 1000
)

// unknown are the Evictions of a marker that none were counted for: the server may have run before.
const unknown = -1

func newMarker(founding bool, servers []string, replicas int) marker {
	return marker{ID: rand.Uint64(), Founding: founding, Servers: servers, Replicas: replicas, Evictions: unknown}
}

func (k *marker) String() string {
	text, err := json.Marshal(k)
	if err != nil {
		panic(err) // it has nothing that could fail
	}
	return string(text) + strings.Repeat(" ", markerBytes-1-(len(text)-1)%markerBytes)
}

// parseMarker returns nil for what is none. It knows the markers of before there were lists in
// them, too: a second and a number, with a sign in front where that followed a loss.
func parseMarker(text string) *marker {
	k := &marker{Evictions: unknown}
	if json.Unmarshal([]byte(text), k) == nil && k.isPossible() {
		return k
	}
	second, random, _ := strings.Cut(text, " ")
	at, err := strconv.ParseInt(second, 10, 64)
	id, fault := strconv.ParseUint(random, 16, 64)
	if err != nil || fault != nil || at <= 0 {
		return nil
	}
	k = &marker{ID: id + 1, Evictions: unknown}
	if strings.HasPrefix(second, "+") {
		k.Former = []formerServers{{Until: at}}
	}
	return k
}

// isPossible reports whether a process may have written the marker.
func (k *marker) isPossible() bool {
	for _, c := range k.Copied {
		if c.Left < 0 || c.Moved < 0 {
			return false
		}
	}
	for _, f := range k.Former {
		if len(f.Servers) > maxNames {
			return false
		}
	}
	return k.ID != 0 && k.Replicas >= 0 && k.Replicas <= MaxReplicas && k.Evictions >= unknown &&
		max(len(k.Servers), len(k.Copied)) <= maxNames && len(k.Gone) <= maxGone && len(k.Former) <= maxFormer
}

// without returns the names but that one.
func without(names []string, name string) (others []string) {
	for _, other := range names {
		if other != name {
			others = append(others, other)
		}
	}
	return others
}

// lacking returns how many of the names are not among the others.
func lacking(names, others []string) (n int) {
	for _, name := range names {
		if !slices.Contains(others, name) {
			n++
		}
	}
	return n
}

// lose notes that the server may lack what was counted before the second.
func (k *marker) lose(name string, now int64) { k.changed(without(k.Servers, name), now) }

// changed notes that counters were on those servers until the second.
func (k *marker) changed(servers []string, now int64) {
	k.Losses++
	k.Copied, k.Claim, k.Missed = nil, nil, false
	switch n := len(k.Former); {
	case n > 0 && slices.Equal(k.Former[n-1].Servers, servers):
		k.Former[n-1].Until = max(k.Former[n-1].Until, now)
		return
	case n == maxFormer:
		k.Former = slices.Delete(k.Former, 0, 1)
		k.Former[0].Servers = nil
	}
	k.Former = append(k.Former, formerServers{now, servers})
}

// departed are servers that have left a list, by the Unix second.
type departed map[string]int64

// note notes that a server left by that second. It reports whether that is new.
func (d *departed) note(name string, at int64) bool {
	if (*d)[name] >= at {
		return false
	}
	if *d == nil {
		*d = departed{}
	}
	if (*d)[name] = at; len(*d) <= maxGone {
		return true
	}
	first := name
	for other, at := range *d {
		if at < (*d)[first] {
			first = other
		}
	}
	delete(*d, first)
	return first != name
}

// join notes the others, too. It reports whether that is new.
func (d *departed) join(others departed) (changed bool) {
	for name, at := range others {
		changed = d.note(name, at) || changed
	}
	return changed
}

// forget drops the servers that left before the second. It reports whether there were any.
func (d departed) forget(before int64) bool {
	n := len(d)
	maps.DeleteFunc(d, func(_ string, at int64) bool { return at < before })
	return len(d) != n
}

// extend has a loss that was just noted be until now, which is when it was noticed by this process.
func (k *marker) extend(now int64) (changed bool) {
	if n := len(k.Former); n > 0 && k.Former[n-1].Until < now && now-k.Former[n-1].Until < maxClaim {
		k.Former[n-1].Until, changed = now, true
	}
	return changed
}

// limit makes of now what a very wrong clock has written. If a clock is a little ahead, or that of this process
// behind, it stays: rather too long a loss than too short a one.
func (k *marker) limit(now int64) (changed bool) {
	for i := range k.Former {
		if f := &k.Former[i]; f.Until > now+maxAhead {
			f.Until, changed = now, true
		}
	}
	for _, second := range []*int64{&k.Evicted, &k.Returned} {
		if *second > now+maxAhead {
			*second, changed = now, true
		}
	}
	for name, at := range k.Gone {
		if at > now+maxAhead {
			k.Gone[name], changed = now, true
		}
	}
	if c := k.Claim; c != nil && (c.Percent < 0 || c.Percent > 100) {
		k.Claim, changed = nil, true
	}
	return changed
}

// forget drops what is of no interest since the second.
func (k *marker) forget(before int64) (changed bool) {
	changed = k.Gone.forget(before)
	left := slices.DeleteFunc(k.Former, func(f formerServers) bool { return f.Until < before })
	changed = changed || len(left) != len(k.Former)
	if k.Former = left; len(left) == 0 {
		changed = changed || len(k.Copied) > 0
		k.Former, k.Copied, k.Claim = nil, nil, nil
	}
	return changed
}

// lost returns the second before which all may be missing, and the one before which what moved
// may be; 0: nothing.
func (k *marker) lost(name string) (lost, moved int64) {
	for _, f := range k.Former {
		if slices.Contains(f.Servers, name) {
			moved = max(moved, f.Until)
		} else {
			lost = max(lost, f.Until)
		}
	}
	return lost, moved
}

// lossSince returns what has become of what the server held since the marker was as it was before; nil: it was
// not known. It returns 0 if that is nothing, or was before the second.
func (k *marker) lossSince(before *marker, name string, second int64) Loss {
	if before == nil {
		before = &marker{ID: k.ID}
	}
	was, _ := before.lost(name)
	is, _ := k.lost(name)
	lost := is > was || is != 0 && k.ID != before.ID
	switch {
	case lost && k.Evicted >= is:
		return Evicting
	case lost && !k.Missed:
		return Emptied
	case was != 0 && was >= second && len(k.Former) == 0:
		return Repaired
	}
	return 0
}

// leaves returns what is missing on the target after all was copied to it from the server of this
// marker, which has that name.
func (k *marker) leaves(name, target string, replicas int) copied {
	lost, moved := k.lost(name)
	if lost == 0 {
		return copied{0, moved}
	}
	replicas = min(replicas, len(k.Servers))
	after := func(other string) int64 { // what is missing here after the copy from that one
		if c, found := k.Copied[other]; found {
			return min(lost, c.since())
		}
		return lost
	}
	left := after(target)
	if others := without(without(k.Servers, name), target); replicas > 2 && len(others) > 0 {
		most := int64(0) // each counter of both is on a third, too
		for _, other := range others {
			most = max(most, min(left, after(other)))
		}
		left = most
	}
	return copied{left, moved}
}

// keptOne reports whether each counter on the target has another replica on which it was all the
// time, but for what servers have lost: a change of the list moves as many replicas of a counter
// as there are servers that came or went, at the most, and one of them may be the target's.
func keptOne(name string, target *marker, from string, source *marker, replicas int) bool {
	replicas = min(replicas, len(target.Servers))
	moves := 1 // to the target
	var seen [][]string
	count := func(lists []formerServers, of string) {
		for _, f := range lists {
			if !slices.Contains(f.Servers, of) || slices.ContainsFunc(seen, func(list []string) bool { return slices.Equal(list, f.Servers) }) {
				continue
			}
			seen = append(seen, f.Servers)
			moves += max(lacking(target.Servers, f.Servers), lacking(f.Servers, target.Servers))
			if !slices.Contains(f.Servers, name) {
				moves--
			}
		}
	}
	count(target.Former, name)
	count(source.Former, from)
	if lost, _ := target.lost(name); lost == 0 {
		moves--
	}
	return moves < replicas
}

// settle ends the losses if all that was missing was copied.
func (k *marker) settle(name string, replicas int) {
	if replicas = min(replicas, len(k.Servers)); replicas < 2 {
		return
	}
	lossy, moved := 0, 0 // sources that had lost something; a counter has replicas-1
	for _, other := range without(k.Servers, name) {
		c, found := k.Copied[other]
		if !found {
			return
		}
		switch {
		case c.Left != 0:
			lossy++
		case c.Moved != 0:
			moved++
		}
	}
	if lossy > 0 && lossy+moved > replicas-2 {
		return
	}
	k.Former, k.Copied, k.Claim, k.Missed = nil, nil, nil, false
}

// percent returns how much of what is missing was copied.
func (k *marker) percent() int {
	others := max(len(k.Servers)-1, 1)
	done := 100 * min(len(k.Copied), others)
	if k.Claim != nil && len(k.Copied) < others {
		done += k.Claim.Percent
	}
	return done / others
}

// isClaimed reports whether another process copies to the server.
func (k *marker) isClaimed(by uint64, now int64) bool {
	return k.Claim != nil && k.Claim.By != by && k.Claim.Until >= now && k.Claim.Until <= now+maxClaim
}

// sayAway has the marker say that a process cannot reach the server.
func (k *marker) sayAway(name string, process uint64, now int64) {
	if k.Away == nil {
		k.Away = map[string]map[uint64]int64{}
	}
	if k.Away[name] == nil {
		k.Away[name] = map[uint64]int64{}
	}
	k.Away[name][process] = now
}

// sayNoMore ends that.
func (k *marker) sayNoMore(name string, process uint64) {
	if delete(k.Away[name], process); len(k.Away[name]) == 0 {
		delete(k.Away, name)
	}
}

// clone returns a copy that shares nothing.
func (k *marker) clone() *marker {
	c := *k
	c.Former, c.Copied, c.Away, c.Gone = slices.Clone(k.Former), maps.Clone(k.Copied), maps.Clone(k.Away), maps.Clone(k.Gone)
	for name, by := range c.Away {
		c.Away[name] = maps.Clone(by)
	}
	if k.Claim != nil {
		claim := *k.Claim
		c.Claim = &claim
	}
	return &c
}
