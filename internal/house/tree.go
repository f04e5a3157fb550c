package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is one Go file of the repository.
type source struct {
	path   string // from the root, with slashes
	folder string
	test   bool
	lines  int
	syntax *ast.File
	places *token.FileSet
}

// line is one line of prose, with its number in its file.
type line struct {
	number int
	text   string
}

// readTree parses all Go files below the root, in the order of their paths. Folders that
// the go command ignores are left out.
func readTree(root string) (tree []source, err error) {
	positions := token.NewFileSet()
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if file != root && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(positions, file, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		tree = append(tree, source{
			path: relative, folder: filepath.ToSlash(filepath.Dir(relative)),
			test:  strings.HasSuffix(name, "_test.go"),
			lines: strings.Count(string(text), "\n"), syntax: syntax, places: positions,
		})
		return nil
	})
	slices.SortFunc(tree, func(a, b source) int { return strings.Compare(a.path, b.path) })
	return tree, err
}

// product returns the files without tests.
func product(tree []source) (files []source) {
	for _, file := range tree {
		if !file.test {
			files = append(files, file)
		}
	}
	return files
}

// commentLines returns the lines of all comments, without directives such as go:build.
func (s source) commentLines() (lines []line) {
	for _, group := range s.syntax.Comments {
		for _, comment := range group.List {
			if text, isLine := strings.CutPrefix(comment.Text, "//"); isLine && text != "" && text[0] != ' ' && text[0] != '\t' {
				continue // a directive
			}
			number := s.places.Position(comment.Pos()).Line
			for text := range strings.Lines(comment.Text) {
				lines = append(lines, line{number, strings.TrimSpace(text)})
				number++
			}
		}
	}
	return lines
}

// document is one page in Markdown.
type document struct {
	path, text string
}

// readDocuments returns the pages at the root and in docs.
func readDocuments(root string) (documents []document, err error) {
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		relative, err := filepath.Rel(root, page)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document{filepath.ToSlash(relative), string(text)})
	}
	return documents, nil
}

// prose returns the lines of a page outside of its blocks of code.
func (d document) prose() (lines []line) {
	inside, number := false, 0
	for text := range strings.Lines(d.text) {
		number++
		text = strings.TrimSpace(text)
		if strings.HasPrefix(text, "```") {
			inside = !inside
			continue
		}
		if !inside && text != "" {
			lines = append(lines, line{number, text})
		}
	}
	return lines
}
