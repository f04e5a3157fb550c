package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	root "github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/client"
)

func Example() {
	rules, err := root.ParseRules([]byte(`events: {login: {limits: [{per: ip, rate: 2/m}]}}`))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := root.New(rules)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	server := httptest.NewServer(api.NewHandler(limiter, api.Config{}))
	defer server.Close()

	counterd, err := client.New(client.Config{URL: server.URL, Timeout: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer counterd.Close()
	for range 3 {
		decision, err := counterd.Hit(context.Background(), "login", client.Features{"ip": "203.0.113.9"}, 1)
		switch {
		case errors.Is(err, client.ErrUnavailable): // fails open here: you choose
			fmt.Println("welcome, unlimited")
		case err != nil:
			log.Fatal(err)
		case decision.Allowed:
			fmt.Println("welcome")
		default:
			fmt.Println("denied")
		}
	}
	// Output:
	// welcome
	// welcome
	// denied
}

// The ten lines of the README are those of the Example, and so is what they print.
func TestTheReadmeIsTheExample(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	code := strings.ReplaceAll(string(example), "server.URL,", `"http://127.0.0.1:8080",`)
	_, block, found := strings.Cut(string(page), "```go\n")
	require.True(t, found)
	block, rest, _ := strings.Cut(block, "```\n")
	assert.Contains(t, strings.ReplaceAll(code, "\n\t", "\n"), block)
	_, output, _ := strings.Cut(rest, "```\n")
	output, _, _ = strings.Cut(output, "```")
	assert.Contains(t, strings.ReplaceAll(code, "\n\t// ", "\n"), "Output:\n"+output)
}
