// Package panics describes a panic for the log, without the values of the request that it came from.
package panics

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
)

// maxFrames bounds the stack in the log.
const maxFrames = 64

// Fault says what was panicked with, as far as it cannot be a value of a request: in the runtime's
// own words, else by its type.
func Fault(fault any) string {
	if err, ok := fault.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a %T", fault)
}

// Stack returns the functions and lines that led to its caller. runtime.Stack has the arguments
// too: an address is a few digits of those.
func Stack() string {
	pcs := make([]uintptr, maxFrames)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var b strings.Builder
	for {
		frame, more := frames.Next()
		fmt.Fprintf(&b, "%s %s:%d\n", frame.Function, frame.File, frame.Line)
		if !more {
			return b.String()
		}
	}
}

// framed matches a line of runtime.Stack that says where a function is.
var framed = regexp.MustCompile(`(?m)^\t(\S+\.(?:go|s):\d+)(?: \+0x[0-9a-f]+)?$`)

// Frames returns the places in a stack as runtime.Stack writes it.
func Frames(text string) string {
	// The value of the panic comes before it, of any length and in any words.
	if at := strings.LastIndex(text, "\ngoroutine "); at >= 0 {
		text = text[at:]
	}
	var b strings.Builder
	for _, match := range framed.FindAllStringSubmatch(text, maxFrames) {
		b.WriteString(match[1] + "\n")
	}
	return b.String()
}
