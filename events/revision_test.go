package events

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// All processes give the same rules the same revision, also rules with addresses.
func TestRevisionsOfTwoProcesses(t *testing.T) {
	const asPrinter = "COUNTERD_TEST_AS_PRINTER"
	rules := Rules{Events: map[string]*Event{"e": {Name: "e", Rules: []Rule{{
		Per: []string{"ip"}, Limits: []Limit{{N: 5, Window: time.Minute}, {N: 5, Window: time.Hour, Algorithm: "fixed-window", Calendar: time.FixedZone("Zone", 60)}},
		Allow: List{Networks: networksOf("10.0.0.0/8", "2001:db8::1/128")},
		Deny:  List{Networks: networksOf("203.0.113.0/24"), Values: map[string]bool{"a": true, "b": true}},
	}}}}}
	revision := fmt.Sprintf("revision %d\n", rules.Hashed().Revision)
	if os.Getenv(asPrinter) != "" {
		fmt.Print(revision)
		return
	}
	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), asPrinter+"=1")
	printed, err := other.Output()
	require.NoError(t, err)
	assert.Contains(t, string(printed), revision)
}

// Whatever decides how counters are kept is in the revision of rules from memory.
func TestRevisionsDifferByWhatIsKept(t *testing.T) {
	revisions := map[uint64]string{}
	for name, change := range map[string]func(*Event, *Rule){
		"nothing":   func(*Event, *Rule) {},
		"retention": func(e *Event, _ *Rule) { e.Retention = time.Hour },
		"limit":     func(_ *Event, r *Rule) { r.Limits[0].Window++ },
		"fixed":     func(_ *Event, r *Rule) { r.Limits[0].Algorithm = "fixed-window" },
		"UTC":       func(_ *Event, r *Rule) { r.Limits[0].Algorithm, r.Limits[0].Calendar = "fixed-window", time.UTC },
		"calendar": func(_ *Event, r *Rule) {
			r.Limits[0].Algorithm, r.Limits[0].Calendar = "fixed-window", time.FixedZone("Zone", 60)
		},
		"allow":        func(_ *Event, r *Rule) { r.Allow.Networks = networksOf("10.0.0.0/8") },
		"larger allow": func(_ *Event, r *Rule) { r.Allow.Networks = networksOf("10.0.0.0/7") },
		"deny":         func(_ *Event, r *Rule) { r.Deny.Networks = networksOf("10.0.0.0/8") },
		"deny value":   func(_ *Event, r *Rule) { r.Deny.Values = map[string]bool{"a": true} },
		"deny both":    func(_ *Event, r *Rule) { r.Deny.Values = map[string]bool{"a": true, "b": true} },
		"override":     func(_ *Event, r *Rule) { r.Overrides = map[string][]Limit{"192.0.2.1": {{N: 1, Window: time.Minute}}} },
	} {
		event := &Event{Name: "e", Rules: []Rule{{Per: []string{"ip"}, Limits: []Limit{{N: 5, Window: time.Minute}}}}}
		change(event, &event.Rules[0])
		rules := Rules{Events: map[string]*Event{"e": event}}
		revision := rules.Hashed().Revision
		assert.Empty(t, revisions[revision], name)
		revisions[revision] = name
	}
}
