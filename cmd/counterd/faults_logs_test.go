package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/memcache"
)

// Each fault of one of two servers is to callers the same with logs, and in the end each server by
// itself has each acknowledged event once, also of features that came meanwhile.
func TestFaultsOfLogs(t *testing.T) {
	leaktest.Check(t)
	rows := readFaultTable(t)
	for _, f := range faults() {
		if f.copies < 2 || f.small {
			continue
		}
		f.logs = true
		t.Run(f.test, func(t *testing.T) {
			leaktest.Parallel(t)
			var row string
			settled := false
			testkit.Unstalled(siteTimeout/20, func() bool {
				row, settled = f.meet(t)
				return settled && f.isIn(rows, row)
			})
			assert.True(t, f.isIn(rows, row), "a row of docs/failure.md: %s", row)
			assert.True(t, settled, "soon after the fault all is decided and counted on the store")
		})
	}
}

// isIn reports whether the table has the row.
func (f fault) isIn(rows []string, row string) bool {
	return assert.ObjectsAreEqual(1, len(matching(rows, row+" | ")))
}

func matching(rows []string, prefix string) (found []string) {
	for _, row := range rows {
		if strings.HasPrefix(row, prefix) {
			found = append(found, row)
		}
	}
	return found
}

// compareLogs holds what each process counts, and what each server has, against the answers.
func (f fault) compareLogs(s *site) {
	var acknowledged, unknown int64
	for name, told := range s.tallies() {
		least, most := told.Acknowledged, told.Acknowledged+told.Unknown
		acknowledged, unknown = acknowledged+least, unknown+told.Unknown
		for process := range s.clients {
			var got int64
			assert.Eventually(s.t, func() bool { // of two servers one may not answer in time, and the other lack some yet
				got = s.count(process, name)
				return got >= least && got <= most
			}, soon, 100*time.Millisecond, "process %d counts %d of %v, not %d to %d", process, got, name, least, most)
		}
		for i, server := range s.servers {
			var got int64
			assert.Eventually(s.t, func() bool {
				got = heldBy(s.t, server.Addr, name)
				return got >= least && got <= most
			}, soon, 100*time.Millisecond, "server %d has %d of %v, not %d to %d", i, got, name, least, most)
		}
	}
	s.t.Logf("%d acknowledged, %d of unknown outcome", acknowledged, unknown)
}

// heldBy returns what the log of a counter on one server holds.
func heldBy(t *testing.T, server string, name counterName) int64 {
	fleet, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{server}, Timeout: soon})
	require.NoError(t, err)
	defer fleet.Close()
	event := events.Event{Name: name.event, Rules: []events.Rule{{Per: []string{"user"}}}}
	counter, err := event.Counter(events.Features{"user": name.user})
	require.NoError(t, err)
	op := store.Op{Counter: counter.ID(), Data: true, Reads: []store.Read{{Item: eventlog.Item()}}}
	fleet.Do(t.Context(), &op)
	require.NoError(t, op.Err)
	var log journal.Log
	if op.Reads[0].Version == 0 {
		return 0
	}
	require.NoError(t, log.Read(op.Reads[0].Data, journal.Question{}), fmt.Sprint(name))
	return log.Sum(0, 1<<46)
}
