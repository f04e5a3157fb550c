package settings

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// OpenSecret opens the file with a secret that a setting names. The error names the file only
// if the name cannot be the secret itself, set by mistake.
func OpenSecret(setting, path string) (*os.File, error) {
	return openNamed(setting, path, isFileName(path))
}

// CheckSecret returns an error if the setting names a file with a secret that cannot be opened.
func CheckSecret(setting, path string) error { return checkNamed(setting, path, isFileName(path)) }

// CheckKey is CheckSecret for a file with a private key in PEM: no name of one line is a key.
func CheckKey(setting, path string) error {
	return checkNamed(setting, path, !strings.Contains(path, "\n") && !strings.Contains(path, "-----"))
}

func checkNamed(setting, path string, shown bool) error {
	if path == "" {
		return nil
	}
	file, err := openNamed(setting, path, shown)
	if err != nil {
		return err
	}
	return file.Close()
}

func openNamed(setting, path string, shown bool) (*os.File, error) {
	file, err := os.Open(path)
	if err == nil {
		return file, nil
	}
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err
	}
	if !shown {
		return nil, &Fault{Reason: "{" + setting + "} takes the name of a file, and its value, which is not shown since it may be the secret itself, cannot be opened", Cause: err}
	}
	return nil, &Fault{Setting: setting, Reason: path + " cannot be opened", Cause: err}
}

// minSecret is the length of the shortest token and key secret.
const minSecret = 16

// isFileName reports whether a value is the name of a file and cannot be a secret: it is shorter
// than secrets, has the ending of a file or begins with a folder that exists.
func isFileName(path string) bool {
	if len(path) < minSecret && !strings.Contains(path, ":") {
		return true
	}
	if slices.Contains([]string{".pem", ".key", ".txt", ".conf"}, filepath.Ext(path)) {
		return true
	}
	const separator = string(filepath.Separator)
	rooted := strings.HasPrefix(path, separator)
	first, _, nested := strings.Cut(strings.TrimPrefix(path, separator), separator)
	if !nested || first == "" {
		return false
	}
	if rooted {
		first = separator + first
	}
	info, err := os.Stat(first)
	return err == nil && info.IsDir()
}

// modeFaults are the permissions of a file with a secret that let others do too much.
var modeFaults = []struct {
	bits   fs.FileMode
	reason string
}{
	{0o002, "a file with a secret can be written by every user of this machine, who could put another secret there: chmod o-w"},
	{0o020, "a file with a secret can be written by its group, which could put another secret there: chmod g-w"},
	{0o004, "a file with a secret can be read by every user of this machine: chmod o-r"},
}

// WarnOfMode logs what others may do with a file with a secret, if that is too much. Its group
// may read it, as the processes of a service do.
func WarnOfMode(log *slog.Logger, path string) {
	if path == "" {
		return
	}
	info, err := os.Stat(path)
	if err != nil {
		return // opening the file reports it
	}
	for _, fault := range modeFaults {
		if info.Mode().Perm()&fault.bits != 0 {
			log.Warn(fault.reason, "file", path, "mode", info.Mode().Perm().String())
		}
	}
}
