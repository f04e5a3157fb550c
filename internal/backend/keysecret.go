package backend

import (
	"bytes"
	"fmt"
	"io"

	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/memcache"
)

// maxKeySecret bounds what is read of the file.
const maxKeySecret = 64 << 10

// ReadKeySecret returns the secret of all keys in the servers, nil where none is set.
func ReadKeySecret(s settings.Settings) ([]byte, error) {
	if s.KeySecret == "" {
		return nil, nil
	}
	file, err := settings.OpenSecret("key-secret", s.KeySecret)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxKeySecret))
	if err != nil {
		return nil, &settings.Fault{Setting: "key-secret", Cause: err}
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) < memcache.MinKeySecret {
		return nil, &settings.Fault{Setting: "key-secret", Reason: fmt.Sprintf("the first line of %s has %d characters: write at least %d", s.KeySecret, len(line), memcache.MinKeySecret)}
	}
	return line, nil
}
