// Package counterd limits rates and counts events, with exact sliding windows, in a Go program.
// Any number of programs share the counters on Memcached; without it they are kept in the
// process.
//
// [ReadRules] or [ParseRules] reads limits, [New] makes a [Limiter] of them, and
// [Limiter.Hit] asks whether an event may happen once more. [Limiter.Middleware] puts a limit in
// front of an [http.Handler], [Limiter.Handler] is counterd's whole HTTP interface, and
// [Limiter.Serve] serves it as the command does. Each [Option] is a flag of the command, with the
// same default: WithMaxPending is -max-pending.
//
// A program that needs other wiring finds the parts beneath: package events has rules and
// counters, hierarchy the engine, memcache the stores, and api the HTTP interface.
package counterd
