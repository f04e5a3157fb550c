package events

import (
	"strings"
)

// Place is a place in an HTTP request.
type Place uint8

// The places where a feature's value may be found.
const (
	FromNone      Place = iota // nowhere: the kind is not taken from requests
	FromPeer                   // the peer's address
	FromForwarded              // the last address of X-Forwarded-For that is not a trusted proxy's
	FromHeader                 // a header
	FromBearer                 // the bearer token of the Authorization header
)

var placeNames = [...]string{"none", "peer", "forwarded", "header", "bearer"}

// Source says where the middleware and the authorize endpoint find the value of
// a kind. The zero Source is nowhere.
type Source struct {
	Place  Place
	Header string // of FromHeader: its canonical name
}

// String returns the source as a rules file has it: peer, header X-User.
func (s Source) String() string {
	if s.Place == FromHeader {
		return "header " + s.Header
	}
	return placeNames[s.Place]
}

// Source returns where values of that kind are found for this event: what its
// From says, else the peer for ip, the bearer token for user, and nowhere for
// others.
func (e *Event) Source(kind string) Source {
	source, found := e.From[kind]
	switch {
	case found:
		return source
	case kind == KindIP:
		return Source{Place: FromPeer}
	case kind == "user":
		return Source{Place: FromBearer}
	}
	return Source{}
}

// ValidToken reports whether name is a token of RFC 9110, section 5.6.2.
func ValidToken(name string) bool {
	for _, c := range name {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", c) {
			return false
		}
	}
	return name != ""
}
