package api

import (
	"github.com/counterd/counterd/internal/httpdecision"

	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/counterd/counterd/api/wire"
)

// openAPITag names the description.
var openAPITag = sync.OnceValue(func() string { return fmt.Sprintf(`"%.12x"`, sha256.Sum256(OpenAPI())) })

// openAPI returns the description of the HTTP interface, or 304 to a client that has it.
func (h *handler) openAPI(x *exchange) error {
	text, tag := OpenAPI(), openAPITag()
	header := x.Header()
	httpdecision.SetFields(header, httpdecision.Field{Name: "Etag", Value: tag}, httpdecision.Field{Name: "Cache-Control", Value: "no-cache"}, httpdecision.Field{Name: "X-Content-Type-Options", Value: "nosniff"})
	if names(x.request.Header["If-None-Match"], tag) {
		x.WriteHeader(http.StatusNotModified)
		return nil
	}
	httpdecision.SetFields(header, httpdecision.Field{Name: "Content-Type", Value: wire.TypeJSON}, httpdecision.Field{Name: "Content-Length", Value: strconv.Itoa(len(text))})
	_, _ = x.Write(text) // only a client that has left misses it
	return nil
}

// names reports whether the values of If-None-Match have the tag.
func names(values []string, tag string) bool {
	for _, value := range values {
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.Trim(one, " \t"); one == "*" || strings.TrimPrefix(one, "W/") == tag {
				return true
			}
		}
	}
	return false
}
