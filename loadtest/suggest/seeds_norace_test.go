//go:build !race

package suggest_test

// seeds is how many logs are made by chance.
const seeds = 300
