// Package fakeserver is a counterd server for tests: it keeps the part of the
// HTTP contract that loadtest uses by writing every event of a counter into a
// log and going through all of it for each count, slow and obviously right; or,
// on request, wrong on purpose.
package fakeserver

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

// grace is that of the contract, in seconds.
const grace = 2

// Server is a fake server of one event. Set it up before its first request.
type Server struct {
	Event events.Event
	Clock func() time.Time // nil: time.Now

	// Wrongs; each is nil for a server that is right.
	Status  func(n int) int                                 // answers the n-th increment, from 1 on, with that status and counts nothing; 0: does not
	Times   func(n int) int                                 // counts the n-th increment that often
	Stamped func(*wire.Incremented)                         // changes the answer to an increment
	Sum     func(from, to int64) (wrongFrom, wrongTo int64) // sums another window than it says
	Counted func(*wire.Count)                               // changes the answer to a count

	mu         sync.Mutex
	increments int
	counts     int
	log        map[events.Feature][]int64 // every event's second
}

// Increments returns how many increments have come in, whatever the answer.
func (s *Server) Increments() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.increments
}

// Counts returns how many counts have come in.
func (s *Server) Counts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest, found := strings.CutPrefix(r.URL.Path, "/v1/events/"+s.Event.Name)
	switch {
	case found && r.Method == http.MethodGet && rest == "":
		s.rules(w)
	case found && r.Method == http.MethodPost && rest == "/increment":
		s.increment(w, r)
	case found && r.Method == http.MethodGet && rest == "/count":
		s.count(w, r)
	case found && r.Method == http.MethodDelete && rest == "/counters":
		s.reset(w, r)
	default:
		problem(w, http.StatusNotFound, "no such event or route")
	}
}

func (s *Server) now() int64 {
	if s.Clock == nil {
		return time.Now().Unix()
	}
	return s.Clock().Unix()
}

func (s *Server) retention() int64 { return int64(s.Event.Remembered() / time.Second) }

func (s *Server) rules(w http.ResponseWriter) {
	event := wire.Event{Name: s.Event.Name, Retention: events.FormatDuration(s.Event.Remembered())}
	for _, rule := range s.Event.Rules {
		event.Rules = append(event.Rules, wire.Rule{Per: rule.Per, Precision: rule.Precision.String(), IPv6Prefix: rule.IPv6Prefix})
	}
	answer(w, http.StatusOK, wire.TypeJSON, event)
}

func (s *Server) increment(w http.ResponseWriter, r *http.Request) {
	s.increments++
	n := s.increments
	if s.Status != nil {
		if status := s.Status(n); status != 0 {
			problem(w, status, "told to")
			return
		}
	}
	var in wire.Increment
	if err := json.UnmarshalRead(r.Body, &in, json.RejectUnknownMembers(true)); err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	counters, err := s.Event.Counters(in.Features)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	at := s.now()
	if !in.At.IsZero() {
		at = in.At.Unix()
	}
	if at < s.now()-s.retention() || at > s.now()+grace {
		problem(w, http.StatusBadRequest, "at is out of range")
		return
	}
	times := 1
	if s.Times != nil {
		times = s.Times(n)
	}
	if s.log == nil {
		s.log = map[events.Feature][]int64{}
	}
	done := wire.Incremented{Event: s.Event.Name, At: unix(at), By: *in.By}
	for _, counter := range counters {
		for range times {
			s.log[counter.Feature] = append(s.log[counter.Feature], at)
		}
		done.Counters = append(done.Counters, counter.Feature.String())
	}
	if s.Stamped != nil {
		s.Stamped(&done)
	}
	answer(w, http.StatusOK, wire.TypeJSON, done)
}

func (s *Server) count(w http.ResponseWriter, r *http.Request) {
	s.counts++
	query := r.URL.Query()
	counter, err := s.counter(query["feature"])
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	window, err := events.ParseDuration(query.Get("window"))
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	to := s.now()
	if query.Has("at") {
		at, err := wire.ParseMoment(query.Get("at"))
		if err != nil {
			problem(w, http.StatusBadRequest, err.Error())
			return
		}
		to = at.Unix()
	}
	from := to - int64(window/time.Second) + 1
	if from < s.now()-s.retention()-grace || to > s.now()+grace {
		problem(w, http.StatusBadRequest, "the window is out of range")
		return
	}
	step := int64(counter.Precision.Length() / time.Second)
	from, to = from/step*step, to/step*step+step-1
	count := wire.Count{
		Event: s.Event.Name, Feature: counter.Feature.String(), Window: events.FormatDuration(window),
		From: unix(from), To: unix(to), Count: s.sum(counter.Feature, from, to),
	}
	if s.Counted != nil {
		s.Counted(&count)
	}
	answer(w, http.StatusOK, wire.TypeJSON, count)
}

func (s *Server) sum(feature events.Feature, from, to int64) (n int64) {
	if s.Sum != nil {
		from, to = s.Sum(from, to)
	}
	for _, second := range s.log[feature] {
		if from <= second && second <= to {
			n++
		}
	}
	return n
}

func (s *Server) reset(w http.ResponseWriter, r *http.Request) {
	counter, err := s.counter(r.URL.Query()["feature"])
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	delete(s.log, counter.Feature)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) counter(list []string) (events.Counter, error) {
	features, err := events.ParseFeatures(list)
	if err != nil {
		return events.Counter{}, err
	}
	return s.Event.Counter(features)
}

func problem(w http.ResponseWriter, status int, detail string) {
	answer(w, status, wire.TypeProblem, wire.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
	})
}

func answer(w http.ResponseWriter, status int, mediaType string, body any) {
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(status)
	if err := json.MarshalWrite(w, body); err != nil {
		panic(fmt.Sprintf("fakeserver: %v", err))
	}
}

func unix(second int64) wire.Moment { return wire.Moment{Time: time.Unix(second, 0).UTC()} }
