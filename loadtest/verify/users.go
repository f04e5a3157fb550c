package verify

import (
	crand "crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/counterd/counterd/events"
)

// role is how a user is called for.
type role uint8

const (
	busy  role = iota // by all clients at once
	quiet             // by one, each call when the one before was answered
	burst             // by many at once, in one burst, and never again
)

// madeUp are the addresses that are made up.
var madeUp = netip.MustParsePrefix("10.0.0.0/8")

// user is one that calls are made for.
type user struct {
	role     role
	features events.Features
	counters []int32 // those of its rules, in their order
}

// counter is what a rule counts by.
type counter struct {
	name     string // as answers have it
	features events.Features
	step     int64 // of its precision, in seconds
	whole    bool  // it is that of the whole event
}

// users are the features that calls are made for. Their names are of this round alone, so nothing was
// counted for them before.
type users struct {
	contract *contract
	prefix   string
	base     uint32

	mu       sync.Mutex
	list     []*user
	counters []counter
	byName   map[string]int32
}

func newUsers(c *contract, n int) *users {
	var random [8]byte
	_, _ = crand.Read(random[:]) // it never fails
	p := &users{
		contract: c, prefix: hex.EncodeToString(random[:4]), base: binary.BigEndian.Uint32(random[4:]),
		byName: map[string]int32{},
	}
	for i := range n {
		// The second kind has half as many values as the first, and so on: so counters are
		// shared crosswise.
		p.add(busy, func(kind int) int { return i >> kind })
	}
	return p
}

// fresh adds a user with features of its own.
func (p *users) fresh(as role) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := len(p.list)
	return p.add(as, func(int) int { return i })
}

func (p *users) add(as role, number func(kind int) int) int32 {
	who := &user{role: as, features: events.Features{}}
	for k, kind := range p.contract.kinds {
		who.features[kind] = p.value(kind, number(k))
	}
	for _, r := range p.contract.rules {
		who.counters = append(who.counters, p.counter(r, who.features))
	}
	p.list = append(p.list, who)
	return int32(len(p.list) - 1)
}

func (p *users) value(kind string, number int) string {
	if kind != events.KindIP {
		return fmt.Sprintf("%s-%06d", p.prefix, number)
	}
	at := (p.base + uint32(number)) & (1<<24 - 1)
	return netip.AddrFrom4([4]byte{10, byte(at >> 16), byte(at >> 8), byte(at)}).String()
}

// counter returns the number of the counter that a rule has of those features.
func (p *users) counter(r rule, all events.Features) int32 {
	c := counter{features: events.Features{}, step: r.step, whole: len(r.per) == 0}
	var names []string
	for _, kind := range r.per {
		c.features[kind] = all[kind]
		names = append(names, kind+":"+all[kind])
	}
	c.name = strings.Join(names, "+")
	if i, known := p.byName[c.name]; known {
		return i
	}
	p.counters = append(p.counters, c)
	p.byName[c.name] = int32(len(p.counters) - 1)
	return p.byName[c.name]
}

func (p *users) who(i int32) *user {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.list[i]
}

func (p *users) counterOf(id int32) counter {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counters[id]
}

// allCounters returns the counters so far.
func (p *users) allCounters() []counter {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.counters)
}

// nameOf returns how answers name the counter of a limit.
func (p *users) nameOf(who *user, l limit) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counters[who.counters[l.rule]].name
}
