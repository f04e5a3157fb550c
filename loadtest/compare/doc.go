// Package compare sends the same traffic through several ways of limiting, and holds each
// against an exact log: the hierarchical counters, which are the engine itself on its
// embedded store, and reference implementations of fixed windows, of the approximation by
// two windows, of a log, of the token bucket and of GCRA.
//
// Time is the traffic's own: nothing waits, and the same traffic gives the same figures.
//
// # What is wrong
//
// Each way of limiting has a history of its own: what it admits early bears on what it has
// to deny later. So each is judged by the hits that it admitted itself. With a limit of N
// in a window of W, the window that ends with a hit at the time t is (t-W, t].
//
//   - An admission is wrong if that window then holds more than N of the cost admitted so
//     far, that of the hit included.
//   - A denial is wrong if the hit's cost would have fitted: what was admitted of that
//     window, and its cost, are N at most.
//   - The worst window is the one that held most of what was admitted, in parts of N.
//
// Hits at the same time keep their order. A log that keeps to the limit
// is wrong in neither sense, and so is every way that decides as it does.
//
// # Which time
//
// counterd stamps a hit with a whole second, and its windows are whole seconds: W of them,
// the present one included. Access logs have whole seconds, too. So all see the whole
// second of a hit, and the judge does: (t-W, t] is then the same W whole seconds for all.
// With Config.Exactly each but counterd, which has no finer time, sees the nanosecond, as
// the judge does. That shows what whole seconds cost: a window of nanoseconds may touch
// one second more than it is long.
//
// # What it costs
//
// Trips, reads and writes are of a store that were elsewhere. Of the references they are
// counted where the state is kept: a trip that reads it, and, for a hit that is admitted,
// one that writes it, and another process must not have written in between: that is theirs
// to see to. Of counterd they are what the engine asks of its store, where processes may
// meet: each bucket added to, or rolled back, is a write, each one read is a read.
//
// Bytes are those of the chunks that Memcached would keep the state in: each state one item,
// under a key as long as counterd's; of counterd each bucket is one. Of each feature the
// most counts that it ever took.
package compare
