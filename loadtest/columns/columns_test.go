package columns_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/loadtest/columns"
)

func Example() {
	var table strings.Builder
	columns.Write(&table, 1, [][]string{{"way", "hits"}, {"µ", columns.Grouped(1234567)}, {"none"}, {"empty", ""}})
	fmt.Print(strings.ReplaceAll(table.String(), " ", "."))
	// Output:
	// way.........hits
	// µ......1,234,567
	// none
	// empty
}

func TestDigits(t *testing.T) {
	assert.Equal(t, []string{"0.00", "9.99", "10.0", "99.9", "100", "12,346"}, []string{
		columns.Digits(0.004), columns.Digits(9.99), columns.Digits(10), columns.Digits(99.94), columns.Digits(100), columns.Digits(12345.6),
	})
}
