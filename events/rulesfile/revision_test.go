package rulesfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The file that was modified later is newer, whatever its content and whenever it is read.
func TestRevisionsOfFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	modified := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	read := func(limits string, at time.Time) uint64 {
		require.NoError(t, os.WriteFile(file, []byte("events: {e: {limits: "+limits+"}}"), 0o600))
		require.NoError(t, os.Chtimes(file, at, at))
		rules, err := Read(file)
		require.NoError(t, err)
		assert.Equal(t, rules.Revision, rules.Events["e"].Rules[0].Revision)
		return rules.Revision
	}
	older := read("[{per: ip, rate: 5/m}]", modified)
	assert.Equal(t, older, read("[{per: ip, rate: 5/m}]", modified))
	assert.NotEqual(t, older, read("[{per: ip, rate: 6/m}]", modified))
	for i := range 9 {
		newer := read("[{per: ip, rate: "+string(rune('1'+i))+"/m}]", modified.Add(time.Duration(i+1)*time.Millisecond))
		assert.Greater(t, newer, older)
		older = newer
	}
	assert.Less(t, read("[{per: ip, rate: 5/m}]", time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)), uint64(1)<<22)
}
