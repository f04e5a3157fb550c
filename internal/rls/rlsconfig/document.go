package rlsconfig

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/yamlfile"
)

const (
	// maxDepth is the most levels of lists and mappings in each other, those of aliases included. A
	// list of descriptors has two.
	maxDepth = 100
	// maxExpanded is the most values that the aliases of a file stand for.
	maxExpanded = 100_000
)

var format = yamlfile.Format{
	TooLarge:  "the file exceeds %d bytes: split it: files may have the same domain",
	Tag:       "%TAG",
	Directive: "%TAG is not supported: remove the line",
	Empty:     "it begins with domain:",
	Second:    "make it a file of its own",
	Other:     map[string]string{"events": "these are rules of counterd: name the file by -rules"},
}

// parse reads the one document of a YAML file and replaces its aliases. The fault, if any, has no path.
func parse(text []byte) (*yaml.Node, *events.Fault) {
	root, fault := yamlfile.Decode(text, format)
	if fault != nil {
		fault.Reason = strings.Replace(fault.Reason, "unknown anchor referenced", "an alias has no anchor", 1)
		if strings.Contains(fault.Reason, "alphabetic or numeric") || strings.Contains(fault.Reason, "an alias") {
			fault.Reason += `: quote a value that begins with *, as in "*.pdf"`
		}
		return nil, fault
	}
	e := expander{left: maxExpanded}
	if fault := e.expand(root, 1, false); fault != nil {
		return nil, fault
	}
	return root, nil
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
