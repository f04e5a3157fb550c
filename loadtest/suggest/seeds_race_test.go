//go:build race

package suggest_test

// seeds is how many logs are made by chance: the race detector makes them slow, and they
// are decided by one goroutine. make test has all of them without it.
const seeds = 15

// thorough has the real log be tried in all ways that there are.
const thorough = false
