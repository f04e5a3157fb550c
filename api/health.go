package api

import (
	"net/http"

	"github.com/counterd/counterd/api/wire"
)

// alive says that the process answers.
func (h *handler) alive(r *http.Request) (any, error) {
	if _, err := newQuery(r); err != nil {
		return nil, err
	}
	return wire.Health{Status: "alive"}, nil
}

// ready says whether the store can be reached, and which of its servers. One
// server that answers is enough: to take all processes out of service because
// one of many servers is down would make a part's outage that of the whole.
func (h *handler) ready(r *http.Request) (any, error) {
	if _, err := newQuery(r); err != nil {
		return nil, err
	}
	if h.Ping == nil {
		return wire.Health{Status: "ready"}, nil
	}
	health := wire.Health{Status: "ready", Store: map[string]string{}}
	reachable := false
	for server, err := range h.Ping(r.Context()) {
		health.Store[server] = "unreachable"
		if err == nil {
			health.Store[server] = "reachable"
			reachable = true
		}
	}
	if !reachable {
		return nil, errUnready
	}
	return health, nil
}
