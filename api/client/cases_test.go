package client_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// step is a step of a case. The table says what each member means.
type step struct {
	Call    string  `json:"call"`
	Times   int     `json:"times"`
	Timeout float64 `json:"timeout"`
	Leave   string  `json:"leave"`
	Pass    float64 `json:"pass"`
	End     string  `json:"end"`
	ending

	Sends   []string          `json:"sends"`
	Cancels []string          `json:"cancels"`
	Returns map[string]string `json:"returns"`
}

// The cases of all clients.
func TestCoalescing(t *testing.T) {
	text, err := os.ReadFile("../../clients/testdata/coalescing.json")
	require.NoError(t, err)
	var table struct {
		About []string `json:"about"`
		Cases []struct {
			Name    string  `json:"name"`
			Timeout float64 `json:"timeout"`
			Steps   []step  `json:"steps"`
		} `json:"cases"`
	}
	require.NoError(t, json.Unmarshal(text, &table, json.RejectUnknownMembers(true)))
	for _, test := range table.Cases {
		t.Run(test.Name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &script{}
				c := newCaller(t, s)
				c.client = open(t, client.Config{URL: "http://counterd.test", Transport: s, Timeout: seconds(test.Timeout)})
				leave := map[string]context.CancelCauseFunc{}
				logged := 0 // by earlier steps
				for _, step := range test.Steps {
					switch {
					case step.Call != "":
						ctx, cancel := context.WithCancelCause(t.Context())
						leave[step.Call] = cancel
						if step.Timeout > 0 {
							timeout, end := context.WithTimeout(ctx, seconds(step.Timeout))
							defer end()
							ctx = timeout
						}
						for range max(step.Times, 1) {
							c.hit(ctx, step.Call)
						}
					case step.Leave != "":
						leave[step.Leave](errLeft)
					case step.End != "":
						s.mu.Lock()
						i := slices.IndexFunc(s.asked, func(a *asked) bool { return a.name() == step.End })
						s.mu.Unlock()
						require.GreaterOrEqual(t, i, 0, "no exchange %s", step.End)
						s.end(i, step.ending)
					}
					time.Sleep(seconds(step.Pass))
					var want []string
					for _, name := range step.Sends {
						want = append(want, "sends "+name)
					}
					for _, name := range step.Cancels {
						want = append(want, "cancels "+name)
					}
					for name, outcome := range step.Returns {
						// An error of this client does not say what was counted.
						want = append(want, name+" is "+strings.ReplaceAll(outcome, "not sent", "unavailable"))
					}
					log := s.logged()
					got := counted(slices.Sorted(slices.Values(log[logged:])))
					logged = len(log)
					require.ElementsMatch(t, want, got, "%+v", step)
				}
			})
		})
	}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// counted returns the texts, those in a row that are equal as one with their number.
func counted(texts []string) (all []string) {
	for i := 0; i < len(texts); {
		n := 1
		for i+n < len(texts) && texts[i+n] == texts[i] {
			n++
		}
		text := texts[i]
		if n > 1 {
			text = strconv.Itoa(n) + "*" + text
		}
		all = append(all, text)
		i += n
	}
	return all
}

var errLeft = errors.New("the caller has left")

// outcome names what became of a call, as the table does.
func outcome(t *testing.T, err error) string {
	fault, answered := errors.AsType[*client.Error](err)
	if answered {
		assert.Equal(t, "request-1", fault.RequestID)
		assert.NotContains(t, err.Error(), "/hits/")
	}
	switch {
	case err == nil:
		return "admitted"
	case errors.Is(err, errLeft):
		return "left"
	}
	kind := kindOf(err)
	if kind == "invalid" && answered && len(fault.Errors) > 0 {
		return "invalid " + fault.Errors[0].Pointer
	}
	return kind
}
