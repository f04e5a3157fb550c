//go:build !race

package whatif_test

// seeds is how many logs are made by chance.
const seeds = 600
