package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

// Quadratic in these limits it would not end within the time that tests have.
func TestCostsOfManyLimits(t *testing.T) {
	event := &events.Event{Name: "e"}
	for i := range 200_000 {
		event.Rules = append(event.Rules, events.Rule{Per: []string{fmt.Sprintf("k%d", i)}, Limits: []events.Limit{{N: 1, Window: time.Minute}}})
	}
	require.NoError(t, printCosts(io.Discard, &events.Rules{Events: map[string]*events.Event{"e": event}}))
}

func TestValidateSaysWhatIsCountedAndWarns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte("events:\n  notes:\n    methods: [POST, PUTT]\n    limits:\n      - {per: user, rate: 5/m}\n      - {per: user, rate: 9/m}\n"), 0o600))
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"validate", file}, &stdout, &stderr), "a warning is no fault")
	assert.True(t, strings.HasSuffix(stdout.String(), "\nnotes: authorize and the middleware count POST, PUTT only\n"), "%s", &stdout)
	warning := "counterd: warning: " + file + ": line "
	assert.Equal(t,
		warning+"3, column 21: events.notes.methods[1]: this is none of the usual methods: PUT may be meant\n"+
			warning+"6, column 27: events.notes.limits[1].rate: 9/m never decides: 5/m in line 5 is at least as strict\n",
		stderr.String())
}
