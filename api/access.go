package api

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/counterd/counterd/service"
)

// tokenHeader goes before Authorization: a reverse proxy that asks with the headers of its
// client has that client's there.
const tokenHeader = "Counterd-Token"

// tokenOf returns the token of a request. Where several values leave open which one is
// meant it is given and empty, which no token is.
func tokenOf(header http.Header) service.Token {
	if values := header[tokenHeader]; len(values) > 0 {
		return service.Token{Text: only(values), Given: true}
	}
	values := header["Authorization"]
	if len(values) == 0 {
		return service.Token{}
	}
	scheme, credentials, _ := strings.Cut(only(values), " ")
	if len(values) == 1 && !strings.EqualFold(scheme, "Bearer") {
		return service.Token{} // credentials of another scheme are for another server
	}
	return service.Token{Text: strings.Trim(credentials, " "), Given: true}
}

func only(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return ""
}

// challenge returns the WWW-Authenticate of a refusal, by RFC 6750.
func challenge(refusal *service.Refusal) string {
	const realm = `Bearer realm="counterd"`
	switch refusal.Reason {
	case service.TokenUnknown:
		return realm + `, error="invalid_token"`
	case service.TokenForbidden:
		return fmt.Sprintf(`%s, error="insufficient_scope", scope="%s"`, realm, refusal.Class)
	}
	return realm
}
