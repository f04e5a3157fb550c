package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// openSecret opens the file that a flag names. Its error does not repeat what the flag
// says: it may be the secret itself that somebody put there.
func openSecret(flag, path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		if cause, ok := errors.AsType[*fs.PathError](err); ok {
			err = cause.Err
		}
		return nil, fmt.Errorf("%s: the file that it names cannot be opened: %w", flag, err)
	}
	return file, nil
}

// checkSecret finds out whether the file can be opened that a flag names, if it does.
func checkSecret(flag, path string) error {
	if path == "" {
		return nil
	}
	file, err := openSecret(flag, path)
	if err != nil {
		return err
	}
	return file.Close()
}
