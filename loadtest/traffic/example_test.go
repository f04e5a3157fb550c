package traffic_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/counterd/counterd/loadtest/traffic"
)

func ExampleNew() {
	rng := rand.New(rand.NewPCG(42, 0))
	source, err := traffic.New(traffic.Config{
		Event:      "url_shorten",
		Population: traffic.NewZipf("ip", 1000, 1.1, rng),
		Mix:        traffic.Mix{traffic.Hit: 80, traffic.Check: 20},
		Rand:       rng,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	kinds := map[traffic.Kind]int{}
	for range 1000 {
		kinds[source.Next().Kind]++
	}
	fmt.Println(kinds[traffic.Hit]+kinds[traffic.Check], "calls, hits among them:", kinds[traffic.Hit] > kinds[traffic.Check])
	// Output: 1000 calls, hits among them: true
}
