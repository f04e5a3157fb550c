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

// Section has what is not empty of it, in this order. An empty line in the text begins a
// new paragraph; other ends of lines are kept.
type Section struct {
	Title, Text string
	Table       *Table
	Plot        *Plot
}

// Table has its first column on the left, and the rest, figures, on the right. A row may
// be shorter than the head.
type Table struct {
	Head []string
	Rows [][]string
}

//go:embed page.html
var source string

//go:embed page.css
var style string

// Write writes the whole page, or nothing where it cannot be made.
func (p Page) Write(w io.Writer) error {
	parsed, err := template.New("page").Parse(source)
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	hash := sha256.Sum256([]byte(style))
	var out bytes.Buffer
	err = parsed.Execute(&out, sheetPage{
		Title:    p.Title,
		Subtitle: p.Subtitle,
		Style:    template.CSS(style),
		Policy:   "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; base-uri 'none'; form-action 'none'",
		Sections: sectionsOf(p.Sections),
	})
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	if _, err := out.WriteTo(w); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}

// sheetPage is the page as the template takes it.
type sheetPage struct {
	Title, Subtitle string
	Policy          string
	Style           template.CSS // that of this package
	Sections        []sheetSection
}

type sheetSection struct {
	ID         string
	Title      string
	Paragraphs []string
	Table      *Table
	Figure     *figure
}

func sectionsOf(sections []Section) []sheetSection {
	var list []sheetSection
	for i, s := range sections {
		made := sheetSection{ID: fmt.Sprintf("section-%d", i+1), Title: s.Title, Table: s.Table}
		for paragraph := range strings.SplitSeq(strings.ReplaceAll(s.Text, "\r\n", "\n"), "\n\n") {
			if paragraph = strings.Trim(paragraph, "\n"); paragraph != "" {
				made.Paragraphs = append(made.Paragraphs, paragraph)
			}
		}
		if s.Plot != nil {
			made.Figure = s.Plot.figure(fmt.Sprintf("plot-%d", i+1))
		}
		list = append(list, made)
	}
	return list
}
