package api

import "github.com/counterd/counterd/api/wire"

// alive says that the process answers.
func (h *handler) alive(x *exchange) error {
	h.reply(x, wire.Health{Status: "alive"})
	return nil
}

// ready says whether the process should be asked, and the states of the store's servers.
func (h *handler) ready(x *exchange) error {
	servers, err := h.Health.Ready()
	if err != nil {
		return err
	}
	health := wire.Health{Status: "ready"}
	if h.Health.Servers != nil && !h.Redacted {
		health.Store = map[string]string{}
		for _, server := range servers {
			health.Store[server.Name] = server.String()
		}
	}
	h.reply(x, health)
	return nil
}
