// Package openapi_test holds the exchanges of the API's tests to api/openapi.yaml.
package openapi_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit/exchanges"
)

// description is api/openapi.yaml, with what exchanges have shown of it.
type description struct {
	doc    *openapi3.T
	router routers.Router

	mu    sync.Mutex
	seen  map[string]bool // operations with the statuses that were answered: hit 200
	known map[string]bool // requests and answers that are as described: the library compiles schemas for each
}

var described = sync.OnceValue(func() *description {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI())
	if err != nil {
		panic(err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		panic(err)
	}
	return &description{doc: doc, router: router, seen: map[string]bool{}, known: map[string]bool{}}
})

// check returns how an exchange is not as described.
func (d *description) check(e exchanges.Exchange) error {
	d.mu.Lock() // the library does not say that it is safe for concurrent use
	defer d.mu.Unlock()
	r := e.Request()
	isHead := r.Method == http.MethodHead // answered as GET
	if isHead {
		r.Method = http.MethodGet
	}
	route, parameters, err := d.router.FindRoute(r)
	if errors.Is(err, routers.ErrMethodNotAllowed) && strings.HasPrefix(r.URL.Path, "/v1/authorize/") {
		r.Method = http.MethodPost // OpenAPI has no methods of other names
		route, parameters, err = d.router.FindRoute(r)
	}
	switch {
	case strings.Contains(strings.ToUpper(r.URL.EscapedPath()), "%2F"):
		return d.checkRefusal(r, e, false)
	case err != nil:
		return d.checkRefusal(r, e, errors.Is(err, routers.ErrMethodNotAllowed))
	case isStandIn(route, e):
		return nil
	}
	id := route.Operation.OperationID
	note(d.seen, fmt.Sprint(id, " ", e.Status))
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{
			SkipSettingDefaults: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
			ExcludeRequestBody: !e.BodyIsWhole, ExcludeResponseBody: isHead,
		},
	}
	for name, values := range r.Header {
		if strings.Join(values, "") == "" { // as if it were not there
			delete(r.Header, name)
		}
	}
	request := fmt.Sprint(id, parameters, r.URL.RawQuery, r.Header, e.BodyIsWhole, string(e.Body))
	if e.Status < 400 && !d.known[request] {
		if err := cmp.Or(openapi3filter.ValidateRequest(r.Context(), in), checkQuery(route, r)); err != nil {
			return fmt.Errorf("what the description refuses is answered %d: %w", e.Status, err)
		}
		note(d.known, request)
	}
	same := e.AnswerHeader.Clone()
	same.Del("X-Request-Id") // of any text
	whole := fmt.Sprint(id, e.Status, same, string(e.Answer))
	if d.known[whole] {
		return nil
	}
	if err := d.checkAnswer(in, e); err != nil {
		return fmt.Errorf("%s %d: %w: %.300s", id, e.Status, err, e.Answer)
	}
	note(d.known, whole)
	return nil
}

// note adds to a set.
func note(set map[string]bool, name string) {
	if len(set) > 1<<16 { // a fuzzer never ends
		clear(set)
	}
	set[name] = true
}

// isStandIn reports whether a handler of these tests has answered in place of the page, the metrics, the profiles or
// the rate limit service: those say of which type their answers are.
func isStandIn(route *routers.Route, e exchanges.Exchange) bool {
	handedOn := strings.HasPrefix(route.Path, "/ui") || strings.HasPrefix(route.Path, "/debug/") ||
		route.Path == "/metrics" || route.Path == "/json"
	return handedOn && e.Status != http.StatusSeeOther && e.AnswerHeader.Get("Content-Type") == ""
}

// checkAnswer returns how an answer is not as its operation has it.
func (d *description) checkAnswer(in *openapi3filter.RequestValidationInput, e exchanges.Exchange) error {
	response := in.Route.Operation.Responses.Status(e.Status)
	if response == nil {
		return errors.New("the operation has no such status")
	}
	for name := range e.AnswerHeader {
		known := slices.Contains([]string{"Content-Type", "Content-Length", "Connection"}, name)
		for described := range response.Value.Headers {
			known = known || http.CanonicalHeaderKey(described) == name
		}
		if !known {
			return fmt.Errorf("the answer has no header %s", name)
		}
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: e.Status, Header: e.AnswerHeader,
		Body: io.NopCloser(bytes.NewReader(e.Answer)), Options: in.Options,
	})
}

// servedSometimes matches the paths that not each server has: without them every method is a 404.
var servedSometimes = regexp.MustCompile(`^/(json|healthcheck|metrics|ui|debug)(/|$)`)

// checkRefusal returns why the answer to a request for no operation is not a problem.
func (d *description) checkRefusal(r *http.Request, e exchanges.Exchange, isMethod bool) error {
	switch {
	case isMethod && e.Status == http.StatusNotFound && !servedSometimes.MatchString(r.URL.Path), !isMethod && e.Status == http.StatusMethodNotAllowed:
		return fmt.Errorf("the status is %d", e.Status)
	case e.Status == http.StatusMethodNotAllowed && e.AnswerHeader.Get("Allow") == "":
		return errors.New("a 405 without Allow")
	case strings.HasPrefix(r.URL.Path, "/ui/") && e.AnswerHeader.Get("Content-Type") != wire.TypeProblem:
		return nil // a page says it
	case e.Status/100 != 4:
		return fmt.Errorf("there is no such operation, but the status is %d", e.Status)
	}
	var problem any
	if err := json.Unmarshal(e.Answer, &problem); err != nil && r.Method != http.MethodHead {
		return err
	}
	return d.doc.Components.Schemas["Problem"].Value.VisitJSON(problem, openapi3.EnableJSONSchema2020())
}

// checkQuery returns which parameters of a request its operation does not take, or not twice.
func checkQuery(route *routers.Route, r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	for _, one := range slices.Concat(route.PathItem.Parameters, route.Operation.Parameters) {
		switch parameter := one.Value; {
		case parameter.In != openapi3.ParameterInQuery:
		case parameter.Schema.Value.Type.Is("object"): // it is any parameter
			return nil
		case len(query[parameter.Name]) > 1 && !parameter.Schema.Value.Type.Is("array"):
			return fmt.Errorf("the parameter %s is given twice", parameter.Name)
		default:
			delete(query, parameter.Name)
		}
	}
	if len(query) > 0 {
		return fmt.Errorf("unknown parameters: %v", query)
	}
	return nil
}

// The description is OpenAPI 3.1, and its examples are as their schemas have them.
func TestTheDescription(t *testing.T) {
	require.NoError(t, described().doc.Validate(t.Context(), openapi3.EnableSchemaPatternValidation()))
}

// Exchanges that are not as described are found.
func TestFaultsAreFound(t *testing.T) {
	alive := exchanges.Exchange{
		Method: "GET", Path: "/healthz", Host: "localhost", Status: 200,
		AnswerHeader: http.Header{"Content-Type": {wire.TypeJSON}, "X-Request-Id": {"r"}, "Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"}}, Answer: []byte(`{"status": "alive"}`),
	}
	require.NoError(t, described().check(alive))
	for fault, change := range map[string]func(*exchanges.Exchange){
		"the operation has no such status": func(e *exchanges.Exchange) { e.Status = 204 },
		"the answer has no header X-More":  func(e *exchanges.Exchange) { e.AnswerHeader.Set("X-More", "1") },
		"response body doesn't match":      func(e *exchanges.Exchange) { e.Answer = []byte(`{"status": 7}`) },
		"unknown parameters":               func(e *exchanges.Exchange) { e.RawQuery = "a=b" },
		"there is no such operation":       func(e *exchanges.Exchange) { e.Path = "/nothing" },
	} {
		faulty := alive
		faulty.AnswerHeader = alive.AnswerHeader.Clone()
		change(&faulty)
		assert.ErrorContains(t, described().check(faulty), fault)
	}
}

// Each exchange of the tests of package api is as described, and each described answer is that of an exchange.
func TestExchanges(t *testing.T) {
	name := filepath.Join(t.TempDir(), "exchanges")
	tests := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-tags", "testall", "-skip", "HoldLittleMemory$", "./api")
	tests.Dir = filepath.Join("..", "..", "..")
	tests.Env = append(os.Environ(), exchanges.Variable+"="+name)
	out, err := tests.CombinedOutput()
	require.NoError(t, err, "%s", out)
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	decoder := gob.NewDecoder(bufio.NewReader(file))
	count := 0
	for {
		var e exchanges.Exchange
		err := decoder.Decode(&e)
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		count++
		assert.NoError(t, described().check(e), "%s: %s %.200s?%.200s", e.Test, e.Method, e.Path, e.RawQuery)
	}
	t.Logf("%d exchanges", count)
	require.Greater(t, count, 1000)
	for path, item := range described().doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				assert.True(t, described().seen[operation.OperationID+" "+status], "no test has the answer %s to %s %s", status, method, path)
			}
		}
	}
}
