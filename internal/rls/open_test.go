//go:build openissues

package rls_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Point 32 of "Trust": of requests on two quotas as many are admitted at once as one after the other. Two requests that
// reach the two counters in opposite orders are both admitted, each by the quota on which it is the first.
func TestQuotasAreDecidedInOneOrder(t *testing.T) {
	assert.Equal(t, 1, quotasAtOnce(t))
}
