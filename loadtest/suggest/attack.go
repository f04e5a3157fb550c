package suggest

import "slices"

const (
	// attackPercent is the part of the traffic of a log of failures that its attackers made.
	attackPercent = 90
	// attackFloor is what limits against them leave to every user: users mistype, too.
	attackFloor = 5
)

// attackers returns the smallest number of features that made attackPercent of the traffic.
func (c *population) attackers() int {
	total := c.total()
	made, n := int64(0), 0
	for _, traffic := range slices.Backward(slices.Sorted(slices.Values(c.traffic))) {
		if made*100 >= total*attackPercent {
			break
		}
		made += traffic
		n++
	}
	return n
}

// total returns the traffic of all features.
func (c *population) total() (sum int64) {
	for _, traffic := range c.traffic {
		sum += traffic
	}
	return sum
}

// against returns the limits for a log of failures or of an attack: the smallest, from
// attackFloor, that together deny at most as many features as its attackers are.
func against(c *population, usable int) together {
	t := choose(c, usable, c.attackers())
	for w := range t.limits {
		t.limits[w] = max(t.limits[w], attackFloor)
	}
	return t
}

// traffic returns the traffic of the features that the limits deny.
func (t together) traffic() (sum int64) {
	for feature, traffic := range t.population.traffic {
		if t.denies(feature, -1) {
			sum += traffic
		}
	}
	return sum
}
