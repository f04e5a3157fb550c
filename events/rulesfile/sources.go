package rulesfile

import (
	"net/textproto"
	"strings"

	"github.com/counterd/counterd/events"
)

func (r fileReader) from(entries []entry, withoutProxies bool) map[string]events.Source {
	from := make(map[string]events.Source)
	for _, entry := range entries {
		if !events.ValidKind(entry.key) {
			r.fault(entry.name, "%s", kindFault)
			continue
		}
		text, ok := r.text(entry.at)
		if !ok {
			continue
		}
		source, reason := parseSource(entry.key, text)
		switch {
		case reason != "":
			r.fault(entry.at, "%s", reason)
		case source.Place == events.FromForwarded && withoutProxies:
			r.fault(entry.at, "forwarded addresses are believed from trusted_proxies only, and there are none: name yours, or write peer")
		}
		from[entry.key] = source
	}
	return from
}

// parseSource undoes Source.String for a kind, or says what is wrong. Addresses
// belong to the kind ip alone, under which IPv6 is counted by network.
func parseSource(kind, s string) (source events.Source, reason string) {
	word, name, header := strings.Cut(s, " ")
	name = strings.TrimSpace(name)
	switch {
	case header && word == "header" && events.ValidToken(name):
		return events.Source{Place: events.FromHeader, Header: textproto.CanonicalMIMEHeaderKey(name)}, ""
	case s == "none":
		return events.Source{}, ""
	case kind == events.KindIP && s == "peer":
		return events.Source{Place: events.FromPeer}, ""
	case kind == events.KindIP && s == "forwarded":
		return events.Source{Place: events.FromForwarded}, ""
	case kind != events.KindIP && s == "bearer":
		return events.Source{Place: events.FromBearer}, ""
	case kind == events.KindIP:
		return events.Source{}, "an ip is found at peer, forwarded, header NAME or none"
	}
	return events.Source{}, "a value of this kind is found at bearer, header NAME or none"
}
