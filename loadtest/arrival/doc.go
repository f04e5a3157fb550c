// Package arrival is the open model: requests arrive when they are due, whatever has
// become of those before.
//
// A [Profile] says when each is due, by arithmetic alone. [Open] has them arrive: it
// starts each at its moment, as long as there is room for one more in flight, and tells
// when it was due, so that a wait for a target that stalls is part of the latency. To
// start the clock only when a request is sent would leave it out ("coordinated
// omission").
//
// Most callers want [Parse] or [Constant], and then [Open.Run].
package arrival
