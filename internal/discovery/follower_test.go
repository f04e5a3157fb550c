package discovery

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

// followed is a follower of a source that a test sets. All of it is of one bubble.
type followed struct {
	*Follower
	mu      sync.Mutex
	servers []string // what the source answers
	err     error
	refuse  error // what Changed answers
	heard   heard
}

// heard is what a follower asked and told.
type heard struct {
	asked   []time.Time
	changes []Change
	same    int
	reports []error
}

func follow(t *testing.T, interval time.Duration, servers ...string) *followed {
	f := &followed{servers: servers}
	f.Follower = Follow(Config{
		Source: scripted(func(context.Context) ([]string, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.heard.asked = append(f.heard.asked, time.Now())
			return f.servers, f.err
		}),
		Servers: servers, Interval: interval,
		Changed: func(_ context.Context, change Change) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.heard.changes = append(f.heard.changes, change)
			return f.refuse
		},
		Unchanged: func([]string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.heard.same++
		},
		Report: func(err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.heard.reports = append(f.heard.reports, err)
		},
	})
	t.Cleanup(f.Close)
	return f
}

// answers sets what the source answers from now on.
func (f *followed) answers(err error, servers ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers, f.err = servers, err
}

// refuses sets what becomes of changes from now on.
func (f *followed) refuses(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = err
}

func (f *followed) has() heard {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heard
}

// ask has the source asked, and waits until all callbacks have returned.
func (f *followed) ask() {
	f.Ask()
	synctest.Wait()
}

func TestTheSourceIsAskedAtAnInterval(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, 0, "a:1")
		before, pauses := time.Now(), map[time.Duration]bool{}
		time.Sleep(1000 * DefaultInterval)
		synctest.Wait()
		require.Greater(t, len(f.has().asked), 900)
		for _, at := range f.has().asked {
			pause := at.Sub(before)
			require.GreaterOrEqual(t, pause, DefaultInterval*9/10)
			require.LessOrEqual(t, pause, DefaultInterval*11/10)
			before, pauses[pause.Round(time.Millisecond)] = at, true
		}
		assert.Greater(t, len(pauses), 100, "many processes do not ask at once")
		assert.Empty(t, f.has().changes)
		assert.Zero(t, f.has().same, "nothing asked for it")
	})
}

func TestAChangeIsToldOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, time.Hour, "b:1", "a:1")
		f.answers(nil, "a:1", "b:1")
		f.ask()
		f.answers(nil, "b:1", "a:1", "b:1")
		f.ask()
		require.Empty(t, f.has().changes, "neither their order nor how often they are named is a change")
		require.Equal(t, 2, f.has().same)
		f.answers(nil, "c:1", "b:1")
		f.ask()
		f.ask()
		require.Equal(t, []Change{{Servers: []string{"b:1", "c:1"}, Added: []string{"c:1"}, Removed: []string{"a:1"}}}, f.has().changes)
		assert.Equal(t, 3, f.has().same)
		f.answers(nil, "b:1")
		f.ask()
		assert.Equal(t, Change{Servers: []string{"b:1"}, Added: []string{}, Removed: []string{"c:1"}}, f.has().changes[1])
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Len(t, f.has().changes, 2)
		assert.Empty(t, f.has().reports)
	})
}

// Neither a failure nor an empty answer ever empties a fleet, and what comes after is
// compared with what was in force before.
func TestAFailureChangesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, time.Hour, "a:1", "b:1")
		down := errors.New("down")
		f.answers(down, "a:1")
		f.ask()
		f.answers(nil)
		f.ask()
		f.answers(nil, []string{}...)
		f.ask()
		require.Equal(t, []error{down, ErrNone, ErrNone}, f.has().reports)
		require.Empty(t, f.has().changes)
		require.Zero(t, f.has().same)
		require.True(t, f.Failing())
		require.Equal(t, int64(3), f.Failures())
		f.answers(nil, "a:1", "b:1")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, 1, f.has().same, "that it is over is told, once")
		assert.False(t, f.Failing())
		assert.Equal(t, int64(3), f.Failures())
		f.answers(down, "a:1")
		f.ask()
		assert.Empty(t, f.has().changes)
		f.answers(nil, "a:1")
		f.ask()
		assert.Equal(t, []Change{{Servers: []string{"a:1"}, Added: []string{}, Removed: []string{"b:1"}}}, f.has().changes)
	})
}

func TestAChangeThatIsRefusedIsTriedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, time.Minute, "a:1")
		f.answers(nil, "b:1")
		refused := errors.New("no such host")
		f.refuses(refused)
		f.ask()
		require.Len(t, f.has().reports, 1)
		assert.ErrorIs(t, f.has().reports[0], refused)
		assert.True(t, f.Failing(), "what is named is not what is in force")
		time.Sleep(70 * time.Second)
		synctest.Wait()
		require.Len(t, f.has().changes, 2)
		assert.Equal(t, f.has().changes[0], f.has().changes[1])
		f.refuses(nil)
		f.ask()
		f.ask()
		assert.Len(t, f.has().changes, 3)
		assert.False(t, f.Failing())
		assert.Equal(t, int64(2), f.Failures())
		f.answers(nil, "a:1")
		f.ask()
		assert.Equal(t, Change{Servers: []string{"a:1"}, Added: []string{"a:1"}, Removed: []string{"b:1"}}, f.has().changes[3])
	})
}

func TestCloseInterruptsAQuestionAndAChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		report := func(err error) { assert.NoError(t, err, "nothing is told of a follower that is closed") }
		asking := Follow(Config{
			Source:  scripted(func(ctx context.Context) ([]string, error) { return nil, hang(ctx) }),
			Servers: []string{"a:1"}, Report: report, Changed: func(context.Context, Change) error { return nil },
		})
		changing := Follow(Config{
			Source: Static{"b:1"}, Servers: []string{"a:1"}, Report: report,
			Changed: func(ctx context.Context, _ Change) error { return hang(ctx) },
		})
		began := time.Now()
		for _, f := range []*Follower{asking, changing} {
			f.Ask()
			f.Ask() // and does not wait
			synctest.Wait()
			f.Close()
		}
		assert.Zero(t, time.Since(began))
	})
}

func TestAQuestionAndAChangeAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var reports []error
		silent := true
		f := Follow(Config{
			Source: scripted(func(ctx context.Context) ([]string, error) {
				if silent {
					<-ctx.Done()
				}
				return []string{"b:1"}, ctx.Err()
			}),
			Servers: []string{"a:1"}, Interval: time.Hour, Timeout: time.Second,
			Changed: func(ctx context.Context, _ Change) error { <-ctx.Done(); return ctx.Err() },
			Report:  func(err error) { reports = append(reports, err) },
		})
		defer f.Close()
		for range 2 {
			f.Ask()
			time.Sleep(time.Second)
			synctest.Wait()
			silent = false
		}
		require.Len(t, reports, 2)
		assert.ErrorIs(t, reports[0], context.DeadlineExceeded)
		assert.ErrorIs(t, reports[1], context.DeadlineExceeded)
		assert.ErrorContains(t, reports[1], "cannot be put in force")
	})
}
