//go:build race

package metrics_test

// manyFeatures are hit to see that the series stay the same: fewer with the race
// detector, which takes its time.
const manyFeatures = 5_000
