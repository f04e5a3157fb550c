// Package leaktest finds the goroutines that a test leaves behind. It goes on where
// goleak's own check of a whole package says that there is a leak and not of which test.
package leaktest

import (
	"flag"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// maxWait is how long goroutines may take to end after their test.
const maxWait = 5 * time.Second

// checked are the names of the tests that are being checked.
var checked sync.Map

// Check fails the test if goroutines are left that have begun from now on, when all
// that is cleaned up after it is. Helpers that start something call it first of all; only
// the first call in a test, or in the one that it is a part of, matters. Tests that run in
// parallel with others call Parallel before.
func Check(tb testing.TB) {
	name := tb.Name()
	if isChecked(name) {
		return
	}
	checked.Store(name, true)
	before := goleak.IgnoreCurrent()
	tb.Cleanup(func() {
		checked.Delete(name)
		// Connections that are kept for the next request are not leaks.
		http.DefaultClient.CloseIdleConnections()
		if err := find(before); err != nil && !tb.Failed() {
			tb.Errorf("%s leaves goroutines behind: %v", name, err)
		}
	})
}

// Parallel has the test run in parallel with others. What is left behind then is not
// known to be its own: the check of the whole package finds it.
func Parallel(t *testing.T) {
	t.Helper()
	name := t.Name()
	checked.Store(name, true)
	t.Cleanup(func() { checked.Delete(name) })
	t.Parallel()
}

// SideBySide has so many parallel tests of the package run at once, as the flag -parallel does
// where it is set. A package whose parallel tests mostly wait calls it in its TestMain: by
// default only as many run as there are processors.
func SideBySide(tests int) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		_ = flag.Set("test.parallel", strconv.Itoa(tests)) // package testing has it
	}
}

// isChecked reports whether the test, or one that it is a part of, has been seen to.
func isChecked(name string) bool {
	for i, letter := range name + "/" {
		if letter != '/' {
			continue
		}
		if _, found := checked.Load(name[:i]); found {
			return true
		}
	}
	return false
}

func find(before goleak.Option) (err error) {
	for end := time.Now().Add(maxWait); time.Now().Before(end); {
		if err = goleak.Find(before); err == nil {
			return nil
		}
	}
	return err
}
