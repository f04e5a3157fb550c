package api

import "github.com/counterd/counterd/api/wire"

// alive says that the process answers.
func (h *handler) alive(x *exchange) (any, error) {
	if _, err := newQuery(x.request); err != nil {
		return nil, err
	}
	return wire.Health{Status: "alive"}, nil
}

// ready says whether the process should be asked, and the states of the store's servers.
func (h *handler) ready(x *exchange) (any, error) {
	if _, err := newQuery(x.request); err != nil {
		return nil, err
	}
	servers, err := h.Health.Ready()
	if err != nil {
		return nil, err
	}
	health := wire.Health{Status: "ready"}
	if h.Health.Servers != nil && !h.Redacted {
		health.Store = map[string]string{}
		for _, server := range servers {
			health.Store[server.Name] = server.String()
		}
	}
	return health, nil
}
