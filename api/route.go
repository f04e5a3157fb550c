package api

import (
	"net/http"
	"time"

	"github.com/counterd/counterd/api/connections"
	"github.com/counterd/counterd/service"
)

// action answers a request, or returns why it does not.
type action func(*exchange) error

// route does the same for each of its requests: it admits those whose token is good for its
// class, and answers them by its action.
type route struct {
	h      *handler
	class  service.Class
	action action
}

func (o *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := o.h
	// Actions decode after they have found what is asked of them; the bound
	// holds from here on.
	x := &exchange{ResponseWriter: w, request: r, body: http.MaxBytesReader(w, r.Body, maxBody)}
	r.Body = requestBody{x}
	if h.Health.Draining() {
		// The client opens its next connection to another process, before this one is cut.
		w.Header()["Connection"] = []string{"close"}
	}
	nameAnswer(x, r)
	if h.OnRequest != nil {
		began := time.Now()
		defer func() { h.OnRequest(routeOf(r), methodOf(r), x.finalStatus(), time.Since(began)) }()
	}
	if !h.observes() {
		o.answer(x)
		return
	}
	h.observe(x)
	defer h.report(x)
	o.answer(x)
}

// answer does the action for requests that are admitted, and answers for what is not done.
func (o *route) answer(x *exchange) {
	defer func() {
		x.admission.Release()
		if fault := recover(); fault != nil {
			x.info.panicked()
			o.h.panicked(x, fault)
		}
	}()
	if err := o.act(x); err != nil {
		o.h.answerError(x, x.request, err)
	}
}

func (o *route) act(x *exchange) error {
	if err := o.admit(x); err != nil {
		return err
	}
	defer x.conn.Admit()
	return o.action(x)
}

// admit admits the request, and its connection with it. Without tokens every request is
// admitted: there the connection waits for the end of the body, since a client that never
// sends it proves nothing.
func (o *route) admit(x *exchange) (err error) {
	h, r := o.h, x.request
	if err := h.checkOrigin(r); err != nil {
		return err
	}
	if x.admission, err = h.Gate.Admit(o.class, tokenOf(r.Header)); err != nil || o.class == service.ClassPublic {
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
