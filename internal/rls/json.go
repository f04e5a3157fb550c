package rls

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"regexp"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/service"
)

// maxJSON bounds the bytes of a request in JSON.
const maxJSON = 64 << 10

// faultInJSON matches what may be shown of an error of protojson: the line and column, and a field that is unknown. The
// rest may quote values.
var faultInJSON = regexp.MustCompile(`^proto:.(?:syntax error )?\((line \d+:\d+)\)(: unknown field "\w{1,40}"$)?`)

// ServeHTTP answers a request in JSON as ShouldRateLimit does: with 200, or with 429 if it is over a limit. Its
// caller admits the request and bounds its body.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != wire.TypeJSON {
		http.Error(w, "Unsupported Media Type: send Content-Type: application/json", http.StatusUnsupportedMediaType)
		return
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxJSON+1))
	in := &rlsv3.RateLimitRequest{}
	switch {
	case errors.Is(err, service.ErrOverload):
		http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
		return
	case len(text) > maxJSON:
		http.Error(w, "Content Too Large: the body has at most 64 KiB", http.StatusRequestEntityTooLarge)
		return
	case err == nil && hasTooMany(text):
		http.Error(w, tooManyDescriptors, http.StatusBadRequest)
		return
	case err == nil:
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
	c := s.newCall(in.Domain)
	defer c.report(r.Context())
	response, err := s.decide(r.Context(), in, c)
	if err != nil {
		http.Error(w, status.Convert(err).Message(), httpStatusOf(err))
		return
	}
	answer, err := protojson.Marshal(response)
	if err == nil {
		err = httpdecision.HoldAnswer(w, len(answer))
	}
	if err != nil { // too many clients do not read their answers
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

// hasTooMany reports whether a request has more descriptors than it may, without decoding them. It reads no further than
// one more, or than a fault.
func hasTooMany(text []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	if token, err := d.ReadToken(); err != nil || token.Kind() != jsontext.KindBeginObject {
		return false
	}
	for d.PeekKind() == jsontext.KindString {
		name, err := d.ReadToken()
		if err != nil {
			return false
		}
		if name.String() != "descriptors" || d.PeekKind() != jsontext.KindBeginArray {
			if d.SkipValue() != nil {
				return false
			}
			continue
		}
		_, err = d.ReadToken()
		for n := 0; err == nil && d.PeekKind() != jsontext.KindEndArray; n++ {
			if n == limiter.MaxHits {
				return true
			}
			err = d.SkipValue()
		}
		if err != nil {
			return false
		}
		if _, err := d.ReadToken(); err != nil {
			return false
		}
	}
	return false
}

// httpStatusOf returns the status of an error.
func httpStatusOf(err error) int {
	if status.Code(err) == codes.InvalidArgument {
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}
