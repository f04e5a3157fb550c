package docs_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events/rulesfile"
)

// yamlBlock matches the blocks of a page that show rules.
var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// The rules that docs/limits.md and docs/rules.md show are valid, without a warning.
func TestTheRulesShownAreValid(t *testing.T) {
	for page, want := range map[string]int{"limits.md": 3, "rules.md": 2} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		blocks := yamlBlock.FindAllStringSubmatch(string(text), -1)
		require.Len(t, blocks, want, page)
		for _, block := range blocks {
			rules, err := rulesfile.Parse([]byte(block[1]))
			require.NoError(t, err, "%s: %s", page, block[1])
			assert.Empty(t, rules.Warnings, "%s: %s", page, block[1])
		}
	}
}

// jsonCall matches a call that a page shows.
var jsonCall = regexp.MustCompile(`(?m)^\$ curl .*--json '(.*)' http://127\.0\.0\.1:8080(/\S+)$`)

// A hundred guesses at once, made as the page recommends for a login, are no more than the limit admits, and right
// passwords are never denied.
func TestTheLoginOfThePageHoldsAtOnce(t *testing.T) {
	page, err := os.ReadFile("limits.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "**Login.**")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "**Calls of an API.**")
	calls := jsonCall.FindAllStringSubmatch(section, -1)
	require.Len(t, calls, 2, "a call before the password is tried, and one after a success")
	block := yamlBlock.FindStringSubmatch(section)
	require.NotNil(t, block)
	newSite := func() http.Handler {
		rules, err := counterd.ParseRules([]byte(block[1]))
		require.NoError(t, err)
		limiter, err := counterd.New(rules)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, limiter.Close()) })
		return api.NewHandler(limiter, api.Config{})
	}
	post := func(h http.Handler, call []string) (status int, reservation string) {
		answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, call[2], strings.NewReader(call[1]))
		request.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(answer, request)
		_, rest, _ := strings.Cut(answer.Body.String(), `"reservation":"`)
		reservation, _, _ = strings.Cut(rest, `"`)
		return answer.Code, reservation
	}

	h := newSite()
	var tried atomic.Int32
	var guessing sync.WaitGroup
	for range 100 {
		guessing.Go(func() {
			if status, _ := post(h, calls[0]); status == http.StatusOK {
				tried.Add(1) // the password is wrong
			}
		})
	}
	guessing.Wait()
	assert.Equal(t, int32(5), tried.Load(), "guesses of 100")

	h = newSite()
	for range 50 {
		status, reservation := post(h, calls[0])
		require.Equal(t, http.StatusOK, status)
		require.NotEmpty(t, reservation)
		settle := []string{"", regexp.MustCompile(`"reservation": *"[^"]*"`).ReplaceAllString(calls[1][1], `"reservation": "`+reservation+`"`), calls[1][2]}
		status, _ = post(h, settle)
		require.Equal(t, http.StatusOK, status)
	}
}
