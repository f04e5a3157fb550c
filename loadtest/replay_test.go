package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/loadtest/replay"
)

// A request that exceeds -timeout has an error that names the flag; a request that the server
// fails has not.
func TestReplayNamesTheFlagOfTheTime(t *testing.T) {
	for cause, named := range map[error]bool{
		fmt.Errorf("%w: DELETE localhost: %w", client.ErrUnavailable, context.DeadlineExceeded): true,
		client.ErrUnavailable: false,
	} {
		var said bytes.Buffer
		require.Equal(t, exitFailed, replayFailed(t.Context(), cause, &replay.Result{}, streams{out: io.Discard, err: &said}))
		require.Equal(t, named, bytes.Contains(said.Bytes(), []byte("; -timeout gives each request more time")), &said)
	}
}
