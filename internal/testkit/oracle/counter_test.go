package oracle_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/oracle"
)

func Example() {
	c := oracle.NewCounter(oracle.Limit{N: 2, Window: 3 * time.Second})
	c.Admit(100, 1)
	c.Admit(103, 1)
	c.Admit(102, 1)
	fmt.Println(c.Fault())
	c.Admit(101, 1)
	fmt.Println(c.Fault())
	c.Doubt(1)
	fmt.Printf("%+v\n", c.Tally())
	// Output:
	// <nil>
	// oracle: 3 admitted in the 3s up to second 102, the limit is 2
	// {Acknowledged:4 Unknown:1}
}

// What is found is what is found by summing every window of all hits.
func TestAWindowOverItsLimitIsFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 500 {
		l := oracle.Limit{N: 1 + rng.Int64N(9), Window: time.Duration(1+rng.IntN(8)) * time.Second}
		c := oracle.NewCounter(l)
		var seconds []int64
		over := false
		for range 12 {
			s := 1000 + rng.Int64N(20)
			seconds = append(seconds, s)
			c.Admit(s, 1)
			for end := int64(1000); end < 1030; end++ {
				sum := int64(0)
				for _, s := range seconds {
					if s <= end && s > end-int64(l.Window/time.Second) {
						sum++
					}
				}
				over = over || sum > l.N
			}
			require.Equal(t, over, c.Fault() != nil, "%v %v", l, seconds)
		}
		if over {
			found++
		}
	}
	assert.Greater(t, found, 50)
	assert.Less(t, found, 450)
}

// Second 1,000 is forgotten after 20,000, but for what comes as late as that: it is said.
func TestWhatIsLongAgoIsForgotten(t *testing.T) {
	c := oracle.NewCounter(oracle.Limit{N: 60, Window: time.Minute}, oracle.Limit{N: 20_000, Window: 24 * time.Hour})
	for second := range int64(20_000) {
		c.Admit(1000+second, 1)
	}
	require.NoError(t, c.Fault())
	c.Admit(1000, 1)
	assert.ErrorContains(t, c.Fault(), "second 1000")
	assert.Equal(t, int64(20_001), c.Tally().Acknowledged)
}

func TestTheWholeRunIsInALongWindow(t *testing.T) {
	c := oracle.NewCounter(oracle.Limit{N: 2, Window: 24 * time.Hour})
	c.Admit(1000, 1)
	c.Admit(9000, 1)
	require.NoError(t, c.Fault())
	c.Admit(90_000, 1)
	assert.ErrorContains(t, c.Fault(), "3 admitted, the limit is 2")
}
