package contract

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
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
	want := c.families.Load()
	if want == nil {
		return nil
	}
	var policies, states []string
	for _, s := range d.Limits {
		if s.Shadow || !want.structured {
			continue
		}
		policies = append(policies, fmt.Sprintf("%q;q=%d;w=%s", s.Name, s.Limit, windowSeconds(s.Window)))
		if !known(s) {
			continue
		}
		state := fmt.Sprintf("%q;r=%d", s.Name, s.Remaining)
		if !s.Allowed && s.Reset != nil {
			state += fmt.Sprintf(";t=%d", *s.Reset)
		}
		states = append(states, state)
	}
	f.list(header, policyHeader, policies)
	f.list(header, stateHeader, states)
	values := [len(tightestHeaders)]string{}
	if s, found := tightest(d.Limits); found && want.tightest {
		values[0], values[1] = fmt.Sprint(s.Limit), fmt.Sprint(s.Remaining)
		if s.Reset != nil {
			values[2] = fmt.Sprint(*s.Reset)
		}
	}
	for i, name := range tightestHeaders {
		f.one(header, name, values[i])
	}
	retry := ""
	if status == http.StatusTooManyRequests && d.RetryAfter != nil {
		retry = fmt.Sprint(*d.RetryAfter)
	}
	f.one(header, retryHeader, retry)
	return f
}

// NoHeaderFaults holds an answer to having none: that of a check and of a batch.
func NoHeaderFaults(header http.Header) (f Faults) {
	for _, name := range StateHeaders {
		f.one(header, name, "")
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

// one holds a header to a value; an empty one is that it is not there.
func (f *Faults) one(header http.Header, name, want string) {
	got := header.Values(name)
	f.add(want == "" && len(got) > 0, "there is %s: %q, and the body has none", name, got)
	f.add(want != "" && (len(got) != 1 || got[0] != want), "%s is %q, and the body says %s", name, got, want)
}

// list holds a header to a list of structured fields, however they are written.
func (f *Faults) list(header http.Header, name string, want []string) {
	list, err := httpsfv.UnmarshalList(header.Values(name))
	got := ""
	if err == nil && len(list) > 0 {
		got, err = httpsfv.Marshal(list)
	}
	f.add(err != nil, "%s: %q is no list of structured fields: %v", name, header.Values(name), err)
	f.add(err == nil && got != strings.Join(want, ", "), "%s is %q, and the body says %q", name, got, strings.Join(want, ", "))
}

func windowSeconds(window string) string {
	d, err := events.ParseDuration(window)
	if err != nil {
		return window
	}
	return strconv.FormatInt(Seconds(d), 10)
}
