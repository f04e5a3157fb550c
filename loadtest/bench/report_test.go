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
			{ID: "A1", Name: "plain", PerSecond: Spread{1234567, 999, 2000000}, Costs: costs{"trips": 4, "reads": 142, "memcached_cpu_us": 120.4, "allocs": 0.004}},
			{
				ID: "A3", Name: "hit, µs", PerSecond: Spread{5, 4, 6}, Costs: costs{"memcached_cpu_us": 14.04, "allocs": 3.06},
				Ratios: []Ratio{{"A1", Spread{12.34, 9.999, 123.4}}, {"A2", Spread{0.5, 0.4, 0.6}}},
			},
		},
	}
	var out bytes.Buffer
	require.NoError(t, r.WriteText(&out))
	assert.Equal(t, `cpu, 2 cores
3 rounds of 1s, 12 s in all. Ratios and rates: median (least–greatest) of the rounds.

Figures are of one operation, a hit or a count. Trips: as the client makes them. Adds to and reads of buckets, and bytes: as
Memcached counts them. CPU: µs.

|     |         |                   a second |                                       ratio |  trips |  adds |  reads |  bytes |  CPU client |  server |  memcached |  allocs |
| --- | ---     |                       ---: |                                        ---: |   ---: |  ---: |   ---: |   ---: |        ---: |    ---: |       ---: |    ---: |
| A1  | plain   |  1,234,567 (999–2,000,000) |                                           – |    4.0 |     – |    142 |      – |           – |       – |        120 |    0.00 |
| A3  | hit, µs |                    5 (4–6) |  12.3× (10.00–123) A1, 0.50× (0.40–0.60) A2 |      – |     – |      – |      – |           – |       – |       14.0 |     3.1 |
`, out.String())
}
