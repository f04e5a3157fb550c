package verify

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

// The headers with the state of the limits.
const (
	policyHeader = "Ratelimit-Policy"
	stateHeader  = "Ratelimit"
	retryHeader  = "Retry-After"
)

var tightestHeaders = [...]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}

// families are those of the headers that the rules choose. GET /v1/events does not tell of
// them, so the first answer with a decision does.
type families struct{ structured, tightest bool }

func familiesOf(header http.Header) families {
	return families{len(header[policyHeader]) > 0, len(header[tightestHeaders[0]]) > 0}
}

// headerFaults holds the headers of a hit to its decision.
func headerFaults(header http.Header, status int, d wire.Decision, want families) (f faults) {
	var policies, states []string
	for _, s := range d.Limits {
		if s.Shadow {
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
	if !want.structured {
		policies, states = nil, nil
	}
	f.list(header, policyHeader, policies)
	f.list(header, stateHeader, states)
	f = append(f, tightestFaults(header, d, want.tightest)...)
	retry := ""
	if status == http.StatusTooManyRequests && d.RetryAfter != nil {
		retry = strconv.FormatInt(*d.RetryAfter, 10)
	}
	f.one(header, retryHeader, retry)
	return f
}

// noHeaderFaults holds an answer to having none: that of a check and of a batch.
func noHeaderFaults(header http.Header) (f faults) {
	for _, name := range append(tightestHeaders[:], policyHeader, stateHeader, retryHeader) {
		f.one(header, name, "")
	}
	return f
}

func tightestFaults(header http.Header, d wire.Decision, sent bool) (f faults) {
	want := [len(tightestHeaders)]string{}
	if s, found := tightest(d.Limits); found && sent {
		want[0], want[1] = strconv.FormatInt(s.Limit, 10), strconv.FormatInt(s.Remaining, 10)
		if s.Reset != nil {
			want[2] = strconv.FormatInt(*s.Reset, 10)
		}
	}
	for i, name := range tightestHeaders {
		f.one(header, name, want[i])
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
func (f *faults) one(header http.Header, name, want string) {
	got := header.Values(name)
	f.add(want == "" && len(got) > 0, "there is %s: %q, and the body has none", name, got)
	f.add(want != "" && (len(got) != 1 || got[0] != want), "%s is %q, and the body says %s", name, got, want)
}

// list holds a header to a list of structured fields, however they are written.
func (f *faults) list(header http.Header, name string, want []string) {
	list, err := httpsfv.UnmarshalList(header.Values(name))
	if err != nil {
		f.add(true, "%s: %q is no list of structured fields: %s", name, header.Values(name), err)
		return
	}
	var got []string
	for _, member := range list {
		text, err := httpsfv.Marshal(httpsfv.List{member})
		if err != nil {
			text = err.Error()
		}
		got = append(got, text)
	}
	f.add(strings.Join(got, ", ") != strings.Join(want, ", "), "%s is %q, and the body says %q",
		name, strings.Join(got, ", "), strings.Join(want, ", "))
}

func windowSeconds(window string) string {
	d, err := events.ParseDuration(window)
	if err != nil {
		return window
	}
	return strconv.FormatInt(seconds(d), 10)
}
