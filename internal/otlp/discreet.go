package otlp

import (
	"errors"

	"github.com/go-logr/logr"
)

// discreet is told what the SDK would log, and reports no more of it than the message: the
// rest, and the error too, repeats the environment, and with OTEL_EXPORTER_OTLP_HEADERS the
// collector's key.
type discreet struct{ report func(error) }

// warnings is the level up to which the SDK warns.
const warnings = 1

// Init is what a logr.LogSink has.
func (discreet) Init(logr.RuntimeInfo) {}

// Enabled returns whether a level is reported.
func (discreet) Enabled(level int) bool { return level <= warnings }

// Info reports a warning.
func (d discreet) Info(_ int, message string, _ ...any) { d.say(message) }

// Error reports that something failed.
func (d discreet) Error(_ error, message string, _ ...any) { d.say(message) }

// WithValues and WithName add nothing to it.
func (d discreet) WithValues(...any) logr.LogSink { return d }

func (d discreet) WithName(string) logr.LogSink { return d }

func (d discreet) say(message string) { d.report(bounded(errors.New("opentelemetry: " + message))) }
