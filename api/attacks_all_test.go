//go:build testall

package api_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/net/http2/hpack"
)

func init() {
	for name, attack := range map[string]stalledAnswer{
		"for anyone":       {"/healthz", fieldsOf(12, 5<<10, false), 12, 100, 40},
		"a long path":      {"/" + strings.Repeat("x", 60<<10), nil, 12, 100, 40},
		"compressed":       {"/v1/events", append(fieldsOf(90, 0, true), repeated(1500)...), 24, 100, 100},
		"beyond the limit": {"/v1/events", append(fieldsOf(1500, 0, false), repeated(1000)...), 16, 100, 100},
		"invalid":          {"/v1/events", append(fieldsOf(1500, 0, false), hpack.HeaderField{Name: "connection", Value: "x"}), 16, 100, 100},
	} {
		stalledAnswers[name] = attack
	}
}

// Connections that send many tiny header fields and never end hold little memory.
func TestUnfinishedHeadersHoldLittleMemory(t *testing.T) {
	c := newClients(t, bare(newGuarded(t).client), 0)
	var text strings.Builder
	text.WriteString("GET /v1/events HTTP/1.1\r\nHost: x\r\n")
	for i := 0; text.Len() < 64<<10; i++ {
		fmt.Fprintf(&text, "%x:\r\n", i)
	}
	before := memoryInUse()
	for range 600 {
		_, _ = io.WriteString(c.dial(), text.String()) // the server may close it meanwhile
	}
	c.answered(c.dial())
	grown := memoryInUse() - before
	t.Logf("%d connections are left: %d MiB", c.listener.Open(), grown>>20)
	assert.Less(t, grown, int64(280<<20), "half of what all their headers take")
}

// repeated returns a header field so many times.
func repeated(count int) (fields []hpack.HeaderField) {
	for range count {
		fields = append(fields, hpack.HeaderField{Name: "x", Value: "v"})
	}
	return fields
}
