// Package engine has what the engines of a limiter share with each other and with package counting: a store, a clock,
// errors, and what they count. Package limiter has the interface by which engines decide.
package engine
