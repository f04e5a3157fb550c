package discovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon bounds the waits for what has to happen.
const soon = 30 * time.Second

func Example() {
	source := DNS{Name: "localhost", Port: 11211}
	servers, err := List(context.Background(), source)
	if err != nil {
		fmt.Println(err)
		return
	}
	follower := Follow(Config{
		Source:  source,
		Servers: servers,
		Changed: func(_ context.Context, change Change) error { // here: memcache.Fleet.SetServers
			fmt.Println("now there are", change.Servers)
			return nil
		},
		Report: func(err error) { fmt.Println("the servers stay:", err) },
	})
	defer follower.Close()
	fmt.Println(servers)
	// Output: [127.0.0.1:11211]
}

// scripted is a source of a test.
type scripted func(ctx context.Context) ([]string, error)

func (s scripted) Servers(ctx context.Context) ([]string, error) { return s(ctx) }

func TestAwaitAsksUntilThereIsAnAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		down, began, asked := errors.New("down"), time.Now(), 0
		source := scripted(func(context.Context) ([]string, error) {
			if asked++; asked == 2 {
				return nil, nil
			}
			if asked < 4 {
				return nil, down
			}
			return []string{"a:1"}, nil
		})
		var reported []error
		servers, err := Await(t.Context(), source, func(err error) { reported = append(reported, err) })
		require.NoError(t, err)
		assert.Equal(t, []string{"a:1"}, servers)
		assert.Equal(t, []error{down, ErrNone, down}, reported)
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 9500*time.Millisecond)
		defer cancel()
		down, began, reported := errors.New("down"), time.Now(), 0
		_, err := Await(ctx, scripted(func(context.Context) ([]string, error) { return nil, down }), func(error) { reported++ })
		assert.Equal(t, down, err, "why, and not that the time has passed")
		assert.Equal(t, 9500*time.Millisecond, time.Since(began))
		assert.Equal(t, 10, reported)
		// One that does not answer is asked again, too.
		ctx, cancel = context.WithTimeout(t.Context(), 2*DefaultTimeout)
		defer cancel()
		asked := 0
		_, err = Await(ctx, scripted(func(ctx context.Context) ([]string, error) {
			asked++
			<-ctx.Done()
			return nil, ctx.Err()
		}), func(error) {})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 2, asked)
	})
}

func TestHowServersAreWritten(t *testing.T) {
	for _, good := range []string{
		"127.0.0.1:11211", "[::1]:11211", "[fe80::1%eth0]:11211", "a.example:11211", "a.example.:11211", "a_b-c:1", "dns:11211", "a:http",
		"/run/memcached.sock", "./m.sock", "/with a blank/s", "/#/s",
	} {
		assert.NoError(t, CheckServer(good), good)
	}
	for _, bad := range []string{
		"", "localhost", "127.0.0.1:", ":11211", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:no-such-port", "::1:11211", "a b:11211", "a..b:11211",
		"[fe80::1%a b]:1", "[a:11211", strings.Repeat("a", 64) + ":1", strings.Repeat("a.", 128) + "a:1", "ä:1", "/run/\x00", "/run/\xff",
		"unix:///run/s", "tcp://a:1", "dns:a:1",
	} {
		assert.Error(t, CheckServer(bad), bad)
	}
	assert.ErrorContains(t, CheckServer("unix:///run/s"), "by its path alone: /run/s")
}
