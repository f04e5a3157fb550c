package run

import (
	"fmt"
	"strconv"
	"time"

	"github.com/counterd/counterd/loadtest/columns"
)

// every is all requests, as Bounds has parts of them.
const every = 1_000_000

// Bounds are what a run has to keep to be a success.
type Bounds struct {
	Failures int           // part of the requests that may fail, or not be sent, in millionths; 0: all but one, negative: none
	P99      time.Duration // of the latency; 0: any
}

// Broken returns what the report does not keep, in words. Where no request succeeded nothing
// was measured, and no bounds are kept. What was broken off by an interrupt has not failed, nor
// has what waited for a place in flight then: it might still have been sent.
func (b Bounds) Broken(r *Report) (list []string) {
	failed, allowed := r.Failed, int64(max(b.Failures, 0))
	if !r.Interrupted {
		failed += r.Unsent
	}
	switch {
	case r.Interrupted && r.Answered == 0:
	case r.Answered <= r.Failed:
		list = append(list, "no request succeeded")
	case b.Failures != 0 && failed*every > allowed*r.Arrived:
		list = append(list, fmt.Sprintf("%s of %s requests failed, %.3g%%, and %s%% may", columns.Grouped(failed), columns.Grouped(r.Arrived),
			100*float64(failed)/float64(r.Arrived), strconv.FormatFloat(100*float64(allowed)/every, 'f', -1, 64)))
	}
	if most := milliseconds(b.P99); b.P99 > 0 && r.Latency.P99 > most {
		list = append(list, fmt.Sprintf("the p99 is %s ms, and may be %s ms", digits(r.Latency.P99), digits(most)))
	}
	return list
}
