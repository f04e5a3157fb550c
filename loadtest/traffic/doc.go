// Package traffic makes the calls of a load test: their features and kinds, in which
// mix and at which costs. What it draws depends on its source of random numbers alone, so
// the same seed gives the same calls.
//
// Most callers want [New], and then [Source.Next] for each call.
package traffic
