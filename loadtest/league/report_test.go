package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func rowsToReport() []*Row {
	return []*Row{
		{
			Contender: Contender{Name: "counterd, in a program", Version: "0.1.0", Where: "Memcached 1.6", Promise: Seconds}, started: true,
			Judgments: map[string]Judgment{"minute": {Hits: 9, Admitted: 5, Denied: 4, Worst: 1.05}, "second": {Worst: 2}},
			Retries:   Retries{Punctual: 3, Premature: 1}, Bytes: 576.4, Rates: []float64{1000, 3000, 2000},
		},
		{
			Contender: Contender{Name: "other", Version: "v2", Where: "Redis 7", Promise: Bucket}, started: true,
			Judgments: map[string]Judgment{"minute": {Admitted: 9, Denied: 1234, Worst: 1.95, FalseDenials: 3, Broken: 2, Undecided: 1}, "second": {Worst: 1.9}},
			Retries:   Retries{Punctual: 1, TooEarly: 1, Premature: 1, TooLate: 1}, Bytes: 100, Rates: []float64{2000, 3000, 4000},
			Fault: errors.New("one\nfault"),
		},
		{Contender: Contender{Name: "absent", Missing: "name its program"}},
		{Contender: Contender{Name: "broken"}, Fault: errors.New("does not start")},
	}
}

const reported = `Exactness

|  | its promise | most in 1m | most in 1s | beyond its promise | false denials | retry_after true | too early | too late | undecided |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| counterd, in a program | sliding window, whole seconds | 1.05 | 2.00 | 0 | 0 of 4 | 100% | 0 of 3 | 0 of 1 | 0 |
| other | token bucket | 1.95 | 1.90 | 2 | 3 of 1,234 | 50% | 1 of 2 | 1 of 2 | 1 |

### Cost

|  | store | bytes a user | hits a second | ratio |
| --- | ---: | ---: | ---: | ---: |
| counterd, in a program | Memcached 1.6 | 576 | 2,000 (1,000–3,000) | – |
| other | Redis 7 | 100 | 3,000 (2,000–4,000) | 2.00× (1.00–2.00) |

### Where counterd loses

- the most in 1m, of counterd, in a program 1.05: none
- the most in 1s, of counterd, in a program 2.00: other (1.90)
- false denials, of counterd, in a program 0: none
- true retry_after, of counterd, in a program 100%: none
- bytes a user, of counterd, in a program 576: other (100)
- hits a second, of counterd, in a program 2,000: other (3,000)

### Versions

|  | version |
| --- | ---: |
| counterd | 0.1.0 |
| other | v2 |

### Not measured

- absent: not measured: name its program

### First errors

- other: one fault
- broken: does not start
`

// The report has the losing rows and the missing ones, too.
func TestTheReport(t *testing.T) {
	text := report(defaults, rowsToReport(), time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC))
	assert.Contains(t, text, "Measured on 2026-11-27, ")
	assert.Contains(t, text, "### "+reported)
}

// A contender that fails in each hit is better at nothing, and one without a figure not at that. What counterd has no
// figure of is left out.
func TestNoLossWithoutAFigure(t *testing.T) {
	rows := rowsToReport()
	ours, other := rows[0], rows[1]
	ours.Judgments["minute"] = Judgment{Worst: 1.05, FalseDenials: 1}
	other.Judgments = map[string]Judgment{"minute": {Undecided: 99}}
	other.Bytes, other.Rates, other.Retries = 0, nil, Retries{}
	assert.Equal(t, 6, strings.Count(strings.Join(losses(defaults.Limits, rows), ""), ": none\n"))
	other.Judgments["second"] = Judgment{Admitted: 1, Worst: 3}
	text := strings.Join(losses(defaults.Limits, rows), "")
	assert.Equal(t, 5, strings.Count(text, ": none\n"))
	assert.Contains(t, text, "- false denials, of counterd, in a program 1: other (0)\n")
	slow := &Row{Contender: Contender{Name: "counterd, slow"}, started: true, Judgments: ours.Judgments, Rates: []float64{1}, Bytes: 1e9}
	other.Rates = []float64{2}
	assert.Contains(t, losses(defaults.Limits, append(rows, slow)), "- hits a second, of counterd, slow 1: other (2)\n")
	assert.NotContains(t, strings.Join(losses(defaults.Limits, append(rows, slow)), ""), "slow 1,000,000,000")
	ours.Bytes = 0
	assert.NotContains(t, strings.Join(losses(defaults.Limits, rows), ""), "bytes a user")
}

func TestTheTablesOfAPageAreReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(file, []byte("before\n"+tablesBegin+"old\n"+tablesEnd+"after\n"), 0o600))
	for range 2 {
		require.NoError(t, writeInto(file, "new\n"))
		page, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, "before\n"+tablesBegin+"\nnew\n\n"+tablesEnd+"after\n", string(page))
	}
	require.NoError(t, os.WriteFile(file, []byte("no marks"), 0o600))
	assert.ErrorContains(t, writeInto(file, "new\n"), "has no lines")
}
