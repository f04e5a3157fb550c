package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/verify"
)

func TestVerifyUsage(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte("events: {}"), 0o600))
	for want, args := range map[string][]string{
		"-duration":             {"-duration", "0s"},
		"-clients":              {"-clients", "-3"},
		"-features":             {"-features", "0"},
		"-features is 1 to":     {"-features", "1073741824", "-counterd", "true"},
		"-rate":                 {"-rate", "-1"},
		"-event":                {"-event", "No Name"},
		"-url is written":       {"-url", "localhost:8080"},
		"-servers is":           {"-url", "http://localhost:8080", "-servers", "3"},
		"-chaos is of what":     {"-url", "http://localhost:8080", "-chaos"},
		"-store is":             {"-store", "redis", "-counterd", "true"},
		"-replicas is":          {"-replicas", "3", "-servers", "2", "-counterd", "true"},
		"-soak is at least 5s":  {"-soak", "1s", "-counterd", "true"},
		"-soak is above 0":      {"-soak", "0"},
		"-duration and -soak":   {"-soak", "1m", "-duration", "1m"},
		"-soak is of what":      {"-soak", "1m", "-url", "http://localhost:8080"},
		"no argument":           {"more"},
		"no-such-program":       {"-counterd", "no-such-program"},
		"-rules":                {"-rules", "no-such-file"},
		"-rules wants":          {"-rules", rules},
		"not defined":           {"-nope"},
		"-processes is":         {"-processes", "65", "-counterd", "true"},
		"-processes 1":          {"-store", "embedded", "-processes", "2", "-counterd", "true"},
		"chaos kills Memcached": {"-store", "embedded", "-chaos", "-counterd", "true"},
	} {
		t.Run(want, func(t *testing.T) {
			got := runWith(t, nil, append([]string{"verify"}, args...)...)
			assert.Contains(t, got.err, want)
			assert.Equal(t, exitUsage, got.status)
			assert.Empty(t, got.out)
			assert.Equal(t, 1, strings.Count(got.err, "\n"), "one line, not %q", got.err)
		})
	}
	got := runWith(t, nil, "verify", "-h")
	assert.Equal(t, exitOK, got.status)
	for _, text := range []string{"retry_after", "-chaos", "-soak", "-url", "Examples:"} {
		assert.Contains(t, got.out, text)
	}
}

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
