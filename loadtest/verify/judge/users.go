package judge

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
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
	Counters []int32  // those of its rules, in their order
	Names    []string // of the counters of its limits, in their order, as answers have them

	entries []int32
}

// Counter is what a rule counts by.
type Counter struct {
	Name     string // as answers have it; empty: the whole event
	Features events.Features
	Rule     contract.Rule
	First    int32 // of the counters with its name: counts and histories are of that one; -1: of none
	Late     int64 // the Unix second of its last late increment; 0: none
}

// Users are the users and the counters that the rules have of them. They are safe for concurrent
// use.
type Users struct {
	contract *contract.Contract
	values   uint32 // which features are made up

	mu       sync.Mutex
	users    []*User
	counters []Counter
	ids      map[counterKey]int32
}

// counterKey is what counters differ in: rules with the same kinds share a log, a log of leases, or buckets.
type counterKey struct {
	name        string
	log, leases bool
}

// newUsers returns so many busy users.
func newUsers(c *contract.Contract, busy int) *Users {
	us := &Users{contract: c, values: rand.Uint32(), ids: map[counterKey]int32{}}
	for i := range busy {
		// The second kind has half as many values as the first, and so on: so counters are
		// shared crosswise.
		us.add(Busy, func(kind int) int { return i >> kind })
	}
	return us
}

// value makes up a feature. Its values are these users' alone, so nothing was counted for them before.
func (us *Users) value(kind string, number int) string {
	if kind != events.KindIP {
		return fmt.Sprintf("%08x-%06d", us.values, number)
	}
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], us.values+uint32(number))
	address[0] = contract.MadeUp.Addr().As4()[0]
	return netip.AddrFrom4(address).String()
}

// NewUser adds a user with features of its own, and returns its number.
func (us *Users) NewUser(role Role) int32 {
	us.mu.Lock()
	defer us.mu.Unlock()
	i := len(us.users)
	return us.add(role, func(int) int { return i })
}

func (us *Users) add(role Role, number func(kind int) int) int32 {
	user := &User{Role: role, Features: events.Features{}}
	for k, kind := range us.contract.Kinds {
		user.Features[kind] = us.value(kind, number(k))
	}
	for _, r := range us.contract.Rules {
		user.Counters = append(user.Counters, us.counter(r, user.Features))
	}
	for _, id := range user.Counters {
		c := &us.counters[id]
		c.First = -1
		if at := us.contract.Counting(c.Rule.Per); at >= 0 {
			c.First = user.Counters[us.contract.Limits[at].Index]
		}
	}
	for _, limit := range us.contract.Limits {
		user.Names = append(user.Names, us.counters[user.Counters[limit.Index]].Name)
	}
	us.users = append(us.users, user)
	return int32(len(us.users) - 1)
}

// counter returns the number of the counter that a rule has of those features.
func (us *Users) counter(r contract.Rule, all events.Features) int32 {
	c := Counter{Features: events.Features{}, Rule: r}
	var parts []string
	for _, kind := range r.Per {
		c.Features[kind] = all[kind]
		parts = append(parts, kind+":"+all[kind])
	}
	c.Name = strings.Join(parts, "+")
	key := counterKey{c.Name, r.Log, r.Leases}
	id, known := us.ids[key]
	if !known {
		id = int32(len(us.counters))
		us.counters, us.ids[key] = append(us.counters, c), id
	}
	return id
}

// User returns the user with that number.
func (us *Users) User(i int32) *User {
	us.mu.Lock()
	defer us.mu.Unlock()
	return us.users[i]
}

// Counter returns the counter with that number.
func (us *Users) Counter(id int32) Counter {
	us.mu.Lock()
	defer us.mu.Unlock()
	return us.counters[id]
}

// late notes a late increment for a user.
func (us *Users) late(i int32, stamp int64) {
	us.mu.Lock()
	defer us.mu.Unlock()
	for _, id := range us.users[i].Counters {
		us.counters[id].Late = stamp
	}
}

// Size returns how many users and counters there are.
func (us *Users) Size() (users, counters int) {
	us.mu.Lock()
	defer us.mu.Unlock()
	return len(us.users), len(us.counters)
}
