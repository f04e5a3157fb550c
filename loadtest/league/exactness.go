package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// hitTimeout bounds a hit.
const hitTimeout = 5 * time.Second

// timedHit makes a hit and notes when.
func timedHit(ctx context.Context, to Instance, limit Limit, feature string) (Call, Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, hitTimeout)
	defer cancel()
	call := Call{Start: time.Now().UnixNano()}
	answer, err := to.Hit(ctx, limit, feature)
	call.End = time.Now().UnixNano()
	switch {
	case err != nil:
	case answer.Allowed:
		call.Outcome = Admitted
	default:
		call.Outcome = Denied
	}
	return call, answer, err
}

// drive sends the traffic to the instances in turn, each hit when it is due, and returns the calls in its order, with
// the first error.
func drive(ctx context.Context, f *Fleet, start time.Time, traffic []arrival) ([]Call, error) {
	calls := make([]Call, len(traffic))
	var first error
	var once sync.Once
	var group sync.WaitGroup
	for i, a := range traffic {
		if wait := time.Until(start.Add(a.at)); wait > 0 {
			select {
			case <-ctx.Done():
				group.Wait()
				return nil, ctx.Err()
			case <-time.After(wait):
			}
		}
		group.Go(func() {
			call, _, err := timedHit(ctx, f.Instances[i%len(f.Instances)], a.limit, a.feature)
			if calls[i] = call; err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	group.Wait()
	return calls, first
}

// judgeAll judges each feature of the traffic, and returns the sum for each limit.
func judgeAll(promise Promise, traffic []arrival, calls []Call) map[string]Judgment {
	type counter struct{ limit, feature string }
	limits, byCounter := map[string]Limit{}, map[counter][]Call{}
	for i, a := range traffic {
		limits[a.limit.Name] = a.limit
		c := counter{a.limit.Name, a.feature}
		byCounter[c] = append(byCounter[c], calls[i])
	}
	found := map[string]Judgment{}
	for c, calls := range byCounter {
		sum := found[c.limit]
		sum.add(judge(limits[c.limit], promise, calls))
		found[c.limit] = sum
	}
	return found
}

// merged returns the traffic of several limits in the order of time.
func merged(schedules ...[]arrival) []arrival {
	all := slices.Concat(schedules...)
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}
