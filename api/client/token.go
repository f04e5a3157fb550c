package client

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// errNoToken is what a file without a token, or with more than one, is.
var errNoToken = errors.New("the file does not hold one token, and nothing else")

// TokenFile returns a function that reads the token from the file at each call: a token
// that is replaced there is sent from then on. Replace the file by a rename, so that no
// reader sees half of it.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		words := strings.Fields(string(text))
		if len(words) != 1 {
			return "", fmt.Errorf("%s: %w", path, errNoToken)
		}
		return words[0], nil
	}
}
