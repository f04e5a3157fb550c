package api

import (
	"log/slog"
	"net/http"
	"strings"
)

// trace begins the span of the request, in the trace of its caller. Probes and scrapes have
// none: they come again and again, and decide nothing. A span holds names of the contract and
// of the rules and numbers, no path, query, address or header: each may hold a feature.
func (x *exchange) trace(h *handler) {
	if x.route != Other && !strings.HasPrefix(x.route, "/v1/") {
		return
	}
	name, method := x.method, x.method
	if x.method == Other {
		name, method = "HTTP", "_OTHER" // by OpenTelemetry's conventions
	}
	attrs := append(make([]slog.Attr, 0, 2), slog.String("http.request.method", method))
	if x.route != Other {
		name += " " + x.route
		attrs = append(attrs, slog.String("http.route", x.route))
	}
	ctx, end := h.StartSpan(x.request, name, attrs...)
	x.request, x.endSpan = x.request.WithContext(ctx), end
}

// describe returns the attributes of the answer for the span, and whether the server failed. A status of 4xx is the
// client's fault, or a denial.
func (x *exchange) describe(status int) (failed bool, attrs []slog.Attr) {
	if x.event != "" {
		attrs = append(attrs, slog.String("counterd.event", x.event))
	}
	return x.broken || status >= http.StatusInternalServerError, append(attrs, slog.Int("http.response.status_code", status))
}
