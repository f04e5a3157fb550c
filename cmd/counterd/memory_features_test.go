//go:build !race

package main

// floodFeatures is how many features a flood has.
const floodFeatures = 300_000
