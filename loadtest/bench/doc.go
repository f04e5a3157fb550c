// Package bench measures counterd: the engine embedded in a program, the server
// over HTTP, counting, and the pure parts, each against what a plain program would
// do instead, in one run.
//
// Everything that is compared takes turns: in each round every row of a group runs
// for a short slice, one after the other, and the ratio of two rows is that of
// their slices in one round. Shown are the median of the rounds and the least and
// the greatest. On a machine whose speed changes from minute to minute that is what
// can be repeated; the times of a single row are not.
//
// Memcached, counterd and the server that does nothing are child processes on
// loopback, so that what each costs is told apart.
package bench
