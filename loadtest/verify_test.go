package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/verify"
)

// What cannot be started is said, and is no success.
func TestAVerifyThatCannotBe(t *testing.T) {
	got := runWith(t, nil, "verify", "-counterd", "true", "-store", "embedded")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "has ended")
	assert.Empty(t, got.out)
}

// Each result can be printed as JSON, durations in it in seconds.
func TestResultsAsJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, (&session{streams: streams{out: &out}, bar: newBar(nil), json: true}).print(&verify.Report{Duration: 1500 * time.Millisecond}))
	assert.Contains(t, out.String(), `"seconds": 1.5`)
}
