package rulesfile

import (
	"net/http"
	"slices"
	"strings"

	"github.com/counterd/counterd/events"
)

// usualMethods are those of RFC 9110 and RFC 5789.
var usualMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions, http.MethodTrace, http.MethodConnect,
}

// methods reads the methods of the requests that are hits.
func (r fileReader) methods(at place) []string {
	items := r.items(at)
	if len(items) == 0 && r.sound(at) {
		r.fault(at, "no method is named: leave methods out, and all are counted")
	}
	var methods []string
	seen := make(map[string]bool)
	for _, item := range items {
		method, ok := r.text(item)
		likely := events.Nearest(strings.ToUpper(method), usualMethods)
		switch {
		case !ok:
			continue
		case item.node.ShortTag() != "!!str" || !validMethod(method):
			if likely == "" {
				likely = http.MethodPost
			}
			r.fault(item, "it is an HTTP method in upper case, as %s is", likely)
		case seen[method]:
			r.fault(item, "the method is there twice: leave one out")
		case likely != "" && !slices.Contains(usualMethods, method):
			r.warn(item, "this is none of the usual methods: %s may be meant", likely)
		}
		seen[method] = true
		methods = append(methods, method)
	}
	return methods
}

// validMethod reports whether the method is a token of RFC 9110 in upper case that
// begins with a letter.
func validMethod(method string) bool {
	return events.ValidToken(method) && 'A' <= method[0] && method[0] <= 'Z' && method == strings.ToUpper(method)
}
