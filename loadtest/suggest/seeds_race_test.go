//go:build race

package suggest_test

// seeds is how many logs are made by chance: the race detector makes them slow, and they
// are decided by one goroutine.
const seeds = 40
