package api

import (
	_ "embed"
	"fmt"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var openAPIText []byte

// OpenAPI returns the description of the HTTP interface as JSON, in the order of openapi.yaml. It must not be modified.
var OpenAPI = sync.OnceValue(func() []byte {
	text, err := yamlToJSON(openAPIText)
	if err != nil {
		panic(fmt.Errorf("api: openapi.yaml: %w", err)) // it is part of the program, and the tests read it
	}
	return text
})

// yamlToJSON returns a YAML document as JSON, with aliases and merge keys expanded.
func yamlToJSON(text []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	return appendJSON(nil, document.Content[0])
}

func appendJSON(b []byte, node *yaml.Node) (_ []byte, err error) {
	switch node.Kind {
	case yaml.AliasNode:
		return appendJSON(b, node.Alias)
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, item := range node.Content {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, item); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case yaml.MappingNode:
		b = append(b, '{')
		for i, one := range membersOf(node) {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = jsontext.AppendQuote(b, one.name); err != nil {
				return nil, err
			}
			if b, err = appendJSON(append(b, ':'), one.value); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	}
	var value any
	if err := node.Decode(&value); err != nil {
		return nil, err
	}
	text, err := json.Marshal(value)
	return append(b, text...), err
}

// shared is the member of openapi.yaml that has what others merge.
const shared = "x-shared"

type member struct {
	name  string
	value *yaml.Node
}

// membersOf returns the members of a mapping in their order. Its own members come before merged ones of their names.
func membersOf(node *yaml.Node) (members []member) {
	var own []string
	for i := 0; i < len(node.Content); i += 2 {
		own = append(own, node.Content[i].Value)
	}
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		switch {
		case name.Value == shared:
		case name.ShortTag() != "!!merge":
			members = append(members, member{name.Value, value})
		default:
			members = append(members, merged(value, own)...)
		}
	}
	return members
}

// merged returns the members that a merge key brings, without the names that the mapping has itself.
func merged(value *yaml.Node, own []string) (members []member) {
	switch value.Kind {
	case yaml.AliasNode:
		return merged(value.Alias, own)
	case yaml.SequenceNode:
		for _, one := range value.Content {
			for _, m := range merged(one, own) {
				members = append(members, m)
				own = append(slices.Clip(own), m.name)
			}
		}
		return members
	}
	for _, m := range membersOf(value) {
		if !slices.Contains(own, m.name) {
			members = append(members, m)
		}
	}
	return members
}
