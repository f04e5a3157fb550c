package rls

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/counterd/counterd/internal/service"
)

// faultInJSON matches what may be shown of an error of protojson: the line and column, and a field that is unknown. The
// rest may quote values.
var faultInJSON = regexp.MustCompile(`^proto:.(?:syntax error )?\((line \d+:\d+)\)(: unknown field "\w{1,40}"$)?`)

// ServeHTTP answers a request in JSON as ShouldRateLimit does: with 200, or with 429 if it is over a limit. Its
// caller admits the request and bounds its body.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	in := &rlsv3.RateLimitRequest{}
	if errors.Is(err, service.ErrOverload) {
		http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
		return
	}
	if err == nil {
		err = protojson.Unmarshal(text, in)
	}
	if err != nil {
		reason := "Bad Request: the body is no RateLimitRequest in JSON"
		if at := faultInJSON.FindStringSubmatch(err.Error()); at != nil {
			reason += ", " + at[1] + at[2]
		}
		http.Error(w, reason, http.StatusBadRequest)
		return
	}
	c := call{server: s, began: time.Now()}
	defer c.report(r.Context())
	response, err := s.decide(r.Context(), in, &c)
	if err != nil {
		http.Error(w, status.Convert(err).Message(), httpStatusOf(err))
		return
	}
	answer, err := protojson.Marshal(response)
	if err != nil { // the store or the configuration has no text that is not UTF-8
		http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if response.OverallCode == rlsv3.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(answer) // only a client that has left misses it
}

// httpStatusOf returns the status of an error.
func httpStatusOf(err error) int {
	if status.Code(err) == codes.InvalidArgument {
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}
