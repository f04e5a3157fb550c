package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// openSecret opens the file with a secret that a flag names. Its error names the file only
// where that is not the secret itself, put there by mistake.
func openSecret(flag, path string) (*os.File, error) {
	return openNamed(flag, path, isFileName(path))
}

// checkSecret finds out whether the file with a secret can be opened that a flag names, if it
// names one.
func checkSecret(flag, path string) error { return checkNamed(flag, path, isFileName(path)) }

// checkKey does so for a file with a private key in PEM, which no line is taken for.
func checkKey(flag, path string) error {
	return checkNamed(flag, path, !strings.Contains(path, "\n") && !strings.Contains(path, "-----"))
}

func checkNamed(flag, path string, shown bool) error {
	if path == "" {
		return nil
	}
	file, err := openNamed(flag, path, shown)
	if err != nil {
		return err
	}
	return file.Close()
}

func openNamed(flag, path string, shown bool) (*os.File, error) {
	file, err := os.Open(path)
	if err == nil {
		return file, nil
	}
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err
	}
	if !shown {
		return nil, fmt.Errorf("%s takes the name of a file, and what it was given cannot be opened: %w (not shown, since it may be the secret itself)", flag, err)
	}
	return nil, fmt.Errorf("%s: %s cannot be opened: %w", flag, path, err)
}

// minSecret is the length of the shortest token and key secret.
const minSecret = 16

// isFileName reports whether a flag's value is surely the name of a file and not a secret: it
// is shorter than secrets are, has the ending of a file or begins with a folder that exists.
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

// modeFaults are what the permissions of a file with a secret let others do.
var modeFaults = []struct {
	bits fs.FileMode
	says string
}{
	{0o002, "a file with a secret can be written by every user of this machine, who could put another secret there: chmod o-w"},
	{0o020, "a file with a secret can be written by its group, which could put another secret there: chmod g-w"},
	{0o004, "a file with a secret can be read by every user of this machine: chmod o-r"},
}

// warnOpen says what others may do with a file with a secret, where that is too much. Its
// group may read it: so do the processes of a service.
func warnOpen(log *slog.Logger, path string) {
	if path == "" {
		return
	}
	info, err := os.Stat(path)
	if err != nil {
		return // what opens the file reports it
	}
	for _, fault := range modeFaults {
		if info.Mode().Perm()&fault.bits != 0 {
			log.Warn(fault.says, "file", path, "mode", info.Mode().Perm().String())
		}
	}
}
