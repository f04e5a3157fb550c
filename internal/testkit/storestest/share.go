//go:build !testall

package storestest

import (
	"testing"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// onSecured runs a test on a server that demands TLS and a password, only with the build tag testall.
func onSecured(*testing.T, func() time.Time, func(*testing.T, func() store.Store)) {}
