// The function below is the example of docs/testing.md: its block of Go is these lines.

package counterd_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
)

func TestFiveLoginsAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules, err := counterd.ParseRules([]byte(`events: {login: {limits: [{per: ip, rate: 5/m}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		limiter, err := counterd.New(rules) // within the bubble, whose clock it has then
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		address := counterd.Features{"ip": "192.0.2.1"}
		for i := range 6 {
			decision, err := limiter.Hit(t.Context(), "login", address)
			if err != nil || decision.Allowed != (i < 5) {
				t.Fatal(i, decision.Allowed, err)
			}
		}
		time.Sleep(time.Minute) // returns at once
		decision, err := limiter.Hit(t.Context(), "login", address)
		if err != nil || !decision.Allowed {
			t.Fatal(decision.Allowed, err)
		}
	})
}

func TestThePageOnTestingIsTrue(t *testing.T) {
	page, err := os.ReadFile("docs/testing.md")
	require.NoError(t, err)
	source, err := os.ReadFile("faketime_test.go")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(page), "```go\n")
	require.True(t, found)
	block, _, found = strings.Cut(block, "```\n")
	require.True(t, found)
	require.Contains(t, string(source), block)
}
