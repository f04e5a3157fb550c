// Package yamlfile decodes files of one YAML document, and names the line of what is no YAML.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/counterd/counterd/events"
)

// MaxSize is the most bytes that a file may have.
const MaxSize = 1 << 20

// Format is what faults say in files of one format.
type Format struct {
	TooLarge  string // with a %d for MaxSize
	Tag       string // the beginning of lines that are refused: %TAG, or % for all directives
	Directive string // of such a line
	Empty     string // how a file begins
	Second    string // what to do with a second document
	// Other are the keys that files of another format have, and what to do with such a file. If nil, files of any
	// format are decoded, otherwise objects of Kubernetes are not.
	Other map[string]string
}

// Decode reads the one document of a YAML file. Nothing is expanded: aliases stay nodes. The fault, if any, has no
// path; it has a line, unless the file is too large.
func Decode(data []byte, f Format) (*yaml.Node, *events.Fault) {
	if len(data) > MaxSize {
		return nil, &events.Fault{Reason: fmt.Sprintf(f.TooLarge, MaxSize)}
	}
	if at := invalidUTF8(data); at >= 0 {
		line, column := position(data, at)
		return nil, &events.Fault{Line: line, Column: column, Reason: "the file is not valid UTF-8"}
	}
	// A short %TAG can stand for a long text in each of a hundred thousand tags.
	if at := regexp.MustCompile(lineBreak + f.Tag).FindIndex(data); at != nil {
		line, _ := position(data, at[1]-1)
		return nil, &events.Fault{Line: line, Column: 1, Reason: f.Directive}
	}
	first, second, err := decodeTwo(bytes.NewReader(data))
	switch {
	case err != nil:
		return nil, syntaxFault(data, err)
	case first == nil || isEmpty(first):
		return nil, &events.Fault{Line: 1, Reason: "the file is empty: " + f.Empty}
	case second != nil:
		return nil, &events.Fault{Line: second.Line, Column: second.Column, Reason: "a second document begins here: " + f.Second}
	}
	return first.Content[0], otherFormat(first.Content[0], f)
}

// otherFormat returns the fault of a document in another format: of Kubernetes, or one that the format knows.
func otherFormat(root *yaml.Node, f Format) *events.Fault {
	fields := map[string][2]*yaml.Node{}
	for i := 0; f.Other != nil && root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		fields[root.Content[i].Value] = [2]*yaml.Node{root.Content[i], root.Content[i+1]}
	}
	for key, reason := range f.Other {
		if field, found := fields[key]; found {
			return &events.Fault{Line: field[0].Line, Column: field[0].Column, Reason: reason}
		}
	}
	kind, found := fields["kind"]
	if _, versioned := fields["apiVersion"]; !found || !versioned {
		return nil
	}
	name := "an object"
	if slices.Contains([]string{"ConfigMap", "Secret", "List"}, kind[1].Value) {
		name = "a " + kind[1].Value
	}
	return &events.Fault{
		Line: kind[0].Line, Column: kind[0].Column,
		Reason: "this is " + name + " of Kubernetes, not a file in it: mount it, and name the folder or file where it is mounted",
	}
}

const lineBreak = `(?:^\x{FEFF}?|[\n\r\x{85}\x{2028}\x{2029}])`

func isEmpty(document *yaml.Node) bool {
	return len(document.Content) != 1 || document.Content[0].ShortTag() == "!!null"
}

// decodeTwo reads up to two documents; a missing one is nil.
func decodeTwo(r io.Reader) (first, second *yaml.Node, err error) {
	// The package panics where it finds itself at fault.
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("yaml: %v", v)
		}
	}()
	decoder := yaml.NewDecoder(r)
	for _, document := range []**yaml.Node{&first, &second} {
		node := new(yaml.Node)
		switch err := decoder.Decode(node); {
		case errors.Is(err, io.EOF):
			return first, second, nil
		case err != nil:
			return nil, nil, err
		}
		*document = node
	}
	return first, second, nil
}

// What the YAML package says. Its idea of the line is often where the faulty
// mapping or list began, and is of use only for a quote that is never closed.
var (
	yamlPrefix    = regexp.MustCompile(`^yaml: (?:line \d+: )?`)
	unclosedQuote = regexp.MustCompile(`^yaml: line (\d+): found unexpected end of stream`)
	anchorName    = regexp.MustCompile(`(?s)anchor '.*' `) // a value that begins with & or *, perhaps
)

// mayBeTab matches what the package says of a tab in the indentation, and of others.
var mayBeTab = regexp.MustCompile(`cannot start any token|tab character`)

// indentedWithTab returns the one of two lines, from the one given on, that is indented
// with a tab; 0: neither is.
func indentedWithTab(data []byte, from int) int {
	number := 0
	for line := range bytes.Lines(data) {
		number++
		indentation := line[:len(line)-len(bytes.TrimLeft(line, " \t\r\n"))]
		if number >= from && len(indentation) < len(line) && bytes.ContainsRune(indentation, '\t') {
			return number
		}
		if number > from {
			break
		}
	}
	return 0
}

func syntaxFault(data []byte, err error) *events.Fault {
	text := err.Error()
	if match := unclosedQuote.FindStringSubmatch(text); match != nil {
		line, _ := strconv.Atoi(match[1])
		return &events.Fault{Line: line, Reason: "this is not YAML: a quote is not closed"}
	}
	at := syntaxLine(data)
	// What is at fault is in the line, or a little behind it.
	if tab := indentedWithTab(data, at); tab > 0 && mayBeTab.MatchString(text) {
		return &events.Fault{Line: tab, Reason: "this is not YAML: the line is indented with a tab: write spaces"}
	}
	return &events.Fault{Line: at, Reason: "this is not YAML: " + anchorName.ReplaceAllString(yamlPrefix.ReplaceAllString(text, ""), "anchor ")}
}

// syntaxLine returns the line at which data stops being YAML. The lines up to one
// settle that, which is found first; the fault is in it or, as the decoder reads
// ahead, a little before, behind the last lines that are YAML by themselves.
func syntaxLine(data []byte) int {
	const lookBack = 20
	ends := []int{0} // of so many lines
	for line := range bytes.Lines(bytes.TrimRight(data, " \t\r\n")) {
		ends = append(ends, ends[len(ends)-1]+len(line))
	}
	last := len(ends) - 1
	settled := min(last, sort.Search(len(ends), func(n int) bool { return isBeyondMending(data[:ends[n]]) }))
	for n := settled - 1; n >= max(0, settled-lookBack); n-- {
		if _, _, err := decodeTwo(bytes.NewReader(data[:ends[n]])); err == nil {
			return n + 1
		}
	}
	return max(1, settled)
}

// isBeyondMending reports whether no continuation could make data YAML: whether
// the decoder fails before it asks for more.
func isBeyondMending(data []byte) bool {
	_, _, err := decodeTwo(io.MultiReader(bytes.NewReader(data), askedForMore{}))
	return err != nil && !strings.Contains(err.Error(), errAskedForMore.Error())
}

var errAskedForMore = errors.New("events: the decoder asked for more")

// askedForMore fails with errAskedForMore.
type askedForMore struct{}

func (askedForMore) Read([]byte) (int, error) { return 0, errAskedForMore }

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(data []byte) int {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

// position returns the line and column of an offset.
func position(data []byte, offset int) (line, column int) {
	before := data[:offset]
	return 1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):])
}
