package api_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/go-json-experiment/json"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
)

// description is api/openapi.yaml, to which each exchange of these tests is held.
type description struct {
	doc    *openapi3.T
	router routers.Router

	mu     sync.Mutex
	seen   map[string]bool // operations with the statuses that were answered: hit 200
	known  map[string]bool // requests and answers that are as described: the library compiles schemas for each
	faults []string        // exchanges that are not as described
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

// newDescribed returns api.NewHandler, whose exchanges are held to the description.
func newDescribed(config api.ServerConfig) http.Handler {
	return describedHandler{api.NewServerHandler(config)}
}

// newDescribedAdmin returns api.NewAdminHandler, whose exchanges are held to the description.
func newDescribedAdmin(config api.ServerConfig) http.Handler {
	return describedHandler{api.NewAdminHandler(config)}
}

// bare returns the handler itself, for tests that measure how much memory it takes.
func bare(h http.Handler) http.Handler { return h.(describedHandler).Handler }

type describedHandler struct{ http.Handler }

func (h describedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, direct := w.(*httptest.ResponseRecorder); !direct && (r.ContentLength < 0 || r.ContentLength > 1<<20) {
		h.Handler.ServeHTTP(w, r) // a body that is too large closes the connection, if nothing is around the writer
		return
	}
	asked := r.Clone(context.WithoutCancel(r.Context())) // the handler may forget the request
	body := &readBody{ReadCloser: r.Body}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = body
	}
	answer := &answerOf{ResponseWriter: w}
	h.Handler.ServeHTTP(answer, r)
	if err := described().check(asked, body, answer); err != nil {
		described().fault(asked, err)
	}
}

// readBody is a body of which the handler reads a part.
type readBody struct {
	io.ReadCloser
	text  bytes.Buffer
	whole bool
}

func (b *readBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.text.Write(p[:n])
	b.whole = b.whole || err == io.EOF
	return n, err
}

// answerOf is an answer, with what was written.
type answerOf struct {
	http.ResponseWriter
	status int
	header http.Header // when it began
	text   bytes.Buffer
}

func (a *answerOf) WriteHeader(status int) {
	if a.status == 0 {
		a.status, a.header = status, a.Header().Clone()
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answerOf) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status, a.header = http.StatusOK, a.Header().Clone()
	}
	a.text.Write(p)
	return a.ResponseWriter.Write(p)
}

func (a *answerOf) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// check returns how an exchange is not as described.
func (d *description) check(r *http.Request, body *readBody, answer *answerOf) error {
	d.mu.Lock() // the library does not say that it is safe for concurrent use
	defer d.mu.Unlock()
	if answer.status == 0 {
		answer.status, answer.header = http.StatusOK, answer.Header().Clone()
	}
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
		return d.checkRefusal(r, answer, false)
	case err != nil:
		return d.checkRefusal(r, answer, errors.Is(err, routers.ErrMethodNotAllowed))
	case isStandIn(route, answer):
		return nil
	}
	id := route.Operation.OperationID
	note(d.seen, fmt.Sprint(id, " ", answer.status))
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{
			SkipSettingDefaults: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
			ExcludeRequestBody: !body.whole, ExcludeResponseBody: isHead,
		},
	}
	for name, values := range r.Header {
		if strings.Join(values, "") == "" { // as if it were not there
			delete(r.Header, name)
		}
	}
	request := fmt.Sprint(id, parameters, r.URL.RawQuery, r.Header, body.whole, &body.text)
	if answer.status < 400 && !d.known[request] {
		r.Body = io.NopCloser(&body.text)
		if err := cmp.Or(openapi3filter.ValidateRequest(r.Context(), in), checkQuery(route, r)); err != nil {
			return fmt.Errorf("what the description refuses is answered %d: %w", answer.status, err)
		}
		note(d.known, request)
	}
	same := answer.header.Clone()
	same.Del("X-Request-Id") // of any text
	whole := fmt.Sprint(id, answer.status, same, &answer.text)
	if d.known[whole] {
		return nil
	}
	if err := d.checkAnswer(in, answer); err != nil {
		return fmt.Errorf("%s %d: %w: %.300s", id, answer.status, err, &answer.text)
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
func isStandIn(route *routers.Route, answer *answerOf) bool {
	handedOn := strings.HasPrefix(route.Path, "/ui") || strings.HasPrefix(route.Path, "/debug/") ||
		route.Path == "/metrics" || route.Path == "/json"
	return handedOn && answer.status != http.StatusSeeOther && answer.header.Get("Content-Type") == ""
}

// checkAnswer returns how an answer is not as its operation has it.
func (d *description) checkAnswer(in *openapi3filter.RequestValidationInput, answer *answerOf) error {
	response := in.Route.Operation.Responses.Status(answer.status)
	if response == nil {
		return errors.New("the operation has no such status")
	}
	for name := range answer.header {
		known := slices.Contains([]string{"Content-Type", "Content-Length", "Connection"}, name)
		for described := range response.Value.Headers {
			known = known || http.CanonicalHeaderKey(described) == name
		}
		if !known {
			return fmt.Errorf("the answer has no header %s", name)
		}
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: answer.status, Header: answer.header,
		Body: io.NopCloser(bytes.NewReader(answer.text.Bytes())), Options: in.Options,
	})
}

// servedSometimes matches the paths that not each server has: without them every method is a 404.
var servedSometimes = regexp.MustCompile(`^/(json|healthcheck|metrics|ui|debug)(/|$)`)

// checkRefusal returns why the answer to a request for no operation is not a problem.
func (d *description) checkRefusal(r *http.Request, answer *answerOf, isMethod bool) error {
	switch {
	case isMethod && answer.status == http.StatusNotFound && !servedSometimes.MatchString(r.URL.Path), !isMethod && answer.status == http.StatusMethodNotAllowed:
		return fmt.Errorf("the status is %d", answer.status)
	case answer.status == http.StatusMethodNotAllowed && answer.header.Get("Allow") == "":
		return errors.New("a 405 without Allow")
	case strings.HasPrefix(r.URL.Path, "/ui/") && answer.header.Get("Content-Type") != wire.TypeProblem:
		return nil // a page says it
	case answer.status/100 != 4:
		return fmt.Errorf("there is no such operation, but the status is %d", answer.status)
	}
	var problem any
	if err := json.Unmarshal(answer.text.Bytes(), &problem); err != nil && r.Method != http.MethodHead {
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

// fault notes a fault of an exchange, and the test that made it.
func (d *description) fault(r *http.Request, err error) {
	test := "a server's goroutine"
	callers := make([]uintptr, 100)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if _, name, found := strings.Cut(frame.Function, "api_test.Test"); found {
			test = "Test" + name
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if text := fmt.Sprintf("%s: %s %.200s: %v", test, r.Method, r.URL, err); !slices.Contains(d.faults, text) {
		d.faults = append(d.faults, text)
	}
}

// found returns the faults so far.
func (d *description) found() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.faults)
}

// suite is the tests, with what their exchanges show of the description.
type suite struct{ *testing.M }

func (s suite) Run() int {
	d := described()
	code := s.M.Run()
	some := ""
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		some += flag.Lookup(name).Value.String()
	}
	if code == 0 && some == "" { // all tests have run
		for _, answer := range d.answers() {
			if !d.seen[answer] {
				d.faults = append(d.faults, "no test has the answer "+answer)
			}
		}
	}
	for _, fault := range d.faults[:min(len(d.faults), 200)] {
		fmt.Fprintln(os.Stderr, "api/openapi.yaml:", fault)
	}
	if len(d.faults) > 0 {
		fmt.Fprintf(os.Stderr, "api/openapi.yaml: %d exchanges are not as described\n", len(d.faults))
		return 1
	}
	return code
}

// answers returns all answers that the description has, as those seen are written.
func (d *description) answers() (all []string) {
	for _, path := range d.doc.Paths.Map() {
		for _, operation := range path.Operations() {
			for status := range operation.Responses.Map() {
				all = append(all, operation.OperationID+" "+status)
			}
		}
	}
	slices.Sort(all)
	return all
}
