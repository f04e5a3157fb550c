package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"

	"github.com/counterd/counterd/memcache"
)

// keySecret names the file of the secret that the keys of counters depend on; empty:
// they depend on none.
type keySecret struct{ file string }

// maxKeySecret bounds what is read of the file.
const maxKeySecret = 64 << 10

func (k *keySecret) addFlag(flags flagSet) {
	flags.StringVar(&k.file, "key-secret", "", "`file` whose first line, 16 characters or more, is the secret of all keys in the servers: without it nobody finds out there who was counted; "+
		"the same for all processes; read at the start only, and another one begins all counters anew")
}

// check finds a secret for nothing.
func (k *keySecret) check(servers fleetServers) error {
	if k.file != "" && servers.none() {
		return usageError("-key-secret: no server is named: keys are those of Memcached")
	}
	return nil
}

// read returns the secret, nil where there is none.
func (k *keySecret) read() ([]byte, error) {
	if k.file == "" {
		return nil, nil
	}
	file, err := openSecret("-key-secret", k.file)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxKeySecret))
	if err != nil {
		return nil, fmt.Errorf("-key-secret: %w", err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) < memcache.MinKeySecret {
		return nil, fmt.Errorf("-key-secret: the first line of %s has %d characters, at least %d are wanted", k.file, len(line), memcache.MinKeySecret)
	}
	return line, nil
}

// warn says that others can read or change the secret.
func (k *keySecret) warn(log *slog.Logger) { warnOpen(log, k.file) }
