// Package page writes one HTML file with text, tables and plots.
//
// The file is complete: it has no script, font or image, makes no request, and has a policy
// that forbids them. It suits light and dark screens, phones, paper and screen readers.
// Every string is text, whatever it contains.
//
// Values are finite and 0 or more, on a logarithmic axis above 0. A point takes about 25 bytes of
// the file.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
)

// Page is one file.
type Page struct {
	Title, Subtitle string
	Sections        []Section
}

// Section shows its parts in this order, without the empty ones. An empty line in the text
// begins a paragraph, and other line ends are kept.
type Section struct {
	Title, Text string
	Table       *Table
	Plot        *Plot
}

// Table has its first column on the left, and the others, figures, on the right.
type Table struct {
	Head []string
	Rows [][]string
}

//go:embed page.html
var source string

//go:embed page.css
var style string

// Write writes the whole page.
func (p Page) Write(w io.Writer) error {
	parsed, err := template.New("page").Funcs(template.FuncMap{"paragraphs": paragraphs, "draw": draw}).Parse(source)
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	hash := sha256.Sum256([]byte(style))
	var out bytes.Buffer
	err = parsed.Execute(&out, map[string]any{
		"Title": p.Title, "Subtitle": p.Subtitle, "Style": template.CSS(style), "Sections": p.Sections,
		"Policy": "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; base-uri 'none'; form-action 'none'",
	})
	if err == nil {
		_, err = out.WriteTo(w)
	}
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}

// paragraphs returns the parts of a text between empty lines.
func paragraphs(text string) (list []string) {
	for paragraph := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		if paragraph = strings.Trim(paragraph, "\n"); paragraph != "" {
			list = append(list, paragraph)
		}
	}
	return list
}
