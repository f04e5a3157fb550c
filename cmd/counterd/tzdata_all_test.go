//go:build testall

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The commands have a time zone database of their own. It is not forced on programs that embed a
// limiter.
func TestTheTimeZoneDatabase(t *testing.T) {
	const module = "github.com/counterd/counterd"
	for name, has := range map[string]bool{module + "/cmd/counterd": true, module + "/loadtest": true, module: false} {
		list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", name).Output()
		require.NoError(t, err)
		assert.Equal(t, has, slices.Contains(strings.Fields(string(list)), "time/tzdata"), name)
	}
}
