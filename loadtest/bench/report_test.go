package bench

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	r := &Report{
		Machine: "cpu, 2 cores", Rounds: 3, Duration: "1s", Seconds: 12.4,
		Rows: []Row{
			{ID: "A1", Name: "plain", PerSecond: Spread{1234567, 999, 2000000}, Trips: new(4.0), Reads: new(142.0), MemcachedCPU: new(120.4), Allocs: new(0.004)},
			{
				ID: "A3", Name: "hit, µs", PerSecond: Spread{5, 4, 6}, MemcachedCPU: new(14.04), Allocs: new(3.06),
				Ratios: []Ratio{{"A1", "operations/s", Spread{12.34, 9.999, 123.4}}, {"A2", "operations/s", Spread{0.5, 0.4, 0.6}}},
			},
			{ID: "B12", Name: "nothing", Latency: &Latency{Rate: 4000, Requests: 100, P50: Spread{0.2, 0.1, 0.3}, P99: Spread{1, 0.9, 2}, LateP99: Spread{0.4, 0.3, 1}}},
			{
				ID: "B13", Name: "hit", Latency: &Latency{Rate: 4000, Requests: 100, P99: Spread{3, 2, 20}, LateP99: Spread{1, 0.5, 9}},
				Ratios: []Ratio{{"B12", "p99", Spread{3.01, 2, 10}}},
			},
		},
	}
	var out bytes.Buffer
	require.NoError(t, r.WriteText(&out))
	assert.Equal(t, `cpu, 2 cores
3 rounds of 1s, 12 s in all. Ratios and rates: median (least–greatest) of the rounds.

Figures are of one operation, a hit or a count. Trips, adds and reads of buckets: as the engine asks for them, over HTTP as
Memcached counts them. Bytes: to and from Memcached. CPU: µs.

|     |         |                   a second |                                       ratio |  trips |  adds |  reads |  bytes |  CPU client |  server |  memcached |  allocs |
| --- | ---     |                       ---: |                                        ---: |   ---: |  ---: |   ---: |   ---: |        ---: |    ---: |       ---: |    ---: |
| A1  | plain   |  1,234,567 (999–2,000,000) |                                           – |    4.0 |     – |    142 |      – |           – |       – |        120 |    0.00 |
| A3  | hit, µs |                    5 (4–6) |  12.3× (10.00–123) A1, 0.50× (0.40–0.60) A2 |      – |     – |      – |      – |           – |       – |       14.0 |     3.1 |
| B12 | nothing |                    0 (0–0) |                                           – |      – |     – |      – |      – |           – |       – |          – |       – |
| B13 | hit     |                    0 (0–0) |                                           – |      – |     – |      – |      – |           – |       – |          – |       – |

The open model: requests arrive evenly, and a latency, in ms, counts from the moment at which the request was due. Late: until it was sent.

|     |         |  arrivals a second |  requests |               p50 |               p99 |             p99.9 |          late p99 |       ratio of the p99 |
| --- | ---     |               ---: |      ---: |              ---: |              ---: |              ---: |              ---: |                   ---: |
| B12 | nothing |               4000 |       100 |  0.20 (0.10–0.30) |  1.00 (0.90–2.00) |  0.00 (0.00–0.00) |  0.40 (0.30–1.00) |                      – |
| B13 | hit     |               4000 |       100 |  0.00 (0.00–0.00) |  3.00 (2.00–20.0) |  0.00 (0.00–0.00) |  1.00 (0.50–9.00) |  3.01× (2.00–10.0) B12 |
`, out.String())

	// Requests to a slow server are late, and the machine is not to blame.
	r.Rows[3].Latency.LateP99.Median = 2.9
	assert.False(t, r.late())
	r.Rows[2].Latency.LateP99.Median = 0.6
	out.Reset()
	require.NoError(t, r.WriteText(&out))
	assert.Contains(t, out.String(), "the machine is too busy")
}
