//go:build race

package hierarchy

// simulatedSeeds is how many seeds are simulated: fewer, the race detector takes
// its time.
const simulatedSeeds = 800

// simulatedSeconds is how long callers try to keep each other out.
const simulatedSeconds = 6

// copiedSeeds is how many seeds are simulated with copies.
const copiedSeeds = 400
