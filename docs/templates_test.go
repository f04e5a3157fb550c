package docs_test

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const templates = "../.github/ISSUE_TEMPLATE/"

// issueForm is a form of GitHub for new issues.
type issueForm struct {
	Name, Description, Title string
	Labels, Assignees        []string
	Projects                 []string
	Type                     string
	Body                     []formElement
}

// formElement is what a form shows, or asks for.
type formElement struct {
	Type, ID   string
	Attributes struct {
		Label, Description, Placeholder, Value, Render string
		Options                                        []any
		Multiple                                       bool
		Default                                        int
	}
	Validations struct{ Required bool }
}

// readYAML reads a file that has keys of the value only.
func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(into), file)
}

// faultsOfForm returns what GitHub would not show.
func faultsOfForm(form issueForm) (faults []string) {
	if form.Name == "" || form.Description == "" {
		faults = append(faults, "no name, or no description")
	}
	var labels, ids []string
	for _, e := range form.Body {
		asks := slices.Contains([]string{"textarea", "input", "dropdown", "checkboxes"}, e.Type)
		switch {
		case e.Type == "markdown" && e.Attributes.Value == "":
			faults = append(faults, "text without a value")
		case e.Type == "markdown":
			continue
		case !asks:
			faults = append(faults, "no type: "+e.Type)
		case e.Attributes.Label == "" || slices.Contains(labels, e.Attributes.Label):
			faults = append(faults, "no label of its own: "+e.ID)
		case !regexp.MustCompile(`^[a-zA-Z0-9_-]+$`).MatchString(e.ID) || slices.Contains(ids, e.ID):
			faults = append(faults, "no id of its own: "+e.ID)
		case (e.Type == "dropdown" || e.Type == "checkboxes") == (len(e.Attributes.Options) == 0):
			faults = append(faults, "options: "+e.ID)
		}
		labels, ids = append(labels, e.Attributes.Label), append(ids, e.ID)
	}
	if len(ids) == 0 {
		faults = append(faults, "it asks for nothing")
	}
	return faults
}

// The forms for issues have the keys that GitHub needs, and no other.
func TestIssueForms(t *testing.T) {
	files, err := filepath.Glob(templates + "*.yml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		if filepath.Base(file) == "config.yml" {
			continue
		}
		var form issueForm
		readYAML(t, file, &form)
		assert.Empty(t, faultsOfForm(form), file)
	}
	var config struct {
		BlankIssuesEnabled *bool                               `yaml:"blank_issues_enabled"`
		ContactLinks       []struct{ Name, URL, About string } `yaml:"contact_links"`
	}
	readYAML(t, templates+"config.yml", &config)
	require.NotNil(t, config.BlankIssuesEnabled)
	require.Len(t, config.ContactLinks, 3)
	for _, contact := range config.ContactLinks {
		parsed, err := url.Parse(contact.URL)
		assert.True(t, err == nil && parsed.Scheme == "https" && contact.Name != "" && contact.About != "", "%+v", contact)
	}
}

func TestFaultsOfIssueForms(t *testing.T) {
	const begin, ask = "{name: A, description: B, body: [", "{type: input, id: a, attributes: {label: A}}"
	for text, fault := range map[string]string{
		"{name: A, body: [" + ask + "]}":                                       "no name, or no description",
		begin + "{type: markdown, attributes: {value: C}}]}":                   "it asks for nothing",
		begin + "{type: text, id: a, attributes: {label: A}}]}":                "no type: text",
		begin + "{type: input, id: a}]}":                                       "no label of its own: a",
		begin + ask + ", {type: input, id: a, attributes: {label: B}}]}":       "no id of its own: a",
		begin + "{type: dropdown, id: a, attributes: {label: A}}]}":            "options: a",
		begin + "{type: input, id: a, attributes: {label: A, options: [b]}}]}": "options: a",
		begin + "{type: markdown}, " + ask + "]}":                              "text without a value",
	} {
		var form issueForm
		require.NoError(t, yaml.Unmarshal([]byte(text), &form))
		assert.Equal(t, []string{fault}, faultsOfForm(form), text)
	}
}
