package backend

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/memcache/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon bounds the waits for what has to happen.
const soon = 30 * time.Second

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// replace puts a new file in the place of the old one, as most editors do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+"~", text)
	require.NoError(t, os.Rename(path+"~", path))
}

func debugLog() (*slog.Logger, *lockedBuffer) {
	var text lockedBuffer
	return slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})), &text
}

// says waits for a line of the log.
func says(t *testing.T, log *lockedBuffer, parts ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for line := range strings.Lines(log.String()) {
			has := 0
			for _, part := range parts {
				if strings.Contains(line, part) {
					has++
				}
			}
			if has == len(parts) {
				return true
			}
		}
		return false
	}, soon, time.Millisecond, "%q: %s", parts, log)
}

// Every change is logged with what was added and removed, and what failed with why.
func TestServersAreFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "servers")
	write(t, path, "a:1\nb:1\n")
	log, text := debugLog()
	var mu sync.Mutex
	var inForce []string
	refuse := error(nil)
	set := func(_ context.Context, servers []string) error {
		mu.Lock()
		defer mu.Unlock()
		if refuse == nil {
			inForce = servers
		}
		return refuse
	}
	refuses := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		refuse = err
	}
	f := followServers(discovery.File{Path: path}, path, []string{"a:1", "b:1"}, set, log)
	defer f.Close()

	f.Ask()
	says(t, text, `level=INFO msg="the memcached servers found are those in force" from=`+path, "servers=a:1,b:1")
	replace(t, path, "b:1,c:1,d:1")
	says(t, text, `level=INFO msg="the memcached servers have changed" from=`+path+" added=c:1,d:1 removed=a:1 servers=b:1,c:1,d:1")
	mu.Lock()
	assert.Equal(t, []string{"b:1", "c:1", "d:1"}, inForce)
	mu.Unlock()
	const failed = `level=WARN msg="looking for the memcached servers failed, those in force stay" from=`
	replace(t, path, "b:1\nc\nd\n")
	says(t, text, failed, "line 2: c is neither host:port nor the path of a socket; line 3: d is", "suppressed=0")
	refuses(errors.New("no such host"))
	replace(t, path, "e:1")
	says(t, text, failed, "cannot be put in force: no such host")
	refuses(nil)
	f.Ask()
	says(t, text, "added=e:1 removed=b:1,c:1,d:1 servers=e:1")
}

// A source that fails again and again is logged once a second.
func TestFailuresOfASourceAreThinnedOut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, text := debugLog()
		f := followServers(discovery.Static{}, "nowhere", []string{"a:1"}, nil, log)
		defer f.Close()
		for range 5 {
			f.Ask()
			synctest.Wait()
		}
		assert.Equal(t, 1, strings.Count(text.String(), "level=WARN"), "%s", text)
		time.Sleep(discovery.DefaultInterval * 2)
		synctest.Wait()
		assert.Contains(t, text.String(), "suppressed=4")
	})
}
