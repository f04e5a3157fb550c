package bench

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"
)

// nothingHit is the body of a hit.
type nothingHit struct {
	Features map[string]string `json:"features"`
	Cost     *int64            `json:"cost"`
}

// nothingDecision is the answer.
type nothingDecision struct {
	Allowed    bool           `json:"allowed"`
	Event      string         `json:"event"`
	At         time.Time      `json:"at"`
	RetryAfter *int64         `json:"retry_after"`
	Limits     []nothingLimit `json:"limits"`
}

type nothingLimit struct {
	Name      string `json:"name"`
	Feature   string `json:"feature"`
	Limit     int64  `json:"limit"`
	Window    string `json:"window"`
	Count     int64  `json:"count"`
	Remaining int64  `json:"remaining"`
	Reset     *int64 `json:"reset"`
	Allowed   bool   `json:"allowed"`
}

// nothingLimits are those of webRates.
var nothingLimits = []struct {
	name, window string
	n, seconds   int64
}{
	{"ip-1000000-per-1s", "1s", 1_000_000, 1},
	{"ip-1000000-per-1m", "1m", 1_000_000, 60},
	{"ip-1000000-per-1h", "1h", 1_000_000, 3600},
	{"ip-1000000-per-24h", "24h", 1_000_000, 86400},
}

// NewNothing returns a handler that answers hits as counterd answers a hit far from its four
// limits, and counts nothing: plain Go with gorilla/mux and encoding/json, neither tuned nor
// wasteful.
func NewNothing() http.Handler {
	router := mux.NewRouter()
	router.HandleFunc("/v1/events/{event}/hit", hitNothing).Methods(http.MethodPost)
	router.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	return router
}

func hitNothing(w http.ResponseWriter, r *http.Request) {
	var hit nothingHit
	if err := json.NewDecoder(r.Body).Decode(&hit); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	zero := int64(0)
	answer := nothingDecision{
		Allowed: true, Event: mux.Vars(r)["event"], At: time.Now().UTC().Truncate(time.Second), RetryAfter: &zero,
		Limits: make([]nothingLimit, 0, len(nothingLimits)),
	}
	var policies, states strings.Builder
	for i, limit := range nothingLimits {
		answer.Limits = append(answer.Limits, nothingLimit{
			Name: limit.name, Feature: "ip:" + hit.Features["ip"], Limit: limit.n, Window: limit.window,
			Count: 1, Remaining: limit.n - 1, Reset: &zero, Allowed: true,
		})
		if i > 0 {
			policies.WriteString(", ")
			states.WriteString(", ")
		}
		policies.WriteString(`"` + limit.name + `";q=` + strconv.FormatInt(limit.n, 10) + ";w=" + strconv.FormatInt(limit.seconds, 10))
		states.WriteString(`"` + limit.name + `";r=` + strconv.FormatInt(limit.n-1, 10))
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("RateLimit-Policy", policies.String())
	header.Set("RateLimit", states.String())
	// It fails only if the client has left.
	_ = json.NewEncoder(w).Encode(answer)
}

// ServeNothing serves NewNothing on the address until the context ends.
func ServeNothing(ctx context.Context, addr string) error {
	server := &http.Server{Addr: addr, Handler: NewNothing(), ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
