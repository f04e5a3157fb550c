package follow

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/footprint"
	"github.com/counterd/counterd/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon bounds the waits for what has to happen.
const soon = 30 * time.Second

// oneLimit is a rules file with that N.
func oneLimit(n int) string {
	return fmt.Sprintf("events: {e: {limits: [{per: ip, rate: %d/m}]}}", n)
}

const brokenRules = `events:
  e:
    limits:
      - per: ip
        rate: 5/mm
      - per: IP
        rate: 5/m
`

// following opens the file until the test ends.
func following(t *testing.T, path string) (*Rules, *testkit.Log) {
	t.Helper()
	log, text := testkit.DebugLog()
	rules, file, err := ReadRules(path)
	require.NoError(t, err)
	f := NewRules(rules, file, func(rules *events.Rules) error { return footprint.CheckRules(rules, time.Minute) }, log)
	t.Cleanup(f.Close)
	return f, text
}

// unfollowed returns the file as it is without its goroutine, for tests that
// take the goroutine's steps themselves.
func unfollowed(t *testing.T, path string) (*Rules, *testkit.Log) {
	t.Helper()
	log, text := testkit.DebugLog()
	rules, file, err := ReadRules(path)
	require.NoError(t, err)
	return newRules(rules, file, log), text
}

func TestRulesFollowTheirFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	testkit.WriteFile(t, path, oneLimit(1))
	f, log := following(t, path)
	require.Equal(t, int64(1), nOf(f))
	n := 1
	torn := int64(0) // the most changes that may have been read half made: on a busy machine they last
	follows := func(change func(text string)) {
		t.Helper()
		n++
		change(oneLimit(n))
		testkit.Await(t, soon, "the file is taken", func() bool { return nOf(f) == int64(n) })
		log.Await(t, fmt.Sprintf("generation=%d events=1", n))
	}
	follows(func(text string) {
		torn++
		testkit.WriteFile(t, path, text)
	})
	follows(func(text string) { testkit.ReplaceFile(t, path, text) })
	follows(func(text string) {
		torn++
		require.NoError(t, os.Remove(path))
		testkit.WriteFile(t, path, text)
	})
	// A link to a file of another folder, that is edited there in either way.
	elsewhere := filepath.Join(t.TempDir(), "other.yaml")
	follows(func(text string) {
		testkit.WriteFile(t, elsewhere, text)
		testkit.Link(t, path, elsewhere)
	})
	follows(func(text string) {
		torn++
		testkit.WriteFile(t, elsewhere, text)
	})
	follows(func(text string) { testkit.ReplaceFile(t, elsewhere, text) })
	// The way of Kubernetes: the file is a link through ..data, and that is swapped.
	for i := range 3 {
		follows(func(text string) {
			version := filepath.Join(dir, fmt.Sprintf("..%d", i))
			require.NoError(t, os.Mkdir(version, 0o700))
			testkit.WriteFile(t, filepath.Join(version, "rules.yaml"), text)
			testkit.Link(t, filepath.Join(dir, "..data"), filepath.Base(version))
			if i == 0 {
				testkit.Link(t, path, filepath.Join("..data", "rules.yaml"))
				return
			}
			require.NoError(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..%d", i-1))))
		})
	}
	assert.LessOrEqual(t, f.failures.Load(), torn)
	assert.Equal(t, int64(n), f.Generation())
}

// A folder on the way to the file that is a link, or comes back as another one, is
// found at a glance.
func TestRulesBehindAFolderThatIsSwapped(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for i, version := range []string{"v1", "v2"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		testkit.WriteFile(t, filepath.Join(dir, version, "rules.yaml"), oneLimit(i+1))
	}
	current := filepath.Join(dir, "current")
	testkit.Link(t, current, "v1")
	f, _ := unfollowed(t, filepath.Join(current, "rules.yaml"))
	testkit.Link(t, current, "v2")
	f.look()
	f.settled()
	assert.Equal(t, int64(2), nOf(f))
}

func TestABrokenEditKeepsTheRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, path, oneLimit(1))
	f, log := following(t, path)
	before := f.Rules()
	failures := func(n int64) {
		t.Helper()
		testkit.Await(t, soon, "the failure is counted", func() bool { return f.failures.Load() == n })
		require.Same(t, before, f.Rules())
	}
	testkit.ReplaceFile(t, path, brokenRules)
	failures(1)
	testkit.Await(t, soon, "two faults", func() bool { return strings.Count(log.String(), "fault in the rules file") == 2 })
	var loud []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=ERROR") {
			loud = append(loud, line)
		}
	}
	require.Len(t, loud, 3, "%s", log)
	assert.Contains(t, loud[0], `msg="rules not reloaded, those in force stay"`)
	assert.Contains(t, loud[0], "generation=1 failures=1 faults=2")
	assert.Contains(t, loud[1], "line=5 ")
	assert.Contains(t, loud[1], "line 5, column 15: events.e.limits[0].rate: a window: it is written like 90s, 15m, 24h or 7d")
	assert.Contains(t, loud[2], "line=6 ")

	testkit.ReplaceFile(t, path, "")
	failures(2)
	require.NoError(t, os.Remove(path))
	failures(3)
	require.NoError(t, os.Mkdir(path, 0o700))
	failures(4)
	require.NoError(t, os.Remove(path))
	failures(5)
	assert.True(t, f.refused.Load())
	testkit.ReplaceFile(t, path, oneLimit(1))
	log.Await(t, "the rules file holds the rules in force")
	failures(5)
	assert.False(t, f.refused.Load(), "what is in force stands in the file again")
	testkit.ReplaceFile(t, path, brokenRules)
	failures(6)
	assert.True(t, f.refused.Load())
	testkit.ReplaceFile(t, path, oneLimit(2))
	testkit.Await(t, soon, "the rules are taken", func() bool { return nOf(f) == 2 })
	assert.False(t, f.refused.Load())
	assert.Equal(t, int64(2), f.Generation())
}

// Of a file that is being written nothing is taken, be it valid by itself, until
// it has been the same for a while.
func TestAFileThatIsBeingWrittenIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, path, oneLimit(1))
	f, log := unfollowed(t, path)
	for _, part := range []string{"", "events: {e: {}}", oneLimit(2), oneLimit(2) + "\nheaders: none"} {
		testkit.WriteFile(t, path, part)
		f.look()
		require.True(t, f.settling)
		require.NotEmpty(t, f.pending)
		testkit.WriteFile(t, path, part+"\n#")
		f.settled()
		require.True(t, f.settling, "it has changed meanwhile")
	}
	require.Equal(t, int64(1), f.Generation())
	require.Equal(t, int64(1), nOf(f))
	require.Empty(t, log.String())
	f.settled()
	assert.False(t, f.settling)
	assert.Equal(t, int64(2), f.Generation())
	assert.Equal(t, int64(2), nOf(f))
	assert.True(t, f.Rules().Sends(events.HeaderNone))
}

func TestWhatHasNotChangedIsNotJudgedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, path, oneLimit(1))
	f, log := unfollowed(t, path)
	before := f.Rules()
	glances := func() {
		t.Helper()
		for range 3 {
			f.look()
			require.False(t, f.settling)
		}
	}
	judged := func() {
		t.Helper()
		f.look()
		require.True(t, f.settling)
		f.settled()
		require.False(t, f.settling)
		glances()
	}
	testkit.ReplaceFile(t, path, oneLimit(1))
	glances()
	require.Empty(t, log.String())

	for _, broken := range []func(){
		func() { testkit.WriteFile(t, path, brokenRules) },
		func() { require.NoError(t, os.Remove(path)) },
	} {
		broken()
		judged()
	}
	require.Equal(t, 2, strings.Count(log.String(), "not reloaded"), "%s", log)
	require.Equal(t, int64(2), f.failures.Load())

	// Ask wants an answer in any case.
	f.asked = true
	judged()
	require.Equal(t, 3, strings.Count(log.String(), "not reloaded"), "%s", log)
	testkit.WriteFile(t, path, oneLimit(1))
	judged()
	f.asked = true
	judged()
	require.Equal(t, 2, strings.Count(log.String(), `level=INFO msg="the rules file holds the rules in force"`), "%s", log)
	require.Same(t, before, f.Rules())
	require.Equal(t, int64(1), f.Generation())
}

func TestAVeryBrokenFileDoesNotFloodTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, path, oneLimit(1))
	f, log := unfollowed(t, path)
	testkit.WriteFile(t, path, "events:\n"+strings.Repeat("  A: {}\n", 5000))
	f.look()
	f.settled()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 1+maxFaultsLogged+1)
	assert.Contains(t, lines[0], "faults=5000")
	assert.Contains(t, lines[len(lines)-1], "faults=4000")
}

func TestAReloadSaysWhatIsIncomplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, path, oneLimit(1))
	f, _ := unfollowed(t, path)
	now := time.Unix(1_790_000_000, 0)
	f.Now = func() time.Time { return now }
	for _, text := range []string{"events: {e: {limits: [{per: ip, rate: [1/m, 9/d]}]}}", "events: {e: {limits: [{per: ip, rate: [2/m, 9/d]}]}}"} {
		testkit.WriteFile(t, path, text)
		f.look()
		f.settled()
		limits := f.Rules().Events["e"].Rules[0].Limits
		require.Len(t, limits, 2)
		assert.Zero(t, limits[0].Since)
		assert.Equal(t, int64(1_790_000_000), limits[1].Since)
		now = now.Add(time.Hour)
	}
}

// Rules from a pipe cannot be read twice.
func TestRulesFromAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	go os.WriteFile(path, []byte(oneLimit(7)), 0o600)
	f, log := following(t, path)
	assert.Equal(t, int64(7), nOf(f))
	assert.Contains(t, log.String(), "they are read once")
	f.Ask()
	log.Await(t, "there is no rules file")
	assert.Zero(t, f.failures.Load())
}

func TestAStartWithBrokenRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, path, brokenRules)
	_, _, err := ReadRules(path)
	require.ErrorIs(t, err, events.ErrInvalid)
	assert.ErrorContains(t, err, path+":\nline 5, column 15")
}

func nOf(f *Rules) int64 {
	return f.Rules().Events["e"].Rules[0].Limits[0].N
}

// A version of the file has the revision that a process which starts with it gives it. Only a file of
// before that is put back gets one of its own.
func TestRevisions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	modified := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	write := func(n int, at time.Time) (revision uint64) {
		require.NoError(t, os.WriteFile(path, []byte(oneLimit(n)), 0o600))
		require.NoError(t, os.Chtimes(path, at, at))
		rules, _, err := ReadRules(path)
		require.NoError(t, err)
		return rules.Revision
	}
	first := write(1, modified)
	f, _ := unfollowed(t, path)
	require.Equal(t, first, f.Rules().Revision)
	judge := func() {
		found, contents := f.read()
		f.judge(found, contents)
		f.judged = found
	}
	second := write(2, modified.Add(time.Second))
	judge()
	require.Greater(t, second, first)
	require.Equal(t, second, f.Rules().Revision)
	require.Equal(t, first, write(1, modified))
	judge()
	require.Equal(t, second+1, f.Rules().Revision)
	require.Equal(t, second+1, f.Rules().Events["e"].Rules[0].Revision)
}
