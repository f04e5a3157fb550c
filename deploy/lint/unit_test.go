package lint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	unitBinary = "/usr/local/bin/counterd"
	// mostExposed is what systemd-analyze security may make of the unit, of 100. It has a
	// network, and has to read /proc/stat.
	mostExposed = "15"
)

// placeUnit returns the path of the unit in a folder, with the binary as its program: on
// this machine none is installed.
func placeUnit(t *testing.T, text string) string {
	t.Helper()
	require.Contains(t, text, "ExecStart="+unitBinary+"\n")
	file := filepath.Join(t.TempDir(), "counterd.service")
	text = strings.ReplaceAll(text, unitBinary, counterd(t))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

// analyze runs systemd-analyze, which needs no systemd that runs.
func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	output, err := exec.Command(tool(t, "systemd-analyze"), args...).CombinedOutput()
	return string(output), err
}

func TestSystemdTakesTheUnit(t *testing.T) {
	text := string(read(t, "systemd/counterd.service"))
	said, err := analyze(t, "verify", "--man=no", "--recursive-errors=no", placeUnit(t, text))
	assert.NoError(t, err, said)
	assert.Empty(t, said)
	said, _ = analyze(t, "verify", "--man=no", "--recursive-errors=no", placeUnit(t, text+"\n[Service]\nProtectSistem=strict\n"))
	assert.Contains(t, said, "ProtectSistem", "it would say so")
}

// A process that died of a signal that systemd takes for a success starts again.
func TestTheUnitRestarts(t *testing.T) {
	assert.Contains(t, string(read(t, "systemd/counterd.service")), "\nRestart=always\n")
}

func TestTheUnitIsHardened(t *testing.T) {
	text := string(read(t, "systemd/counterd.service"))
	said, err := analyze(t, "security", "--offline=true", "--threshold="+mostExposed, placeUnit(t, text))
	require.NoError(t, err, said)
	open := strings.Replace(text, "CapabilityBoundingSet=\n", "", 1)
	_, err = analyze(t, "security", "--offline=true", "--threshold="+mostExposed, placeUnit(t, open))
	assert.Error(t, err, "the threshold is too far away")
}

// unitSettings are the settings in the unit and in its file of variables. Settings that are
// commented out count too.
func unitSettings(t *testing.T) settings {
	t.Helper()
	s := settings{}
	for line := range strings.Lines(string(read(t, "systemd/counterd.env"))) {
		name, value, found := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "#")), "=")
		if found {
			s[name] = value
		}
	}
	for line := range strings.Lines(string(read(t, "systemd/counterd.service"))) {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), "Environment="); found {
			name, value, _ := strings.Cut(rest, "=")
			s[name] = strings.Replace(value, "%d", "/run/credentials/counterd.service", 1)
		}
	}
	require.Greater(t, len(s), 6)
	return s
}

func TestTheUnitAgreesWithCounterd(t *testing.T) {
	s := unitSettings(t)
	s.check(t, readFlags(t))
	text := string(read(t, "systemd/counterd.service"))
	for _, credential := range regexp.MustCompile(`(?m)^LoadCredential=([^:]+):`).FindAllStringSubmatch(text, -1) {
		assert.Contains(t, text, "=%d/"+credential[1]+"\n", "a credential that nobody reads")
	}
	match := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(text)
	require.NotNil(t, match)
	stop, err := time.ParseDuration(match[1] + "s")
	require.NoError(t, err)
	delay, err := time.ParseDuration(s["COUNTERD_DRAIN_DELAY"])
	require.NoError(t, err)
	assert.Greater(t, stop, delay+longestEnd(t))
	match = regexp.MustCompile(`(?m)^MemoryMax=(\d+)G$`).FindStringSubmatch(text)
	require.NotNil(t, match, "a process that takes too much would have the machine choose another one to kill")
	gigabytes, err := strconv.ParseInt(match[1], 10, 64)
	require.NoError(t, err)
	s.checkMemory(t, gigabytes<<30)
	user := regexp.MustCompile(`(?m)^User=(\S+)$`).FindStringSubmatch(text)
	require.NotNil(t, user)
	assert.Contains(t, string(read(t, "systemd/counterd.sysusers")), "\nu "+user[1]+" ")
}
