package api

import "github.com/gorilla/mux"

// Route is a route of a handler.
type Route struct {
	Class   string // empty: it has none
	Methods []string
	Path    string
}

// RoutesOf returns all routes of the two handlers.
func RoutesOf(config ServerConfig) (clients, admin []Route, err error) {
	h := newHandler(config)
	for list, t := range map[*[]Route]table{&clients: h.clientRoutes(), &admin: h.adminRoutes()} {
		err = t.Walk(func(added *mux.Route, _ *mux.Router, _ []*mux.Route) error {
			var one Route
			if o, ok := added.GetHandler().(*route); ok && o.class != 0 {
				one.Class = o.class.String()
			}
			one.Methods, _ = added.GetMethods()
			path, err := added.GetPathTemplate()
			one.Path = path
			*list = append(*list, one)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return clients, admin, nil
}
