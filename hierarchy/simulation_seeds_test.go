//go:build !race

package hierarchy

// simulatedSeeds is how many seeds are simulated.
const simulatedSeeds = 8000

// simulatedSeconds is how long callers try to keep each other out.
const simulatedSeconds = 30

// copiedSeeds is how many seeds are simulated with copies.
const copiedSeeds = 4000
