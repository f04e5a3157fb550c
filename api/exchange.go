package api

import (
	"github.com/counterd/counterd/internal/httpdecision"

	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/counterd/counterd/internal/connections"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/telemetry"
)

// route is a way through the handler. Every request takes one: it is admitted, answered by the
// action, and reported.
type route struct {
	h      *handler
	class  service.Class
	action action
}

// action answers a request, or returns why it does not.
type action func(*exchange) error

// exchange is a request and the answer to it. The access log and the trace say of it what is
// here and nothing of the client's choice: the method and the route are the contract's, the event
// is one of the rules, and there is no feature.
type exchange struct {
	http.ResponseWriter
	request   *http.Request
	body      io.ReadCloser           // at most maxBody of the request's
	conn      *connections.Connection // admitted at the body's end; nil: there is none to admit
	admission service.Admission
	answer    int64 // bytes of the admission that are held for the answer
	status    int   // of the answer; 0: it has not begun
	bytes     int64 // of the answer

	began   time.Time
	method  string // or Other
	route   string // its template, or Other
	event   string
	verdict string
	broken  bool          // it panicked
	endSpan telemetry.End // nil: it is not traced
}

func (o *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := o.h
	// The action decodes the body once it knows what is asked for: the bound holds from here on.
	x := &exchange{
		ResponseWriter: w, request: r, body: http.MaxBytesReader(w, r.Body, maxBody),
		began: time.Now(), method: httpdecision.MethodOf(r), route: routeOf(r),
	}
	r.Body = requestBody{x}
	// A draining process has the client open its next connection to another one, before this one is cut.
	leavesBody := x.leavesBody()
	if h.Health.Drain() || leavesBody {
		w.Header()["Connection"] = []string{"close"}
	}
	if leavesBody {
		defer x.boundBody(leftBodyTimeout)
	}
	if h.StartSpan != nil {
		x.trace(h)
	}
	if h.AccessLog || len(r.Header[httpdecision.HeaderRequestID]) > 0 {
		httpdecision.RequestID(x, r)
	}
	defer h.report(x)
	defer func() {
		if fault := recover(); fault != nil {
			x.broken = true
			h.panicked(x, fault)
		}
	}()
	defer x.admission.Release()
	if err := o.act(x); err != nil {
		o.answerError(x, err)
	}
}

// answerError writes the problem document of an error.
func (o *route) answerError(x *exchange, err error) {
	if refusal, ok := errors.AsType[*service.Refusal](err); ok {
		x.Header().Set("WWW-Authenticate", challenge(refusal, x.route))
		if isOfPage(x.route) && takesHTML(x.request) {
			o.h.refuseHTML(x, refusal)
			return
		}
	}
	o.h.AnswerError(x, x.request, err)
}

// refuseHTML answers a browser that the page refuses.
func (h *handler) refuseHTML(x *exchange, refusal *service.Refusal) {
	problem := httpdecision.ProblemOf(refusal, x.request.Method)
	httpdecision.RequestID(x, x.request)
	h.LogError(x, x.request, problem.Status, refusal)
	view := browserView{Title: problem.Title, Problem: problem}
	if refusal.Reason == service.TokenForbidden {
		view.Class = refusal.Class.String()
	}
	h.replyHTML(x, problem.Status, "refusal", view)
}

// leavesBody reports whether the route takes no body and the request has one, at least by its headers: a proxy may
// repeat those of its client, and send no body. On a connection that goes on net/http would wait for the body before it
// answers, and take the next request for it.
func (x *exchange) leavesBody() bool {
	r := x.request
	return r.ContentLength != 0 && r.ProtoMajor == 1 && (r.Method != http.MethodPost || x.route == authorizeRoute)
}

// cutBody ends the connection of a request that is refused, without the rest of its body: a body that does not come would
// hold a place for a connection.
func (x *exchange) cutBody() {
	if x.request.ContentLength == 0 || x.request.ProtoMajor != 1 {
		return
	}
	x.Header()["Connection"] = []string{"close"}
	x.boundBody(0)
}

// leftBodyTimeout is how long a connection goes on after the answer to a request whose body nobody reads. net/http waits as
// long before it closes a connection whose client still sends: else the system would reset it, and the client could lose
// the answer.
const leftBodyTimeout = 500 * time.Millisecond

// boundBody ends reading the body after a time. If the deadline cannot be set, the server's read timeout holds.
func (x *exchange) boundBody(timeout time.Duration) {
	_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(time.Now().Add(timeout))
}

// act does the action for a request that is admitted. The connection is a client's at the latest
// when it is answered.
func (o *route) act(x *exchange) error {
	if err := o.admit(x); err != nil {
		return err
	}
	defer x.conn.Admit()
	if o.class == service.ClassReset || o.class == service.ClassOverride {
		x.request = x.request.WithContext(service.WithAudit(x.request.Context(), x.admission.Client, o.h.LogOf(x, x.request)))
	}
	return o.action(x)
}

// report tells the trace, the access log and the metrics of the request.
func (h *handler) report(x *exchange) {
	status, took := x.finalStatus(), time.Since(x.began)
	if x.endSpan != nil {
		failed, attrs := x.describe(status)
		x.endSpan(failed, attrs...)
	}
	if h.AccessLog {
		h.logAccess(x, status, took)
	}
	if h.OnRequest != nil {
		h.OnRequest(x.route, x.method, status, took)
	}
}

func (h *handler) logAccess(x *exchange, status int, took time.Duration) {
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("method", x.method), slog.String("route", x.route))
	if x.event != "" {
		attrs = append(attrs, slog.String("event", x.event))
	}
	attrs = append(attrs, slog.Int("status", status))
	if x.verdict != "" {
		attrs = append(attrs, slog.String("verdict", x.verdict))
	}
	if client := x.admission.Client; client != "" {
		attrs = append(attrs, slog.String("client", client))
	}
	attrs = append(attrs, slog.Duration("duration", took), slog.Int64("bytes", x.bytes))
	h.LogOf(x, x.request).LogAttrs(x.request.Context(), slog.LevelInfo, "request", attrs...)
}

// WriteHeader begins the answer.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= http.StatusOK {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	x.status = x.finalStatus()
	n, err := x.ResponseWriter.Write(p)
	x.bytes += int64(n)
	return n, err
}

// HoldAnswer takes memory for an answer of that many bytes, in place of what was taken for it before, or returns
// ErrOverload. An answer stays in memory until its client has read it.
func (x *exchange) HoldAnswer(bytes int64) error {
	if bytes <= x.answer {
		return nil
	}
	if err := x.admission.Hold(bytes - x.answer); err != nil {
		return err
	}
	x.answer = bytes
	return nil
}

// HeldAnswer returns how many bytes HoldAnswer has taken.
func (x *exchange) HeldAnswer() int64 { return x.answer }

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// finalStatus returns the status of the answer. One that sets none has 200.
func (x *exchange) finalStatus() int { return cmp.Or(x.status, http.StatusOK) }

// requestBody is the body of an exchange. It holds memory for what is read, and its end
// admits the connection.
type requestBody struct{ *exchange }

func (b requestBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err == io.EOF {
		b.conn.Admit()
	}
	if err := b.admission.Hold(int64(n)); err != nil {
		return 0, err
	}
	return n, err
}

func (b requestBody) Close() error { return b.body.Close() }

// seen is the class of all routes of the page, beside their own.
var seen = []service.Class{service.ClassSee}

// admit admits the request, and its connection with it. Without tokens every request is
// admitted: there the connection waits for the end of the body, since a client that never
// sends it proves nothing.
func (o *route) admit(x *exchange) (err error) {
	h, r := o.h, x.request
	if err := h.checkOrigin(x); err != nil {
		return err
	}
	var others []service.Class
	if isOfPage(x.route) { // a form that fails is answered with what the page shows
		others = seen
	}
	x.admission, err = h.Gate.Admit(o.class, x.token(), others...)
	if errors.Is(err, service.ErrOverload) {
		x.cutBody()
	}
	if err != nil || o.class == service.ClassPublic {
		return err
	}
	if err := x.admission.Hold(headerBytes(r)); err != nil {
		return err
	}
	x.conn = connections.Of(r)
	if h.Gate.NeedsTokens() || r.ContentLength == 0 || r.ProtoMajor == 2 {
		x.conn.Admit()
	}
	return nil
}

// checkOrigin refuses the requests of web pages where only programs of this machine are
// served: of a page whose name leads here (DNS rebinding), by the name, and of any other page,
// by what its browser says of it. Below /ui/ it refuses those of other pages always: a browser sends the password that
// it has for the page with them.
//
// Reverse proxies ask authorize with the host and the headers of their clients. So one that
// the rules trust may send any host, and what browsers say of the client's page does not
// matter there.
func (h *handler) checkOrigin(x *exchange) error {
	r, authorizes := x.request, x.route == authorizeRoute
	if h.LoopbackOnly && !isLocalName(r.Host) && !(authorizes && h.isProxy(r)) {
		return errForeignHost
	}
	if (h.LoopbackOnly && !authorizes || isOfPage(x.route)) && h.origins.Check(r) != nil {
		return errForeignPage
	}
	return nil
}

// isProxy reports whether a proxy that the rules trust makes the request.
func (h *handler) isProxy(r *http.Request) bool {
	peer, ok := httpdecision.ParseHop(r.RemoteAddr)
	return ok && h.Service.Rules().TrustedProxies.Contains(peer)
}

// isLocalName reports whether no web page from elsewhere can have the host of a URL: it is an
// address, a name of this machine, or one without a dot, which only a local network resolves.
// No browser leaves it out.
func isLocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost")
}

// tokenHeader is the header of a token that is for counterd alone.
const tokenHeader = "Counterd-Token"

// token returns the token of the request.
func (x *exchange) token() service.Token {
	if isOfPage(x.route) {
		return pageToken(x.request)
	}
	return tokenOf(x.request.Header)
}

// isOfPage reports whether the route is one of the page, for browsers.
func isOfPage(route string) bool { return strings.HasPrefix(route, pagePath) }

// pageToken returns the token of a request for the page: a browser has it as the password of HTTP's Basic scheme.
func pageToken(r *http.Request) service.Token {
	token := tokenOf(r.Header)
	if _, password, _ := r.BasicAuth(); password != "" && !token.Given {
		return service.Token{Text: password, Given: true}
	}
	return token
}

// TokenOf returns the text of the token of a request for the page that was let in; empty: none was needed.
func TokenOf(r *http.Request) string { return pageToken(r).Text }

// tokenOf returns the token of a request.
func tokenOf(header http.Header) service.Token {
	return service.TokenOf(header[tokenHeader], header["Authorization"])
}

// challenge returns the WWW-Authenticate of a refusal on a route, by RFC 6750; of one on the page that lacks a token
// by RFC 7617: a browser then asks for it.
func challenge(refusal *service.Refusal, route string) string {
	if isOfPage(route) && refusal.Reason != service.TokenForbidden {
		return `Basic realm="counterd"`
	}
	const realm = `Bearer realm="counterd"`
	switch refusal.Reason {
	case service.TokenUnknown:
		return realm + `, error="invalid_token"`
	case service.TokenForbidden:
		return fmt.Sprintf(`%s, error="insufficient_scope", scope="%s"`, realm, refusal.Class)
	}
	return realm
}

// The errors of the handler itself.
var (
	errNoRoute = &httpdecision.StatusError{
		Text: "api: no such route", Status: http.StatusNotFound,
		Detail: "There is no such route: GET / lists those there are.",
	}
	errForeignHost = &httpdecision.StatusError{
		Text: "api: the request is for another host", Status: http.StatusMisdirectedRequest,
		Detail: "Without tokens counterd answers to an IP address, localhost or a name without a dot only: under another name a web page could call it. Call it by http://127.0.0.1 and its port, or start it with -tokens FILE, or with -tokens none to answer to every name.",
	}
	errForeignPage = &httpdecision.StatusError{
		Text: "api: the request is a foreign web page's", Status: http.StatusForbidden,
		Detail: "A web page of another origin has made this request. counterd answers pages of its own origin only: a proxy can serve both from one origin.",
	}
	errMediaType = &httpdecision.StatusError{
		Text: "api: unsupported media type", Status: http.StatusUnsupportedMediaType,
		Detail: "The body is JSON in UTF-8, not compressed: Content-Type: application/json.",
	}
	errFields = &httpdecision.StatusError{
		Text: "api: too many header fields", Status: http.StatusRequestHeaderFieldsTooLarge,
		Detail: fmt.Sprintf("The request has more than %d header fields.", maxFields),
	}
)

// errMethod returns the error of a request whose method its route does not take.
func errMethod(allowed string) error {
	return &httpdecision.StatusError{
		Text: "api: method not allowed", Status: http.StatusMethodNotAllowed,
		Detail: "The route takes " + allowed + " only.",
	}
}

// headerBytes returns about how much memory the text of a request's headers takes.
func headerBytes(r *http.Request) (bytes int64) {
	for name, values := range r.Header {
		bytes += int64(len(name))
		for _, value := range values {
			bytes += int64(len(value))
		}
	}
	return bytes + int64(len(r.RequestURI)+len(r.Host))
}

// tooManyFields reports whether a request has more header fields than it may.
func tooManyFields(r *http.Request) bool {
	fields := 0
	for _, values := range r.Header {
		fields += len(values)
	}
	return fields > maxFields
}

// strangerTimeout bounds how long a stranger may take for an answer.
const strangerTimeout = 5 * time.Second

// forgotten is the URL of requests that have been handled. It is not written to.
var forgotten url.URL

// forget frees the headers of a request that came over a Listener and has been handled.
// net/http keeps the request for as long as its client takes to read the answer. A stranger
// has to be quick about that.
func forget(w http.ResponseWriter, r *http.Request) {
	c := connections.Of(r)
	if c == nil {
		return // the caller of the handler may still read the request
	}
	r.Header, r.URL, r.RequestURI, r.Host = nil, &forgotten, "", ""
	if c.IsStranger() {
		// Where the deadline cannot be set, that of the server holds.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(strangerTimeout))
	}
}
