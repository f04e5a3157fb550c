package judge

import (
	crand "crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"sync"

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

// Users are all that calls are made for. Their names are made up for one log alone, so nothing was
// counted for them before. It is safe for concurrent use until the log is judged.
type Users struct {
	contract *contract.Contract
	prefix   string // of values, and the first of addresses
	base     uint32

	mu       sync.Mutex
	users    []*User
	counters []Counter
	byName   map[string]int32
}

func newUsers(c *contract.Contract, busy int) *Users {
	var random [8]byte
	_, _ = crand.Read(random[:]) // it never fails
	u := &Users{contract: c, prefix: hex.EncodeToString(random[:4]), base: binary.BigEndian.Uint32(random[4:]), byName: map[string]int32{}}
	for i := range busy {
		// The second kind has half as many values as the first, and so on: so counters are
		// shared crosswise.
		u.add(Busy, func(kind int) int { return i >> kind })
	}
	return u
}

func (u *Users) value(kind string, number int) string {
	if kind != events.KindIP {
		return fmt.Sprintf("%s-%06d", u.prefix, number)
	}
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], u.base+uint32(number))
	address[0] = contract.MadeUp.Addr().As4()[0]
	return netip.AddrFrom4(address).String()
}

// NewUser adds a user with features of its own, and returns its number.
func (u *Users) NewUser(role Role) int32 {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := len(u.users)
	return u.add(role, func(int) int { return i })
}

func (u *Users) add(role Role, number func(kind int) int) int32 {
	user := &User{Role: role, Features: events.Features{}}
	for k, kind := range u.contract.Kinds {
		user.Features[kind] = u.value(kind, number(k))
	}
	for _, r := range u.contract.Rules {
		user.Counters = append(user.Counters, u.counter(r, user.Features))
	}
	u.users = append(u.users, user)
	return int32(len(u.users) - 1)
}

// counter returns the number of the counter that a rule has of those features.
func (u *Users) counter(r contract.Rule, all events.Features) int32 {
	c := Counter{Features: events.Features{}, Step: r.Step}
	var parts []string
	for _, kind := range r.Per {
		c.Features[kind] = all[kind]
		parts = append(parts, kind+":"+all[kind])
	}
	c.Name = strings.Join(parts, "+")
	if id, known := u.byName[c.Name]; known {
		return id
	}
	u.counters = append(u.counters, c)
	u.byName[c.Name] = int32(len(u.counters) - 1)
	return u.byName[c.Name]
}

// User returns the user with that number.
func (u *Users) User(i int32) *User {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.users[i]
}

// Counter returns the counter with that number.
func (u *Users) Counter(id int32) Counter {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.counters[id]
}

// Size returns how many users and counters there are.
func (u *Users) Size() (users, counters int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.users), len(u.counters)
}

// NamesOf returns how answers name the counters of a user, of each limit.
func (u *Users) NamesOf(user *User) (list []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, limit := range u.contract.Limits {
		list = append(list, u.counters[user.Counters[limit.Index]].Name)
	}
	return list
}
