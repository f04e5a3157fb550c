// Package telemetry declares the hooks by which the parts of counterd report spans. It uses no library for tracing;
// package tracing implements the hooks with OpenTelemetry.
package telemetry

import (
	"context"
	"log/slog"
	"net/http"
)

// End ends a span. Failed means that counterd failed, or its store. The values of attributes are strings, integers and
// slices of strings.
type End = func(failed bool, attributes ...slog.Attr)

// Start begins a span as a child of the span in the context, and returns the context of the new span. If End is nil, the
// span is not recorded, and is not ended.
type Start = func(ctx context.Context, name string) (context.Context, End)

// StartRequest begins the span of a request in the trace that its header names.
type StartRequest = func(r *http.Request, name string, attributes ...slog.Attr) (context.Context, End)
