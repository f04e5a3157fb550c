package run

import (
	"fmt"
	"time"

	"github.com/counterd/counterd/loadtest/columns"
	"github.com/counterd/counterd/loadtest/share"
)

// NoFailures are Bounds.Failures that no failure keeps.
const NoFailures share.Share = -1

// Bounds are what a run has to keep to be a success.
type Bounds struct {
	Failures share.Share   // part of the requests that may fail, or not be sent; 0: all but one
	P99      time.Duration // of the latency; 0: any
}

// Broken returns what the report does not keep, in words. Where no request succeeded nothing
// was measured, and no bounds are kept. What was broken off by an interrupt has not failed, nor
// has what waited for a place in flight then: it might still have been sent.
func (b Bounds) Broken(r *Report) (list []string) {
	failed, allowed := r.Failed, max(b.Failures, 0)
	if !r.Interrupted {
		failed += r.Unsent
	}
	switch {
	case r.Interrupted && r.Answered == 0:
	case r.Answered <= r.Failed:
		list = append(list, "no request succeeded")
	case b.Failures != 0 && failed*int64(share.Whole) > int64(allowed)*r.Arrived:
		list = append(list, fmt.Sprintf("%s of %s requests failed, %.3g%%, and %s%% may", columns.Grouped(failed), columns.Grouped(r.Arrived),
			100*float64(failed)/float64(r.Arrived), allowed))
	}
	if most := milliseconds(b.P99); b.P99 > 0 && r.Latency.P99 > most {
		list = append(list, fmt.Sprintf("the p99 is %s ms, and may be %s ms", digits(r.Latency.P99), digits(most)))
	}
	return list
}
