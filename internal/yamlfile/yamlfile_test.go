package yamlfile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The line is that of the fault, not that of the mapping or list it lies in, nor
// of what is read ahead of it.
func TestSyntaxFaultsHaveTheirLine(t *testing.T) {
	for _, c := range []struct {
		data string
		line int
	}{
		{"a: b: c\n", 1},
		{"x: 1\nb: 2\n  c: 3\nd: 4\n", 3},
		{"a:\n\tb: c\n", 2},
		{"a:\n  - b\n c: d\ne: f\n", 3},
		{"x: 1\na: [1, 2\nb: 3\nc: 4\n", 2},
		{"x: 1\na: [1, 2\n# comment\n\n\nb: 3\nc: 4\n", 2},
		{"x: 1\n\na: \"abc\nb: 3\n", 3},
		{"x: 1\na: `x\nb: 2\n", 2},
		{"x: 1\ny: 2\n- a\nz: 3\n", 3},
		{"x: [1,\n  2]\ny: \"a\n b\"\n- a\nz: 3\n", 5},
		{"- a\n- b\nx: 1\n", 3},
		{"x:\n  y: 1\n  z: 'it's'\n  w: 2\n", 3},
		{"x: 1\ny: 2\na: {b: c}}\n# comment\n# comment\nz: 3\n", 3},
		{"x: 1\na: \"\\q\"\nb: 2\n", 2},
		{"x: 1\n\na: *nobody\n\nb: 2\n", 3},
		{"x: 1\na: [1, 2\n\n\n", 2},
		{"x: 1\ny: \x01\n", 2},
		{"x: 1\r\ny: 2\r\nz: @a\r\nw: 3\r\n", 3},
		{"x: 1\n---\ny: [\n", 3},
		{"x: 1\n---\ny: 2\n", 2},
		{"x: 1\ny: \xc3\x28\n", 2},
		{"# a\n%TAG ! x:\n---\nx: 1\n", 2},
		{"# only\n\n", 1},
	} {
		_, fault := Decode([]byte(c.data), Format{Tag: "%"})
		if assert.NotNil(t, fault, "%q", c.data) {
			assert.Equal(t, c.line, fault.Line, "%q: %v", c.data, fault)
		}
	}
}

func TestPosition(t *testing.T) {
	for offset, want := range [][2]int{{1, 1}, {1, 2}, {1, 2}, {1, 3}, {2, 1}, {2, 2}} {
		line, column := position([]byte("aé\nbc"), offset)
		if offset != 2 { // inside a character
			assert.Equal(t, want, [2]int{line, column}, "%d", offset)
		}
	}
	require.Equal(t, -1, invalidUTF8([]byte("aé\uFFFDb")), "the replacement character itself is valid")
	require.Equal(t, 2, invalidUTF8([]byte("ab\xffc")))
}
