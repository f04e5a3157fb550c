// Command llm limits the tokens of a language model: a call reserves its estimate, and settles what it used.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/examples/internal/play"
)

//go:embed rules.yaml
var rules string

const (
	bytesPerToken = 4               // rather too few: an estimate that is too high is given back
	maxAnswer     = 2000            // tokens, which the model is called with
	maxCall       = 5 * time.Minute // afterwards the estimate counts
	maxSettle     = 5 * time.Second
)

// model is a language model. It writes its answer, and returns how many tokens the call used: what it has
// used until then if it fails.
type model func(ctx context.Context, w http.ResponseWriter, r *http.Request) (tokens int64, err error)

// newChat returns a handler that limits a model. The middleware holds the lease of a call, and renews it, until the
// handler returns.
func newChat(limiter *counterd.Limiter, ask model) http.Handler {
	return limiter.Middleware("chat", counterd.CostOf(estimate), counterd.ReserveFor(maxCall))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var used int64
			defer func() { settle(r.Context(), limiter, used) }() // also if the model panics
			var err error
			if used, err = ask(r.Context(), w, r); err != nil && used == 0 {
				http.Error(w, "the model failed", http.StatusBadGateway)
			}
		}))
}

// estimate is what a call may cost: the middleware reserves it before the call.
func estimate(r *http.Request) int64 {
	return max(r.ContentLength, 0)/bytesPerToken + maxAnswer
}

// settle replaces the estimate by what was used. A client that has left ends the context of its request.
func settle(ctx context.Context, limiter *counterd.Limiter, used int64) {
	decision, _ := counterd.DecisionOf(ctx)
	if decision.Reservation == "" {
		return // the store failed, and the rules admitted the call all the same
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxSettle)
	defer cancel()
	if err := limiter.Settle(ctx, decision.Reservation, used); err != nil {
		slog.Warn("a call counts by its estimate", "error", err)
	}
}

// toy is a model that uses as many tokens as it is asked to, or none and fails. It answers in two parts, and waits
// for wait between them.
func toy(wait <-chan struct{}) model {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request) (int64, error) {
		tokens, err := strconv.ParseInt(r.FormValue("tokens"), 10, 64)
		if err != nil {
			return 0, errors.New("the model is overloaded")
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return 0, err
		}
		fmt.Fprintln(w, "Once upon a time")
		if r.FormValue("wait") != "" {
			w.(http.Flusher).Flush()
			select {
			case <-wait:
			case <-ctx.Done():
				return tokens / 2, ctx.Err()
			}
		}
		fmt.Fprintln(w, "there was a limit.")
		return tokens, nil
	}
}

func main() { play.Main(run) }
