package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
)

// answered is a case of the table, which says what each member means.
type answered struct {
	Name         string         `json:"name"`
	Calls        []string       `json:"calls"`
	Hits         int            `json:"hits"`
	Statuses     []int          `json:"statuses"`
	Types        []string       `json:"types"`
	Body         jsontext.Value `json:"body"`
	Each         []string       `json:"each"`
	Outcome      any            `json:"outcome"`
	MaybeCounted *bool          `json:"maybe_counted"` // an error of this client does not say it
	Refusal      bool           `json:"refusal"`       // nor has it the decision
}

// The cases of all clients.
func TestAnswers(t *testing.T) {
	text, err := os.ReadFile("../../clients/testdata/answers.json")
	require.NoError(t, err)
	var table struct {
		About []string   `json:"about"`
		Cases []answered `json:"cases"`
	}
	require.NoError(t, json.Unmarshal(text, &table, json.RejectUnknownMembers(true)))
	for _, test := range table.Cases {
		t.Run(test.Name, func(t *testing.T) {
			for _, answer := range test.answers(t) {
				c := open(t, client.Config{URL: "http://counterd.test", Transport: answer})
				calls := or(test.Calls, "hit", "reserve", "check", "batch", "settle", "renew", "increment", "count")
				if slices.Contains(calls, "check") {
					calls = append(calls, "explain") // of this client alone
				}
				for _, call := range calls {
					got := outcomeOf(t.Context(), c, call, max(test.Hits, 1))
					assert.Equal(t, test.Outcome, got, "%s: %+v", call, answer)
				}
			}
		})
	}
}

// or returns the values, or the others if there are none.
func or[T any](values []T, others ...T) []T {
	if len(values) == 0 {
		return others
	}
	return values
}

// fakeAnswer is the transport of an answer. Without a status there is none.
type fakeAnswer struct {
	status int
	media  string
	body   string
}

func (r fakeAnswer) RoundTrip(*http.Request) (*http.Response, error) {
	if r.status == 0 {
		return nil, errors.New("the connection is lost")
	}
	header := http.Header{}
	if r.media != "" {
		header.Set("Content-Type", r.media)
	}
	return &http.Response{StatusCode: r.status, Header: header, Body: io.NopCloser(strings.NewReader(r.body))}, nil
}

// answers returns the answers of the case.
func (a answered) answers(t *testing.T) (all []fakeAnswer) {
	require.True(t, len(a.Body) == 0 || a.Body.Compact() == nil) // as counterd writes it
	body := string(a.Body)
	if a.Body.Kind() == '"' {
		require.NoError(t, json.Unmarshal(a.Body, &body))
	}
	for _, status := range or(a.Statuses, 0) {
		usual := wire.TypeProblem
		if status < 300 {
			usual = wire.TypeJSON
		}
		for _, media := range or(a.Types, usual) {
			for _, each := range or(a.Each, "EACH") {
				all = append(all, fakeAnswer{status, media, strings.NewReplacer(`"EACH"`, each, "EACH", each).Replace(body)})
			}
		}
	}
	return all
}

// outcomeOf makes a call, and names what became of it as the table does.
func outcomeOf(ctx context.Context, c *client.Client, call string, hits int) any {
	who := client.Features{"user": "42"}
	var decision wire.Decision
	var results []wire.Result
	var err error
	switch call {
	case "hit":
		decision, err = c.Hit(ctx, "api", who, 1)
	case "reserve":
		decision, err = c.Reserve(ctx, "api", who, 1, time.Minute)
	case "check":
		decision, err = c.Check(ctx, "api", who, 1)
	case "explain":
		var explained wire.Explained
		explained, err = c.Explain(ctx, "api", who, 1)
		decision = explained.Decision
	case "batch":
		results, err = c.Batch(ctx, make([]wire.BatchHit, hits))
	case "settle":
		err = c.Settle(ctx, "r", 1)
	case "renew":
		_, err = c.Renew(ctx, "r", time.Minute)
	case "increment":
		_, err = c.Increment(ctx, "api", who, 1, time.Time{})
	case "count":
		_, err = c.Count(ctx, "api", who, time.Hour, time.Time{})
	}
	switch {
	case err != nil:
		return kindOf(err)
	case call == "batch":
		var all []any
		for _, result := range results {
			switch {
			case result.Problem != nil:
				all = append(all, kindOf(&client.Error{Problem: wire.Problem{Status: result.Status}}))
			case result.Status == http.StatusServiceUnavailable:
				all = append(all, "unavailable")
			default:
				all = append(all, verdict(*result.Decision))
			}
		}
		return all
	case decision.Event == "":
		return "done"
	}
	return verdict(decision)
}

func verdict(d wire.Decision) string {
	if d.Allowed {
		return "admitted"
	}
	return "denied"
}

// kindOf names the kind of an error.
func kindOf(err error) string {
	for kind, name := range map[error]string{
		client.ErrInvalid: "invalid", client.ErrRefused: "refused", client.ErrUnknown: "unknown", client.ErrConflict: "conflict",
		client.ErrEnded: "ended", client.ErrUnavailable: "unavailable", client.ErrUnexpected: "unexpected",
	} {
		if errors.Is(err, kind) {
			return name
		}
	}
	return err.Error()
}
