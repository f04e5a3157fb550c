package rlsconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

const (
	// maxDepth is the most levels of lists and mappings in each other, those of aliases included. A
	// list of descriptors has two.
	maxDepth = 100
	// maxExpanded is the most values that the aliases of a file stand for.
	maxExpanded = 100_000
)

// parse reads the one document of a YAML file and replaces its aliases. The fault, if any, has no path.
func parse(text []byte) (*yaml.Node, *events.Fault) {
	if len(text) > rulesfile.MaxSize {
		return nil, &events.Fault{Reason: fmt.Sprintf("the file exceeds %d bytes: split it, and allow files to be merged",
			rulesfile.MaxSize)}
	}
	// A short tag can stand for a long text, any number of times.
	if at := tagDirective.FindIndex(text); at != nil {
		line := 1 + bytes.Count(text[:at[1]], []byte("\n"))
		return nil, &events.Fault{Line: line, Column: 1, Reason: "%TAG is not supported: remove the line"}
	}
	first, second, err := decode(text)
	switch {
	case err != nil:
		return nil, syntaxFault(text, err)
	case first == nil || len(first.Content) != 1 || first.Content[0].ShortTag() == "!!null":
		return nil, &events.Fault{Line: 1, Reason: "the file is empty: it begins with domain:"}
	case second != nil:
		return nil, &events.Fault{Line: second.Line, Column: second.Column,
			Reason: "a second document begins here: make it a file of its own"}
	}
	e := expander{left: maxExpanded}
	if fault := e.expand(first, 0, false); fault != nil {
		return nil, fault
	}
	return first.Content[0], nil
}

var tagDirective = regexp.MustCompile(`(?:^\x{FEFF}?|[\n\r\x{85}\x{2028}\x{2029}])%TAG`)

// decode reads up to two documents; a missing one is nil.
func decode(text []byte) (first, second *yaml.Node, err error) {
	// The package panics where it finds itself at fault.
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("yaml: %v", v)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for _, document := range []**yaml.Node{&first, &second} {
		node := new(yaml.Node)
		if err := decoder.Decode(node); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		*document = node
	}
	return first, second, nil
}

var (
	syntaxError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)
	noAnchor    = regexp.MustCompile(`(?s)^unknown anchor '(.*)' referenced$`)
)

// syntaxFault returns the fault of an error of the YAML package, whose line is often that
// where the faulty mapping or list begins.
func syntaxFault(text []byte, err error) *events.Fault {
	match := syntaxError.FindStringSubmatch(err.Error())
	if match == nil {
		return &events.Fault{Reason: "this is not YAML"}
	}
	line, _ := strconv.Atoi(match[1])
	reason := match[2]
	if anchor := noAnchor.FindStringSubmatch(reason); anchor != nil {
		reason = "an alias has no anchor"
		if at := bytes.Index(text, []byte("*"+anchor[1])); at >= 0 {
			line = 1 + bytes.Count(text[:at], []byte("\n"))
		}
	}
	if strings.Contains(reason, "alphabetic or numeric") || strings.Contains(reason, "an alias") {
		reason += `: quote a value that begins with *, as in "*.pdf"`
	}
	return &events.Fault{Line: line, Reason: "this is not YAML: " + reason}
}

// expander replaces aliases by the nodes that they stand for. Some nodes are then there more than
// once; what is read of them is bounded.
type expander struct{ left int }

func (e *expander) expand(node *yaml.Node, depth int, aliased bool) *events.Fault {
	if aliased {
		e.left--
	}
	switch {
	case depth > maxDepth:
		return &events.Fault{Line: node.Line, Column: node.Column,
			Reason: fmt.Sprintf("more than %d lists and mappings in each other: nest fewer, and no alias in its anchor", maxDepth)}
	case e.left < 0:
		return &events.Fault{Line: node.Line, Column: node.Column,
			Reason: fmt.Sprintf("the aliases of the file stand for more than %d values: use fewer", maxExpanded)}
	}
	for i, child := range node.Content {
		if child.Kind == yaml.AliasNode {
			node.Content[i] = child.Alias
		}
		if fault := e.expand(node.Content[i], depth+1, aliased || child.Kind == yaml.AliasNode); fault != nil {
			return fault
		}
	}
	return nil
}
