package page

import (
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/counterd/counterd/events"
)

// maxForm bounds the body of a form, in bytes.
const maxForm = 16 << 10

// change is a form of the feature page that changes a counter.
type change struct {
	Text  string // the counter
	Query string // of the counter's page
}

// posted returns the fields of a form that changes a counter, and the query of the counter's page. The query is one
// field, encoded: of a value in a field of its own a browser would change the line ends. If the form is faulty, posted
// answers the request, and ok is false.
func (p *pages) posted(w http.ResponseWriter, r *http.Request) (fields, query url.Values, ok bool) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/x-www-form-urlencoded" {
		p.refuse(w, r, http.StatusUnsupportedMediaType, "A form is wanted: Content-Type: application/x-www-form-urlencoded.")
		return nil, nil, false
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			p.refuse(w, r, http.StatusRequestEntityTooLarge, "The form is larger than 16 KiB.")
		} else {
			p.refuse(w, r, http.StatusBadRequest, "The form cannot be read.")
		}
		return nil, nil, false
	}
	asked, err := url.ParseQuery(r.PostForm.Get("of"))
	if err != nil || len(asked) == 0 {
		p.refuse(w, r, http.StatusBadRequest, "The form names no counter.")
		return nil, nil, false
	}
	return r.PostForm, searched(asked), true
}

// reset resets a counter, and leads to its page, which says so. If the counter is not reset, the answer is that page
// with the fault.
func (p *pages) reset(w http.ResponseWriter, r *http.Request) {
	_, query, ok := p.posted(w, r)
	if !ok {
		return
	}
	err := func() error {
		s, err := p.searchOf(query)
		if err != nil {
			return err
		}
		counter, err := s.counter(query.Get("counter"))
		if err != nil {
			return err
		}
		return p.Service.Reset(r.Context(), counter)
	}()
	if err != nil {
		p.showFeature(w, r, query, err)
		return
	}
	w.Header().Set("Location", to("feature", with(query, "reset", strconv.FormatInt(p.Clock().Unix(), 10))))
	w.WriteHeader(http.StatusSeeOther)
}

// noticeFor is how long after a change the page says that it was done: a reload or a bookmark does not say it later.
const noticeFor = time.Minute

// noticeOf returns the moment of the change that led to the page; empty: none did.
func (p *pages) noticeOf(query url.Values, change string) string {
	second, err := strconv.ParseInt(query.Get(change), 10, 64)
	now := p.Clock()
	if done := time.Unix(second, 0); err == nil && now.Sub(done).Abs() < noticeFor {
		return momentAt(done, now)
	}
	return ""
}

// counter returns the counter of the features of some kinds, which counterName has named.
func (s search) counter(name string) (events.Counter, error) {
	features := events.Features{}
	for _, kind := range kindsOf(name) {
		features[kind] = s.features[kind] // one that is missing is a fault
	}
	return s.event.Counter(features)
}
