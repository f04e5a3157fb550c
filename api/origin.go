package api

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// checkOrigin refuses the requests of web pages where only programs of this machine are
// served: of a page whose name leads here (DNS rebinding), by the name, and of any other page,
// by what its browser says of it.
//
// Reverse proxies ask authorize with the host and the headers of their clients. So one that
// the rules trust may send any host, and what browsers say of the client's page does not
// matter there.
func (h *handler) checkOrigin(r *http.Request) error {
	if !h.LoopbackOnly {
		return nil
	}
	authorizes := routeOf(r) == authorizeRoute
	if !isLocalName(r.Host) && !(authorizes && h.isProxy(r)) {
		return errForeignHost
	}
	if !authorizes && h.origins.Check(r) != nil {
		return errForeignPage
	}
	return nil
}

// isProxy reports whether a proxy that the rules trust makes the request.
func (h *handler) isProxy(r *http.Request) bool {
	peer, ok := parseHop(r.RemoteAddr)
	return ok && h.Service.Rules().TrustedProxies.Contains(peer)
}

// isLocalName reports whether no web page from elsewhere can have the host of a URL: it is an
// address, a name of this machine, or one without a dot, which only a local network resolves.
// No browser leaves it out.
func isLocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost")
}
