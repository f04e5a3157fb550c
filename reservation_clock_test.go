package counterd_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// A process whose clock is ahead leaves logs from which others hand out reservations and leases that are stamped ahead.
// They are accepted, with a secret and without, and last as long as they were for. What buckets hold of a process whose
// clock is ahead is accepted with a secret; without one, with which a client could forge it, later, and never the client's
// fault.
func TestReservationsAfterAClockAhead(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		for _, sealed := range []bool{true, false} {
			t.Run(fmt.Sprint(replicas, " ", sealed), func(t *testing.T) {
				clock := testkit.NewClock(time.Now())
				options := []counterd.Option{counterd.WithMemcached(memcachedtest.StartMany(t, replicas)...), counterd.WithReplicas(replicas), counterd.WithTimeout(time.Second)}
				if sealed {
					options = append(options, counterd.WithKeySecret(testkit.SecretFile(t, "0123456789abcdef\n")))
				}
				process := func(ahead time.Duration) sends {
					shows := func(c *assembly.Config) { c.Settings.Clock = func() time.Time { return clock.Now().Add(ahead) } }
					return sends{t, handlerOf(start(t, parse(t, reservingRules), append(options[:len(options):len(options)], shows)...))}
				}
				wrong, right := process(80*time.Second), process(0)
				for _, event := range []string{"chat", "export"} {
					lease := wrong.reserved(event, `, "cost": 1`)
					require.Equal(t, http.StatusOK, wrong.settle(lease, `, "cost": 0`))
				}
				clock.Advance(2 * time.Second)
				lease, reservation := right.reserved("export", ""), right.reserved("chat", `, "cost": 10, "reserve": "30s"`)
				for _, one := range []struct{ text, more string }{
					{lease, `, "renew": "30s"`}, {lease, `, "cost": 0`}, {reservation, `, "cost": 3`}, {reservation, `, "cost": 3`},
				} {
					w := right.post("/v1/settle", `{"reservation": "`+one.text+`"`+one.more+`}`)
					require.Equal(t, http.StatusOK, w.Code, "%s: %s", one.more, w.Body)
				}
				var d wire.Decision
				w := right.send(http.MethodGet, "/v1/events/chat/check?feature=user:bob", "")
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &d), "%s", w.Body)
				require.EqualValues(t, 1+3, d.Limits[1].Count, "of the log")
				require.EqualValues(t, 0, d.Limits[2].Count, "of the leases")
				right.reserved("export", "") // the lease was released

				reservation = wrong.reserved("chat", `, "cost": 10, "reserve": "30s"`)
				w = right.post("/v1/settle", `{"reservation": "`+reservation+`", "cost": 3}`)
				if !sealed {
					require.Equal(t, http.StatusServiceUnavailable, w.Code, "%s", w.Body)
					after, err := strconv.Atoi(w.Header().Get("Retry-After"))
					require.NoError(t, err)
					require.LessOrEqual(t, after, 80)
					clock.Advance(time.Duration(after) * time.Second)
					w = right.post("/v1/settle", `{"reservation": "`+reservation+`", "cost": 3}`)
				}
				require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
			})
		}
	}
}
