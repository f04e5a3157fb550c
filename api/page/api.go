package page

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterd/counterd/api"
)

// api answers with the description of the HTTP interface.
func (p *pages) api(w http.ResponseWriter, _ *http.Request) {
	f := p.newFrame("HTTP interface", "api")
	p.write(w, "api", f, struct {
		*frame
		*apiView
	}{f, described()})
}

// described returns the description as the page shows it.
var described = sync.OnceValue(func() *apiView {
	d := &openAPI{}
	if err := json.Unmarshal(api.OpenAPI(), d); err != nil {
		panic(fmt.Errorf("page: openapi.yaml: %w", err)) // it is part of the program, and the tests read it
	}
	return d.view()
})

// apiView is the description as the page shows it.
type apiView struct {
	Version string
	About   []prose
	Tags    []apiTag
	Schemas []apiSchema
}

type apiTag struct {
	ID, Name   string
	About      []prose
	Operations []apiOperation
}

type apiOperation struct {
	ID, Methods, Path string
	Summary           string
	About             []prose
	Classes           string // of its token; empty: it needs none
	Parameters        []apiRow
	Bodies            []apiBody
	Answers           []apiAnswer
}

// apiRow is a parameter or a property.
type apiRow struct {
	Name, In string
	Required bool
	Type     []typeWord
	About    []prose
}

type apiBody struct {
	Media    string
	Type     []typeWord
	Examples []apiExample
}

type apiExample struct{ Summary, Text string }

type apiAnswer struct {
	Status  string
	About   []prose
	Headers []string
	Bodies  []apiBody
}

type apiSchema struct {
	ID, Name string
	About    []prose
	Type     []typeWord // of one that has no properties
	Rows     []apiRow
}

// typeWord is a part of what a type is called. One that names a schema leads to it.
type typeWord struct{ Text, To string }

// prose is a paragraph, in which code alternates with text.
type prose []struct {
	Text string
	Code bool
}

// What the page reads of a description.
type (
	openAPI struct {
		Info struct {
			Version     string `json:"version"`
			Description string `json:"description"`
		} `json:"info"`
		Tags []struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		} `json:"tags"`
		Paths      ordered[ordered[jsontext.Value]] `json:"paths"`
		Components struct {
			Parameters ordered[parameter] `json:"parameters"`
			Responses  ordered[response]  `json:"responses"`
			Schemas    ordered[schema]    `json:"schemas"`
		} `json:"components"`
	}
	operation struct {
		ID          string                `json:"operationId"`
		Tags        []string              `json:"tags"`
		Summary     string                `json:"summary"`
		Description string                `json:"description"`
		Security    []map[string][]string `json:"security"`
		Parameters  []parameter           `json:"parameters"`
		Body        struct {
			Content ordered[media] `json:"content"`
		} `json:"requestBody"`
		Responses ordered[response] `json:"responses"`
	}
	parameter struct {
		Ref         string `json:"$ref"`
		Name        string `json:"name"`
		In          string `json:"in"`
		Description string `json:"description"`
		Required    bool   `json:"required"`
		Schema      schema `json:"schema"`
	}
	response struct {
		Ref         string                  `json:"$ref"`
		Description string                  `json:"description"`
		Headers     ordered[jsontext.Value] `json:"headers"`
		Content     ordered[media]          `json:"content"`
	}
	media struct {
		Schema   schema `json:"schema"`
		Examples ordered[struct {
			Summary string         `json:"summary"`
			Value   jsontext.Value `json:"value"`
		}] `json:"examples"`
	}
	schema struct {
		Ref         string           `json:"$ref"`
		Type        jsontext.Value   `json:"type"`
		Description string           `json:"description"`
		Const       jsontext.Value   `json:"const"`
		Enum        []jsontext.Value `json:"enum"`
		Default     jsontext.Value   `json:"default"`
		Minimum     jsontext.Value   `json:"minimum"`
		Maximum     jsontext.Value   `json:"maximum"`
		OneOf       []schema         `json:"oneOf"`
		Items       *schema          `json:"items"`
		Required    []string         `json:"required"`
		Properties  ordered[schema]  `json:"properties"`
	}
)

// ordered is an object whose members keep their order.
type ordered[T any] []member[T]

type member[T any] struct {
	Name  string
	Value T
}

// UnmarshalJSONFrom reads an object.
func (o *ordered[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() == jsontext.KindString {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		one := member[T]{Name: name.String()}
		if err := json.UnmarshalDecode(d, &one.Value); err != nil {
			return err
		}
		*o = append(*o, one)
	}
	_, err := d.ReadToken()
	return err
}

// of returns the member that a reference leads to.
func (o ordered[T]) of(ref string) (value T) {
	for _, one := range o {
		if strings.HasSuffix(ref, "/"+one.Name) {
			return one.Value
		}
	}
	return value
}

func (d *openAPI) view() *apiView {
	view := &apiView{Version: d.Info.Version, About: paragraphs(d.Info.Description)}
	for _, tag := range d.Tags {
		one := apiTag{ID: "tag-" + kebab(tag.Name), Name: tag.Name, About: paragraphs(tag.Description)}
		view.Tags = append(view.Tags, one)
	}
	for _, path := range d.Paths {
		var shared []parameter
		for _, one := range path.Value {
			if one.Name == "parameters" {
				mustDecode(one.Value, &shared)
				continue
			}
			var o operation
			mustDecode(one.Value, &o)
			for i := range view.Tags {
				if tag := &view.Tags[i]; tag.Name == o.Tags[0] {
					tag.add(d.operation(path.Name, one.Name, o, shared))
				}
			}
		}
	}
	for _, one := range d.Components.Schemas {
		s := apiSchema{ID: "schema-" + kebab(one.Name), Name: one.Name, About: paragraphs(one.Value.Description)}
		if s.Rows = rows(one.Value); len(s.Rows) == 0 {
			s.Type = words(one.Value)
		}
		view.Schemas = append(view.Schemas, s)
	}
	return view
}

func mustDecode(text jsontext.Value, into any) {
	if err := json.Unmarshal(text, into); err != nil {
		panic(fmt.Errorf("page: openapi.yaml: %w", err))
	}
}

// add adds an operation. Several methods of a path that do the same are one.
func (t *apiTag) add(o apiOperation) {
	if n := len(t.Operations); n > 0 && t.Operations[n-1].Path == o.Path && t.Operations[n-1].Summary == o.Summary {
		t.Operations[n-1].Methods += ", " + o.Methods
		return
	}
	t.Operations = append(t.Operations, o)
}

func (d *openAPI) operation(path, method string, o operation, shared []parameter) apiOperation {
	view := apiOperation{
		ID: "op-" + kebab(o.ID), Methods: strings.ToUpper(method), Path: path, Summary: o.Summary,
		About: paragraphs(o.Description), Bodies: bodies(o.Body.Content),
	}
	for _, roles := range o.Security {
		for _, classes := range roles {
			view.Classes = strings.Join(classes, " and ")
		}
	}
	for _, one := range slices.Concat(o.Parameters, shared) {
		if one.Ref != "" {
			one = d.Components.Parameters.of(one.Ref)
		}
		view.Parameters = append(view.Parameters, apiRow{
			Name: one.Name, In: one.In, Required: one.Required, Type: words(one.Schema), About: paragraphs(one.Description),
		})
	}
	for _, one := range o.Responses {
		of := one.Value
		if of.Ref != "" {
			of = d.Components.Responses.of(of.Ref)
		}
		answer := apiAnswer{Status: one.Name, About: paragraphs(of.Description), Bodies: bodies(of.Content)}
		for _, header := range of.Headers {
			answer.Headers = append(answer.Headers, header.Name)
		}
		view.Answers = append(view.Answers, answer)
	}
	slices.SortFunc(view.Answers, func(a, b apiAnswer) int { return cmp.Compare(a.Status, b.Status) })
	return view
}

func bodies(content ordered[media]) (list []apiBody) {
	for _, one := range content {
		body := apiBody{Media: one.Name, Type: words(one.Value.Schema)}
		for _, example := range one.Value.Examples {
			text := example.Value.Value
			if err := text.Indent(jsontext.WithIndent("  ")); err == nil {
				body.Examples = append(body.Examples, apiExample{example.Value.Summary, string(text)})
			}
		}
		list = append(list, body)
	}
	return list
}

// rows returns the properties of a schema.
func rows(s schema) (list []apiRow) {
	for _, one := range s.Properties {
		isRequired := slices.Contains(s.Required, one.Name)
		list = append(list, apiRow{
			Name: one.Name, Required: isRequired, Type: words(one.Value), About: paragraphs(one.Value.Description),
		})
	}
	return list
}

// words returns what a type is called.
func words(s schema) (list []typeWord) {
	say := func(format string, args ...any) { list = append(list, typeWord{Text: fmt.Sprintf(format, args...)}) }
	switch {
	case s.Ref != "":
		name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]
		list = append(list, typeWord{name, "#schema-" + kebab(name)})
	case len(s.Properties) == 0 && len(s.OneOf) > 0:
		for i, one := range s.OneOf {
			if i > 0 {
				say(" or ")
			}
			list = append(list, words(one)...)
		}
	case s.Items != nil:
		say("list of ")
		list = append(list, words(*s.Items)...)
	case s.Const != nil:
		say("%s", s.Const)
	case s.Enum != nil:
		for i, one := range s.Enum {
			if i > 0 {
				say(" or ")
			}
			say("%s", one)
		}
	case len(s.Properties) > 0:
		say("object of ")
		for i, one := range s.Properties {
			if i > 0 {
				say(", ")
			}
			say("%s: ", one.Name)
			list = append(list, words(one.Value)...)
		}
	case s.Type != nil:
		say("%s", strings.NewReplacer(`["`, "", `"]`, "", `","`, " or ", `"`, "").Replace(s.Type.String()))
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		say(", %s to %s", s.Minimum, s.Maximum)
	case s.Minimum != nil:
		say(", at least %s", s.Minimum)
	}
	if s.Default != nil {
		say(", by default %s", s.Default)
	}
	return list
}

// paragraphs returns a text by its paragraphs.
func paragraphs(text string) (list []prose) {
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var p prose
		for i, part := range strings.Split(paragraph, "`") {
			if part != "" {
				p = append(p, struct {
					Text string
					Code bool
				}{part, i%2 == 1})
			}
		}
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

var capital = regexp.MustCompile(`[A-Z]+`)

// kebab returns a name as the fragment of a link: setOverride as set-override.
func kebab(name string) string {
	name = capital.ReplaceAllStringFunc(name, func(s string) string { return "-" + strings.ToLower(s) })
	return strings.TrimPrefix(strings.ReplaceAll(name, " ", "-"), "-")
}
