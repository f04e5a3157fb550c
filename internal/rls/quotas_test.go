package rls_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/store"
)

// crossed is the store of one of two processes whose first adds reach the counters a and b in opposite orders: those of
// the first process come first to a, those of the second to b.
type crossed struct {
	store.Store
	first   bool // it is of the first process
	crossed bool // its first adds are done
	on      map[string]chan struct{}
}

func (c *crossed) Do(ctx context.Context, ops ...*store.Op) {
	if c.crossed || len(ops) != 2 || ops[0].Kind() != store.Add {
		c.Store.Do(ctx, ops...)
		return
	}
	c.crossed = true
	mine, other := "a", "b"
	if !c.first {
		mine, other = other, mine
	}
	do := func(key string) {
		for _, op := range ops {
			if strings.Contains(op.Counter, "quota-"+key) {
				c.Store.Do(ctx, op)
			}
		}
	}
	do(mine)
	close(c.on[mine])
	<-c.on[other]
	do(other)
}

// quotasAtOnce returns how many of two requests on two quotas of 1 are admitted, which come at once to two processes.
func quotasAtOnce(t *testing.T) (admitted int) {
	k := newKit(t, setting{config: `
domain: quotas
descriptors:
  - {key: quota-a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: quota-b, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`})
	on := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
	answers := make([]*response, 2)
	var calls sync.WaitGroup
	for n := range answers {
		st := &crossed{Store: k.store, first: n == 0, on: on}
		server := newServer(t, st, k.clock.Now, setting{timeout: 20 * time.Second}, k.limits.Load, &k.log)
		process := &kit{Server: server, t: t}
		calls.Go(func() { answers[n] = process.ask("quotas", of("quota-a", ""), of("quota-b", "")) })
	}
	calls.Wait()
	for _, answer := range answers {
		if answer.OverallCode == ok {
			admitted++
		}
	}
	assert.NotEqual(t, ok, k.ask("quotas", of("quota-a", ""), of("quota-b", "")).OverallCode, "afterwards both are full")
	return admitted
}

// Requests that come at once to several processes may be admitted by either quota: at most as many as both quotas
// admit, as docs/envoy.md says.
func TestQuotasAtOnce(t *testing.T) {
	assert.LessOrEqual(t, quotasAtOnce(t), 2)
}
