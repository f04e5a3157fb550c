package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/loadtest/share"
)

func TestBounds(t *testing.T) {
	for name, c := range map[string]struct {
		bounds Bounds
		report Report
		broken []string
	}{
		"none are set":               {Bounds{}, Report{Arrived: 100, Answered: 100, Failed: 99}, nil},
		"none succeeded":             {Bounds{}, Report{Arrived: 100, Answered: 100, Failed: 100}, []string{"no request succeeded"}},
		"as many as may":             {Bounds{Failures: new(share.Share(290_000))}, Report{Arrived: 100, Answered: 100, Failed: 29}, nil},
		"one more":                   {Bounds{Failures: new(share.Share(290_000))}, Report{Arrived: 100, Answered: 100, Failed: 30}, []string{"30 of 100 requests failed, 30%, and 29% may"}},
		"not sent":                   {Bounds{Failures: new(share.Share(1000))}, Report{Arrived: 10_000, Answered: 9_989, Unsent: 11}, []string{"11 of 10,000 requests failed, 0.11%, and 0.1% may"}},
		"not sent, for an interrupt": {Bounds{Failures: new(share.Share(0))}, Report{Arrived: 2000, Answered: 100, Unsent: 1700, BrokenOff: 200, Interrupted: true}, nil},
		"too slow": {Bounds{P99: 20 * time.Millisecond}, Report{Arrived: 1, Answered: 1, Latency: Latency{P99: 31.4}}, []string{
			"the p99 is 31.4 ms, and may be 20.0 ms"}},
	} {
		assert.Equal(t, c.broken, c.bounds.Broken(&c.report), name)
	}
}
