package api

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
)

// maxFrames bounds the stack of a panic in the log.
const maxFrames = 64

// faultOf says what was panicked with, as far as it cannot be a value of a request: in
// the runtime's own words, else by its type.
func faultOf(fault any) string {
	if err, ok := fault.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a %T", fault)
}

// stackOf returns the functions and lines that led here. runtime.Stack has the arguments
// too: an address is a few digits of those.
func stackOf() string {
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

// framesIn returns the places in a stack as runtime.Stack writes it.
func framesIn(text string) string {
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
