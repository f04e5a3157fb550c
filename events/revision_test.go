package events

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The file that was modified later is newer, whatever its content and whenever it is read.
func TestRevisionsOfFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	modified := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	read := func(limits string, at time.Time) uint64 {
		require.NoError(t, os.WriteFile(file, []byte("events: {e: {limits: "+limits+"}}"), 0o600))
		require.NoError(t, os.Chtimes(file, at, at))
		rules, err := ReadRules(file)
		require.NoError(t, err)
		assert.Equal(t, rules.Revision, rules.Events["e"].Rules[0].Revision)
		return rules.Revision
	}
	older := read("[{per: ip, rate: 5/m}]", modified)
	assert.Equal(t, older, read("[{per: ip, rate: 5/m}]", modified))
	assert.NotEqual(t, older, read("[{per: ip, rate: 6/m}]", modified))
	for i := range 9 {
		newer := read("[{per: ip, rate: "+string(rune('1'+i))+"/m}]", modified.Add(time.Duration(i+1)*time.Millisecond))
		assert.Greater(t, newer, older)
		older = newer
	}
	assert.Less(t, read("[{per: ip, rate: 5/m}]", time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)), uint64(1)<<hashBits)
}

// Rules from memory differ by their content. The version that takes over is newer.
func TestRevisionsOfRulesFromMemory(t *testing.T) {
	five, six := parsedLimits(t, "[{per: ip, rate: 5/m}]"), parsedLimits(t, "[{per: ip, rate: 6/m}]")
	assert.Equal(t, five.Revision, parsedLimits(t, "[{per: ip, rate: 5/m}]").Revision)
	require.NotEqual(t, five.Revision, six.Revision)
	there := Succeed(five, six, 0)
	back := Succeed(there, five, 0)
	assert.Greater(t, max(there.Revision, back.Revision), five.Revision)
	assert.Greater(t, back.Revision, there.Revision)
	assert.Equal(t, back.Revision, back.Events["e"].Rules[0].Revision)
	assert.Equal(t, six.Revision, six.Events["e"].Rules[0].Revision, "neither is changed")

	made := func(n int64) *Rules {
		return &Rules{Events: map[string]*Event{"e": {Name: "e", Rules: []Rule{{Per: []string{"ip"}, Limits: []Limit{{N: n, Window: time.Minute}}}}}}}
	}
	assert.Equal(t, made(5).Hashed().Revision, made(5).Hashed().Revision)
	assert.NotEqual(t, made(5).Hashed().Revision, made(6).Hashed().Revision)
	by := made(5)
	assert.NotZero(t, by.Hashed().Events["e"].Rules[0].Revision)
	assert.Zero(t, by.Events["e"].Rules[0].Revision)
	assert.Same(t, five, five.Hashed())
}

// All processes give the same rules the same revision, also rules with addresses.
func TestRevisionsOfTwoProcesses(t *testing.T) {
	const asPrinter = "COUNTERD_TEST_AS_PRINTER"
	rules := Rules{Events: map[string]*Event{"e": {Name: "e", Rules: []Rule{{
		Per: []string{"ip"}, Limits: []Limit{{N: 5, Window: time.Minute}},
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
		"nothing":      func(*Event, *Rule) {},
		"retention":    func(e *Event, _ *Rule) { e.Retention = time.Hour },
		"limit":        func(_ *Event, r *Rule) { r.Limits[0].Window++ },
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
