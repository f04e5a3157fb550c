package filewatch

import (
	"errors"
	"io"
	"os"
)

// ErrNotRegular is returned for what is no regular file: a pipe would block, or be empty
// the next time.
var ErrNotRegular = errors.New("it is not a regular file")

// Read returns what a regular file holds, or the first so many bytes of it.
func Read(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}
