//go:build !race

package metrics_test

// manyFeatures are hit to see that the series stay the same.
const manyFeatures = 100_000
