// Package copies keeps each counter on several servers at once, so that one of them
// may die, come back empty, or be added, and what was counted stays.
//
// A counter lives on the first servers of its rendezvous order. All that is done to it
// is done on each of them at once and in the same order; of what they hold the largest
// value of each bucket counts. What a copy did not acknowledge is owed to it and made up
// for when it answers again. There is no coordinator, and nothing is moved: see
// docs/design.md.
package copies
