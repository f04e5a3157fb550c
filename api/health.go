package api

import (
	"net/http"
	"time"

	"github.com/counterd/counterd/api/wire"
)

// ServerState is how one of the store's servers is.
type ServerState struct {
	Name      string
	Reachable bool
	EmptyFrom time.Time // it has lost what it held before; zero: nothing
	Evicting  bool      // that is so because it is full
	// OtherSecret: another process that uses it has another key secret, and counts apart.
	OtherSecret bool
}

// String is what readyz says of the server.
func (s ServerState) String() string {
	text := "reachable"
	if !s.Reachable {
		text = "unreachable"
	}
	since := s.EmptyFrom.UTC().Format(time.RFC3339)
	switch {
	case s.EmptyFrom.IsZero():
	case s.Evicting:
		text += ", full, incomplete before " + since
	default:
		text += ", empty since " + since
	}
	if s.OtherSecret {
		text += ", another key secret in use"
	}
	return text
}

// alive says that the process answers.
func (h *handler) alive(r *http.Request) (any, error) {
	if _, err := newQuery(r); err != nil {
		return nil, err
	}
	return wire.Health{Status: "alive"}, nil
}

// ready says whether the store can be reached, and how its servers are. One
// server that answers is enough: to take all processes out of service because
// one of many servers is down would make a part's outage that of the whole.
func (h *handler) ready(r *http.Request) (any, error) {
	if _, err := newQuery(r); err != nil {
		return nil, err
	}
	if h.Draining != nil && h.Draining() {
		return nil, errDraining
	}
	if h.Servers == nil {
		return wire.Health{Status: "ready"}, nil
	}
	health := wire.Health{Status: "ready"}
	if !h.Redacted {
		health.Store = map[string]string{}
	}
	reachable := false
	for _, server := range h.Servers() {
		if !h.Redacted {
			health.Store[server.Name] = server.String()
		}
		reachable = reachable || server.Reachable
	}
	if !reachable {
		return nil, errUnready
	}
	return health, nil
}
