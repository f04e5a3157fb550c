package backend

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/discovery"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every change is logged with what was added and removed, and what failed with why.
func TestServersAreFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "servers")
	testkit.WriteFile(t, path, "a:1\nb:1\n")
	log, text := testkit.DebugLog()
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
	text.Await(t, `level=INFO msg="the memcached servers found are those in force" from=`+path, "servers=a:1,b:1")
	testkit.ReplaceFile(t, path, "b:1,c:1,d:1")
	text.Await(t, `level=INFO msg="the memcached servers have changed" from=`+path+" added=c:1,d:1 removed=a:1 servers=b:1,c:1,d:1")
	mu.Lock()
	assert.Equal(t, []string{"b:1", "c:1", "d:1"}, inForce)
	mu.Unlock()
	const failed = `level=WARN msg="looking for the memcached servers failed, those in force stay" from=`
	testkit.ReplaceFile(t, path, "b:1\nc\nd\n")
	text.Await(t, failed, "line 2: c is neither host:port nor the path of a socket; line 3: d is", "suppressed=0")
	refuses(errors.New("no such host"))
	testkit.ReplaceFile(t, path, "e:1")
	text.Await(t, failed, "cannot be put in force: no such host")
	refuses(nil)
	f.Ask()
	text.Await(t, "added=e:1 removed=b:1,c:1,d:1 servers=e:1")
}

// A source that fails again and again is logged once a second.
func TestFailuresOfASourceAreThinnedOut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, text := testkit.DebugLog()
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
