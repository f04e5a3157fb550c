//go:build !race

package bubble

// RaceDetector reports what the tests run under.
const RaceDetector = false
