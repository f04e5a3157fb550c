package otlp

import (
	"errors"

	"github.com/go-logr/logr"
)

// redacted gets what the SDK would log, and reports the message alone: the rest, and the error, repeats the environment, and with OTEL_EXPORTER_OTLP_HEADERS the
// collector's key.
type redacted struct{ report func(error) }

// warnings is the level up to which the SDK warns.
const warnings = 1

// Init is what a logr.LogSink has.
func (redacted) Init(logr.RuntimeInfo) {}

// Enabled returns whether a level is reported.
func (redacted) Enabled(level int) bool { return level <= warnings }

// Info reports a warning.
func (d redacted) Info(_ int, message string, _ ...any) { d.say(message) }

// Error reports that something failed.
func (d redacted) Error(_ error, message string, _ ...any) { d.say(message) }

// WithValues and WithName add nothing to it.
func (d redacted) WithValues(...any) logr.LogSink { return d }

func (d redacted) WithName(string) logr.LogSink { return d }

func (d redacted) say(message string) { d.report(bounded(errors.New("opentelemetry: " + message))) }
