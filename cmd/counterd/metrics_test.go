package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A good edit and a bad one are both seen at /metrics.
func TestMetricsTellOfReloads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("events: {e: {limits: [{per: ip, rate: 5/d}]}}")
	p := startProcess(t, "-rules", path)
	eventually := func(line string) {
		require.Eventually(t, func() bool {
			status, text := p.get(t, "/metrics")
			return status == http.StatusOK && strings.Contains(text, "\n"+line+"\n")
		}, soon, 50*time.Millisecond, line)
	}
	eventually("counterd_rules_generation 1")
	eventually("counterd_rules_reload_failures_total 0")
	write("events: {e: {limits: [{per: ip, rate: 6/d}]}}")
	eventually("counterd_rules_generation 2")
	write("events: {e: {limits: [{per: ip, rate: six}]}}")
	eventually("counterd_rules_reload_failures_total 1")
	eventually("counterd_rules_generation 2")
}
