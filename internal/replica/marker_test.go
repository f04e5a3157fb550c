package replica

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

// spoil writes the marker of a server, as another client does.
func (w *world) spoil(name, text string) {
	m := w.servers[name].marker
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text = text
	m.version++
}

// onWorlds runs a test with one replica, and with two, on three servers.
func onWorlds(t *testing.T, test func(w *world)) {
	for _, replicas := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d replicas", replicas), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { test(newWorld(t, replicas, 3)) })
		})
	}
}

// A marker that no process writes is replaced: the server may lack anything, and that ends.
func TestAMarkerOfAnotherClient(t *testing.T) {
	far := time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	onWorlds(t, func(w *world) {
		p := w.start()
		w.start()
		w.settle()
		for i, text := range []string{
			"x", `{"id":1,"replicas":6}`, `{"id":1,"former":[{},{},{},{},{}]}`, fmt.Sprintf(`{"id":1,"gone":{"%s":%d}}`, w.list[0], math.MaxInt64),
			fmt.Sprintf(`{"id":1,"returned":%d}`, far), fmt.Sprintf(`{"id":1,"copied":{"%s":{"left":-5}},"former":[{"until":%d}]}`, w.list[1], far),
		} {
			text = strings.Replace(text, `"id":1`, fmt.Sprintf(`"id":%d`, i+1), 1)
			w.spoil(w.list[0], text)
			w.settle()
			for _, name := range w.list {
				k := parseMarker(w.servers[name].marker.text)
				require.NotNil(w.t, k, "%s is replaced", text)
				assert.LessOrEqual(w.t, max(k.Returned, k.Gone[w.list[0]]), time.Now().Unix()+maxAhead, text)
			}
			assert.Positive(w.t, p.of[w.list[0]].memory.Lost().Since, text)
			losses := parseMarker(w.servers[w.list[0]].marker.text).Losses
			time.Sleep(time.Minute)
			w.settle()
			assert.LessOrEqual(w.t, parseMarker(w.servers[w.list[0]].marker.text).Losses, losses+1, "%s: it is no loss again and again", text)
			time.Sleep(worldRetention + 25*time.Hour)
			w.settle()
			assert.Zero(w.t, p.of[w.list[0]].memory.Lost().Since, text)
		}
	})
}

// What a marker says of the absence of servers takes no more memory than the marker.
func TestWhatProcessesHaveHeardIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 3)
		p := w.start()
		for range 100 {
			k := parseMarker(w.servers[w.list[0]].marker.text)
			for range 10 {
				k.sayAway(w.list[1], rand.Uint64(), time.Now().Unix())
			}
			w.spoil(w.list[0], k.String())
			w.settle()
			for _, other := range p.of {
				for _, said := range other.memory.heard {
					assert.LessOrEqual(t, len(said), len(parseMarker(w.servers[w.list[0]].marker.text).Away[w.list[1]]))
				}
			}
			delete(k.Away, w.list[1])
			k.sayAway(w.list[1], 1, time.Now().Unix())
			w.spoil(w.list[0], k.String())
		}
	})
}
