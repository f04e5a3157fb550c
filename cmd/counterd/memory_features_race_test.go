//go:build race

package main

// floodFeatures is how many features a flood has: the race detector makes each ten times
// as slow.
const floodFeatures = 60_000
