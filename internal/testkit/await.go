package testkit

import (
	"testing"
	"time"
)

// awaitTick is the pause between two polls of Await.
const awaitTick = time.Millisecond

// Await polls the condition every millisecond until it holds. It fails the test with what after the
// deadline. Only tests of real processes and servers need it.
func Await(tb testing.TB, deadline time.Duration, what string, condition func() bool) {
	tb.Helper()
	for end := time.Now().Add(deadline); !condition(); time.Sleep(awaitTick) {
		if time.Now().After(end) {
			tb.Fatalf("not within %s: %s", deadline, what)
		}
	}
}
