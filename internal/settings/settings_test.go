package settings

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The kinds of sources are few, and say nothing of where they are.
func TestKindsOfSources(t *testing.T) {
	for _, is := range []struct{ named, file, want string }{
		{"", "/etc/counterd/dns:servers", "file"}, {"dns:cache.example:11211", "", "dns"}, {"aws:my.cfg.example:11211", "", "aws"},
	} {
		s := Settings{MemcachedFile: is.file}
		if is.named != "" {
			s.Memcached = []string{is.named}
		}
		assert.Equal(t, is.want, s.SourceKind())
	}
}

// A file with a secret that others can read or change is warned of, and what to do about it.
func TestOpenFilesAreWarnedOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte("secret"), 0o600))
	for mode, says := range map[os.FileMode][]string{
		0o600: nil, 0o640: nil,
		0o644: {"can be read by every user of this machine: chmod o-r"},
		0o660: {"can be written by its group", "chmod g-w"},
		0o602: {"can be written by every user of this machine", "chmod o-w"},
		0o666: {"chmod o-w", "chmod g-w", "chmod o-r"},
	} {
		require.NoError(t, os.Chmod(file, mode))
		var log bytes.Buffer
		WarnOfMode(slog.New(slog.NewTextHandler(&log, nil)), file)
		assert.Equal(t, len(says) > 0, log.Len() > 0, "%o: %s", mode, log.String())
		for _, word := range says {
			assert.Contains(t, log.String(), word)
			assert.Contains(t, log.String(), "file="+file)
		}
	}
}
