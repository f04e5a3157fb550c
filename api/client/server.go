package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

const (
	// maxAnswer bounds the answer that is read, far above the longest history. That to a batch of 1,000 hits may have 64 KiB
	// for each.
	maxAnswer = 64 << 20
	// maxTopAnswer bounds the answer of Top: 4 KiB for each of MaxTop features.
	maxTopAnswer = 4 << 20
	// maxKept bounds the memory, in bytes, that is kept of an answer for later ones.
	maxKept = 1 << 20
	// maxHeader bounds the header of an answer.
	maxHeader = 64 << 10
)

// batchPath is that of batches.
var batchPath = []string{"v1", "batch"}

// server is what exchanges are made with.
type server struct {
	base  *url.URL
	http  *http.Client
	token func() (string, error) // nil: requests carry none
	most  int64                  // bytes of an answer
}

// checkName returns an ErrInvalid for what is no name of an event: it could lead to another route.
func checkName(event string) error {
	if !events.ValidName(event) {
		return fmt.Errorf("%w: the event's name is 1 to 64 of a-z, 0-9, _, . and -, and begins with a letter", ErrInvalid)
	}
	return nil
}

// event returns the URL of a route on an event.
func (s server) event(event, route string) (*url.URL, error) {
	if err := checkName(event); err != nil {
		return nil, err
	}
	to := s.base.JoinPath("v1", "events", event)
	if route != "" {
		to = to.JoinPath(route)
	}
	return to, nil
}

// call makes one exchange: in, if not nil, is the body, and the answer goes to
// out, if not nil.
func (s server) call(ctx context.Context, method string, to *url.URL, query url.Values, in, out any) error {
	answer, err := s.exchange(ctx, method, to, query, in)
	if err != nil {
		return err
	}
	defer answer.free()
	return answer.decode(out)
}

// callOn makes one exchange on a route of an event.
func (s server) callOn(ctx context.Context, event, method, route string, query url.Values, in, out any) error {
	to, err := s.event(event, route)
	if err != nil {
		return err
	}
	return s.call(ctx, method, to, query, in, out)
}

// exchange makes one exchange, whatever the status of its answer, which the caller frees. A body that is a jsontext.Value
// is sent as it is.
func (s server) exchange(ctx context.Context, method string, to *url.URL, query url.Values, in any) (answer, error) {
	var body io.Reader
	if in != nil {
		data, isJSON := in.(jsontext.Value)
		if !isJSON {
			var err error
			if data, err = json.Marshal(in); err != nil {
				return answer{}, fmt.Errorf("%w: %w", ErrInvalid, err)
			}
		}
		body = bytes.NewReader(data)
	}
	to.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, to.String(), body)
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if in != nil {
		request.Header.Set("Content-Type", wire.TypeJSON)
	}
	if err := s.authorize(request); err != nil {
		return answer{}, err
	}
	response, err := s.http.Do(request)
	if err != nil {
		// The URL in net/http's error holds features.
		if fault, ok := errors.AsType[*url.Error](err); ok {
			err = fault.Err
		}
		return answer{}, s.unavailable(ctx, method, err)
	}
	defer response.Body.Close()
	a := answer{response, buffers.Get().(*bytes.Buffer)}
	switch read, err := a.body.ReadFrom(io.LimitReader(response.Body, s.most+1)); {
	case err != nil:
		a.free()
		return answer{}, s.unavailable(ctx, method, err)
	case read > s.most:
		a.free()
		return answer{}, fmt.Errorf("%w: %s %s: longer than %d bytes", ErrUnexpected, method, s.base.Host, s.most)
	}
	return a, nil
}

// unavailable returns the error of an exchange without an answer: the fault, or the end of the context and its cause.
func (s server) unavailable(ctx context.Context, method string, fault error) error {
	if end := ctx.Err(); end != nil {
		fault = end
		if cause := context.Cause(ctx); cause != end {
			fault = fmt.Errorf("%w: %w", end, cause)
		}
	}
	if !isPublic(fault) {
		fault = withheld{fault}
	}
	return fmt.Errorf("%w: %s %s: %w", ErrUnavailable, method, s.base.Host, fault)
}

// isPublic reports whether the text of a fault holds nothing of what was sent.
func isPublic(fault error) bool {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, http.ErrSchemeMismatch} {
		if errors.Is(fault, known) {
			return true
		}
	}
	_, ofTLS := errors.AsType[*tls.CertificateVerificationError](fault)
	_, ofNet := errors.AsType[net.Error](fault)
	return ofTLS || ofNet
}

// withheld is a fault whose text may quote the request, features too, as a server has sent it back.
type withheld struct{ fault error }

func (w withheld) Error() string { return fmt.Sprintf("the exchange failed (%T)", w.fault) }

func (w withheld) Unwrap() error { return w.fault }

// hit returns the decision of a hit that is a request, with that body.
func (s server) hit(ctx context.Context, event string, hit any) (decision wire.Decision, err error) {
	to, err := s.event(event, "hit")
	if err != nil {
		return decision, err
	}
	answer, err := s.exchange(ctx, http.MethodPost, to, nil, hit)
	if err != nil {
		return decision, err
	}
	defer answer.free()
	if denial, denied := answer.denial(); denied {
		return denial, nil
	}
	if err = answer.decode(&decision); err == nil && !decision.Allowed {
		err = answer.unexpected()
	}
	return decision, err
}

// authorize adds the token to the request.
func (s server) authorize(request *http.Request) error {
	token, err := readToken(s.token)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

var errToken = errors.New("the token is empty, or contains white space, control or non-ASCII characters: " +
	"trim what was read, such as a newline at its end")

// readToken returns a token that a header can carry. If read is nil, there is no token, and readToken returns "".
func readToken(read func() (string, error)) (string, error) {
	if read == nil {
		return "", nil
	}
	token, err := read()
	if err != nil {
		return "", fmt.Errorf("no token: %w", err)
	}
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errToken
	}
	return token, nil
}
