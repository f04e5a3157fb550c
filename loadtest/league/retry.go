package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Retries is what became of hits that came when denials had said, and a second earlier.
type Retries struct {
	Punctual, TooEarly int // hits after retry_after: admitted, and denied, though nothing else came
	Premature, TooLate int // hits a second before it: denied, and admitted
	Silent             int // denials that said nothing
	Unjudged           int // hits whose time was not met, or that were not decided
}

func (r *Retries) add(s Retries) {
	r.Punctual, r.TooEarly = r.Punctual+s.Punctual, r.TooEarly+s.TooEarly
	r.Premature, r.TooLate = r.Premature+s.Premature, r.TooLate+s.TooLate
	r.Silent, r.Unjudged = r.Silent+s.Silent, r.Unjudged+s.Unjudged
}

// True returns the share of hits that went as promised, and whether there were any.
func (r Retries) True() (float64, bool) {
	right, all := r.Punctual+r.Premature, r.Punctual+r.Premature+r.TooEarly+r.TooLate
	return float64(right) / float64(max(all, 1)), all > 0
}

const (
	early = time.Second            // how much earlier the other hit comes
	lead  = 100 * time.Millisecond // by which it is sent before
)

// retry has each of so many features hit until it is denied, and once more: after the time of the denial, or a
// second earlier, in turns. Then it begins anew with another feature, until the end.
func retry(ctx context.Context, f *Fleet, limit Limit, seed uint64, features int, end time.Time) (all Retries) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range features {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			to := f.Instances[i%len(f.Instances)]
			for round := 0; ctx.Err() == nil && time.Now().Before(end); round++ {
				feature, punctual := fmt.Sprintf("retry-%d-%d", i, round), (i/len(f.Instances)+round)%2 == 0
				found, ok := retryOnce(ctx, to, limit, feature, punctual, random, end)
				if !ok {
					return
				}
				mu.Lock()
				all.add(found)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return all
}

// retryOnce is false if the end came first.
func retryOnce(
	ctx context.Context, to Instance, limit Limit, feature string, punctual bool, random *rand.Rand, end time.Time,
) (found Retries, ok bool) {
	for hits := int64(0); ; hits++ {
		call, answer, err := timedHit(ctx, to, limit, feature)
		switch {
		case err != nil || hits > 20*limit.N:
			return Retries{Unjudged: 1}, sleepUntil(ctx, time.Now().Add(limit.Window/10), end)
		case call.Outcome == Admitted:
			// On the average the window is full after a sixth of its length.
			if !sleepUntil(ctx, time.Now().Add(time.Duration(random.Int64N(int64(limit.Window)/(3*limit.N)))), end) {
				return found, false
			}
			continue
		case answer.Silent:
			return Retries{Silent: 1}, sleepUntil(ctx, time.Now().Add(limit.Window/2), end)
		}
		if punctual {
			if !sleepUntil(ctx, time.Unix(0, call.End).Add(answer.RetryAfter+time.Millisecond), end) {
				return found, false
			}
			switch second, _, _ := timedHit(ctx, to, limit, feature); second.Outcome {
			case Admitted:
				found.Punctual++
			case Denied:
				found.TooEarly++
			default:
				found.Unjudged++
			}
			return found, true
		}
		if answer.RetryAfter < early+2*lead {
			return found, sleepUntil(ctx, time.Now().Add(limit.Window/time.Duration(limit.N)), end) // it frees within a second
		}
		by := time.Unix(0, call.Start).Add(answer.RetryAfter - early)
		if !sleepUntil(ctx, by.Add(-lead), end) {
			return found, false
		}
		second, _, _ := timedHit(ctx, to, limit, feature)
		switch {
		case second.Outcome == Denied:
			found.Premature++
		case second.Outcome == Admitted && second.End <= by.UnixNano():
			found.TooLate++
		default:
			found.Unjudged++
		}
		return found, true
	}
}

// sleepUntil is false if the end comes first.
func sleepUntil(ctx context.Context, until, end time.Time) bool {
	if until.After(end) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(until)):
		return true
	}
}
