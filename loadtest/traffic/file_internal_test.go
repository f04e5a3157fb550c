package traffic

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFileIsBounded(t *testing.T) {
	read := func(text string) error {
		_, err := readValues(strings.NewReader(text), "user", 4, 10)
		return err
	}
	require.NoError(t, read("a\na\nb\nb\n"), "as many lines as may be")
	require.ErrorContains(t, read("a\na\nb\nb\nb\n"), "more than 4 lines")
	require.NoError(t, read("12345\n67890\n12345\n"), "as many bytes as may be, the same ones once")
	assert.ErrorContains(t, read("12345\n67890\n1\n"), "10 bytes")
}
