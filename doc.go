// Package counterd limits rates and counts events, with exact sliding windows, in a Go program.
// Any number of programs share the counters on Memcached; without it they are kept in the
// process.
//
// [ReadRules] or [ParseRules] reads limits, [New] makes a [Limiter] of them, and
// [Limiter.Hit] asks whether an event may happen once more. [Limiter.Middleware] puts a limit in
// front of an [http.Handler]. An [Option] is a flag of the command, with the same default:
// WithMaxPending is -max-pending. [Hooks] are called with each decision and round trip, and make traces.
//
// The package opens no listener. Package api has handlers of the HTTP interface, package api/page
// the page for operators, and package metrics the metrics for Prometheus: each takes a Limiter.
// Package events has rules and counters, hierarchy the engine, and memcache the stores.
package counterd
