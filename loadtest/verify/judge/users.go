package judge

import (
	crand "crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/verify/contract"
)

// Role is how a user is called for.
type Role uint8

// The roles of users.
const (
	Busy  Role = iota // by all clients at once
	Quiet             // by one, each call when the one before was answered
	Burst             // by many at once, in one burst, and never again
)

// User is one that calls are made for.
type User struct {
	Role     Role
	Features events.Features
	Counters []int32 // those of its rules, in their order

	entries []int32
}

// Counter is what a rule counts by.
type Counter struct {
	Name     string // as answers have it; empty: the whole event
	Features events.Features
	Step     int64 // of its precision, in seconds
}

// names are made up for one log alone, so nothing was counted for them before.
type names struct {
	prefix string
	base   uint32
}

func newNames() names {
	var random [8]byte
	_, _ = crand.Read(random[:]) // it never fails
	return names{hex.EncodeToString(random[:4]), binary.BigEndian.Uint32(random[4:])}
}

func (n names) value(kind string, number int) string {
	if kind != events.KindIP {
		return fmt.Sprintf("%s-%06d", n.prefix, number)
	}
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], n.base+uint32(number))
	address[0] = contract.MadeUp.Addr().As4()[0]
	return netip.AddrFrom4(address).String()
}

// NewUser adds a user with features of its own, and returns its number.
func (l *Log) NewUser(role Role) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.users)
	return l.add(role, func(int) int { return i })
}

func (l *Log) add(role Role, number func(kind int) int) int32 {
	user := &User{Role: role, Features: events.Features{}}
	for k, kind := range l.contract.Kinds {
		user.Features[kind] = l.names.value(kind, number(k))
	}
	for _, r := range l.contract.Rules {
		user.Counters = append(user.Counters, l.counter(r, user.Features))
	}
	l.users = append(l.users, user)
	return int32(len(l.users) - 1)
}

// counter returns the number of the counter that a rule has of those features.
func (l *Log) counter(r contract.Rule, all events.Features) int32 {
	c := Counter{Features: events.Features{}, Step: r.Step}
	var parts []string
	for _, kind := range r.Per {
		c.Features[kind] = all[kind]
		parts = append(parts, kind+":"+all[kind])
	}
	c.Name = strings.Join(parts, "+")
	if id, known := l.byName[c.Name]; known {
		return id
	}
	l.counters = append(l.counters, c)
	l.byName[c.Name] = int32(len(l.counters) - 1)
	return l.byName[c.Name]
}

// User returns the user with that number.
func (l *Log) User(i int32) *User {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.users[i]
}

// Counter returns the counter with that number.
func (l *Log) Counter(id int32) Counter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counters[id]
}

// Size returns how many users and counters there are.
func (l *Log) Size() (users, counters int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.users), len(l.counters)
}

// NamesOf returns how answers name the counters of a user, of each limit.
func (l *Log) NamesOf(user *User) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, limit := range l.contract.Limits {
		list = append(list, l.counters[user.Counters[limit.Index]].Name)
	}
	return list
}
