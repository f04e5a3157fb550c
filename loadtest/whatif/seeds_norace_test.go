//go:build !race

package whatif_test

// seeds is how many logs are made by chance.
const seeds = 600

// thorough has the real log be tried in all ways that there are.
const thorough = true
