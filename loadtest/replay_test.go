package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
)

// A request that exceeds -timeout has an error that names the flag; a request that the server
// fails has not.
func TestReplayNamesTheFlagOfTheTime(t *testing.T) {
	for cause, named := range map[error]bool{
		fmt.Errorf("%w: DELETE localhost: %w", client.ErrUnavailable, context.DeadlineExceeded): true,
		client.ErrUnavailable: false,
	} {
		said := replayAdvice(t.Context(), cause).Error()
		require.Equal(t, named, strings.Contains(said, "; -timeout gives each request more time"), said)
	}
}
