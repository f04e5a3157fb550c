package contract

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

const (
	policyHeader = "Ratelimit-Policy"
	stateHeader  = "Ratelimit"
	retryHeader  = "Retry-After"
)

// StateHeaders are the headers with the state of the limits.
var StateHeaders = []string{policyHeader, stateHeader, retryHeader, tightestHeaders[0], tightestHeaders[1], tightestHeaders[2]}

var tightestHeaders = [...]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}

// families are those of the headers that the rules choose. GET /v1/events does not tell of
// them, so the first decision of a store does: without one there are fewer headers.
type families struct{ structured, tightest bool }

// HeaderFaults holds the headers of a hit to its decision.
func (c *Contract) HeaderFaults(header http.Header, status int, d wire.Decision) (f Faults) {
	if !slices.ContainsFunc(d.Limits, func(s wire.LimitState) bool { return s.OnError != "" }) {
		c.families.CompareAndSwap(nil, &families{len(header[policyHeader]) > 0, len(header[tightestHeaders[0]]) > 0})
	}
	families := c.families.Load()
	if families == nil {
		return nil
	}
	want := map[string]string{}
	var policies, states []string
	for _, s := range d.Limits {
		if s.Shadow || !families.structured {
			continue
		}
		unit := `;qu="concurrent-requests"`
		if s.Algorithm != events.Concurrency {
			unit = fmt.Sprintf(";w=%d", Seconds(c.named(s.Name).WindowAt(d.At.Unix())))
		}
		policies = append(policies, fmt.Sprintf("%q;q=%d%s", s.Name, s.Limit, unit))
		if !known(s) {
			continue
		}
		state := fmt.Sprintf("%q;r=%d", s.Name, s.Remaining)
		if !s.Allowed && s.Reset != nil {
			state += fmt.Sprintf(";t=%d", *s.Reset)
		}
		states = append(states, state)
	}
	want[policyHeader], want[stateHeader] = strings.Join(policies, ", "), strings.Join(states, ", ")
	if s, found := tightest(d.Limits); found && families.tightest {
		want[tightestHeaders[0]], want[tightestHeaders[1]] = fmt.Sprint(c.named(s.Name).Most()), fmt.Sprint(s.Remaining)
		if s.Reset != nil {
			want[tightestHeaders[2]] = fmt.Sprint(*s.Reset)
		}
	}
	if status == http.StatusTooManyRequests && d.RetryAfter != nil {
		want[retryHeader] = fmt.Sprint(cmp.Or(d.MayFitAfter, *d.RetryAfter))
	}
	return headerFaults(header, want)
}

// named returns the limit of that name; the zero Limit if the rules have none, which is a fault of the body.
func (c *Contract) named(name string) Limit {
	if i := slices.IndexFunc(c.Limits, func(l Limit) bool { return l.Name == name }); i >= 0 {
		return c.Limits[i]
	}
	return Limit{}
}

// NoHeaderFaults holds an answer to having none: that of a check and of a batch.
func NoHeaderFaults(header http.Header) (f Faults) { return headerFaults(header, nil) }

// headerFaults holds headers to what they have to be; none is empty. Lists may be written in any way.
func headerFaults(header http.Header, want map[string]string) (f Faults) {
	for _, name := range StateHeaders {
		all := header.Values(name)
		got := strings.Join(all, ", ")
		if list, err := httpsfv.UnmarshalList(all); err == nil && len(list) > 0 && (name == policyHeader || name == stateHeader) {
			got, _ = httpsfv.Marshal(list) // what was read can be written
		}
		f.add(got != want[name] || got == "" && len(all) > 0, "%s is %q, and the body says %q", name, got, want[name])
	}
	return f
}

// tightest is of the limits that deny the one that does for longest, else the one with the
// least remaining; of equals the first.
func tightest(limits []wire.LimitState) (found wire.LimitState, any bool) {
	denies := func(s wire.LimitState) int64 {
		switch {
		case s.Allowed:
			return 0
		case s.Reset == nil:
			return math.MaxInt64
		}
		return *s.Reset
	}
	for _, s := range limits {
		if s.Shadow || !known(s) {
			continue
		}
		if !any || cmp.Or(cmp.Compare(denies(s), denies(found)), cmp.Compare(found.Remaining, s.Remaining)) > 0 {
			found, any = s, true
		}
	}
	return found, any
}
