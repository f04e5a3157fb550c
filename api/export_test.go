package api

import "github.com/gorilla/mux"

// Route is a route of a handler.
type Route struct {
	Class   string // empty: it has none
	Methods []string
	Path    string
}

// RoutesOf returns all routes of the two handlers.
func RoutesOf(config Config) (clients, admin []Route, err error) {
	h := newHandler(config)
	for list, t := range map[*[]Route]table{&clients: h.clientRoutes(), &admin: h.adminRoutes()} {
		err = t.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
			var one Route
			if s, ok := route.GetHandler().(*served); ok && s.class != 0 {
				one.Class = s.class.String()
			}
			one.Methods, _ = route.GetMethods()
			path, err := route.GetPathTemplate()
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

// Find returns the name of the token of that text.
func (t *Tokens) Find(text string) (string, bool) {
	one, ok := t.find(text)
	return one.name, ok
}
