package judge

import (
	"encoding/binary"
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
	Counters []int32  // those of its rules, in their order
	Names    []string // of the counters of its limits, in their order, as answers have them

	entries []int32
}

// Counter is what a rule counts by.
type Counter struct {
	Name     string // as answers have it; empty: the whole event
	Features events.Features
	Step     int64 // of its precision, in seconds
}

// value makes up a feature. Its values are this log's alone, so nothing was counted for them before.
func (l *Log) value(kind string, number int) string {
	if kind != events.KindIP {
		return fmt.Sprintf("%08x-%06d", l.values, number)
	}
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], l.values+uint32(number))
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
		user.Features[kind] = l.value(kind, number(k))
	}
	for _, r := range l.contract.Rules {
		user.Counters = append(user.Counters, l.counter(r, user.Features))
	}
	for _, limit := range l.contract.Limits {
		user.Names = append(user.Names, l.counters[user.Counters[limit.Index]].Name)
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
	id, known := l.byName[c.Name]
	if !known {
		id = int32(len(l.counters))
		l.counters, l.byName[c.Name] = append(l.counters, c), id
	}
	return id
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
