package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// wordsOf splits an identifier by camel case and underscores: "HTTPServer2" is "http" and
// "server". Words of one letter are no words.
func wordsOf(identifier string) (words []string) {
	letters := []rune(identifier)
	start := 0
	for i := 1; i <= len(letters); i++ {
		ends := i == len(letters) || letters[i] == '_' ||
			unicode.IsUpper(letters[i]) && !unicode.IsUpper(letters[i-1]) ||
			unicode.IsUpper(letters[i]) && i+1 < len(letters) && unicode.IsLower(letters[i+1])
		if !ends {
			continue
		}
		if word := strings.ToLower(strings.Trim(string(letters[start:i]), "_0123456789")); len(word) > 1 {
			words = append(words, word)
		}
		start = i
	}
	return words
}

// namesOf calls yield with each name that the file declares at package level, and those of
// methods, fields and methods of interfaces. Parameters and local variables do not count.
func namesOf(file *ast.File, yield func(string)) {
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			yield(d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					yield(s.Name.Name)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						yield(name.Name)
					}
				}
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		var fields *ast.FieldList
		switch t := node.(type) {
		case *ast.StructType:
			fields = t.Fields
		case *ast.InterfaceType:
			fields = t.Methods
		default:
			return true
		}
		for _, field := range fields.List {
			for _, name := range field.Names {
				yield(name.Name)
			}
		}
		return true
	})
}

// identifierWords returns the distinct words of each package's declared names.
func identifierWords(tree []source) map[string]map[string]bool {
	words := map[string]map[string]bool{}
	for _, file := range product(tree) {
		if words[file.folder] == nil {
			words[file.folder] = map[string]bool{}
		}
		namesOf(file.syntax, func(name string) {
			for _, word := range wordsOf(name) {
				words[file.folder][word] = true
			}
		})
	}
	return words
}

func identifierFigure(tree []source) figure {
	words := identifierWords(tree)
	largest := slices.SortedFunc(maps.Keys(words), func(a, b string) int {
		return cmp.Or(len(words[b])-len(words[a]), strings.Compare(a, b))
	})
	f := figure{name: "distinct words in declared names, the most in a package", aim: "at most 230"}
	for i, folder := range largest[:min(12, len(largest))] {
		f.details = append(f.details, fmt.Sprintf("%4d %s", len(words[folder]), folder))
		if i < 3 {
			f.value += fmt.Sprintf("%s %d, ", folder, len(words[folder]))
		}
	}
	f.value = strings.TrimSuffix(f.value, ", ")
	f.details = append(f.details, largest[0]+": "+strings.Join(slices.Sorted(maps.Keys(words[largest[0]])), " "))
	return f
}

// receiverOf returns the type whose method the function is; of a plain function "".
func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return ""
	}
	expression := f.Recv.List[0].Type
	for {
		switch e := expression.(type) {
		case *ast.StarExpr:
			expression = e.X
		case *ast.IndexExpr:
			expression = e.X
		case *ast.IndexListExpr:
			expression = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// methodFigure counts the methods of each type.
func methodFigure(tree []source) figure {
	methods := map[string]int{}
	for _, file := range product(tree) {
		for _, declaration := range file.syntax.Decls {
			if f, isFunc := declaration.(*ast.FuncDecl); isFunc && f.Recv != nil {
				methods[file.folder+"."+receiverOf(f)]++
			}
		}
	}
	most := slices.SortedFunc(maps.Keys(methods), func(a, b string) int {
		return cmp.Or(methods[b]-methods[a], strings.Compare(a, b))
	})
	f := figure{name: "methods on the largest type", aim: "at most 15"}
	for i, name := range most {
		if methods[name] > 15 {
			f.details = append(f.details, fmt.Sprintf("%4d %s", methods[name], name))
		}
		if i < 3 {
			f.value += fmt.Sprintf("%s %d, ", name, methods[name])
		}
	}
	f.value = strings.TrimSuffix(f.value, ", ")
	return f
}

// assertionFigure lists the interfaces of the module that the product asks a value for at
// run time, outside of HTTP, commands, load tests and test kits: v.(Interface), and cases of
// type switches.
func assertionFigure(tree []source) figure {
	interfaces := map[string]bool{}
	for _, file := range product(tree) {
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			if spec, isType := node.(*ast.TypeSpec); isType {
				if _, isInterface := spec.Type.(*ast.InterfaceType); isInterface {
					interfaces[spec.Name.Name] = true
				}
			}
			return true
		})
	}
	found := map[string]bool{}
	f := figure{name: "optional interfaces found by type assertion, beneath api", aim: "0"}
	for _, file := range product(tree) {
		if isAbove(file.folder) {
			continue
		}
		ask := func(expression ast.Expr) {
			var name string
			switch e := expression.(type) {
			case *ast.Ident:
				name = e.Name
			case *ast.SelectorExpr:
				name = e.Sel.Name
			}
			if interfaces[name] {
				found[name] = true
				f.details = append(f.details, file.path+": "+name)
			}
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.TypeAssertExpr:
				ask(n.Type)
			case *ast.TypeSwitchStmt:
				for _, clause := range n.Body.List {
					for _, expression := range clause.(*ast.CaseClause).List {
						ask(expression)
					}
				}
			}
			return true
		})
	}
	f.value = strings.TrimSpace(strconv.Itoa(len(found)) + " " + strings.Join(slices.Sorted(maps.Keys(found)), " "))
	return f
}

// isAbove reports whether a package is not part of the engine and its stores.
func isAbove(folder string) bool {
	for _, top := range []string{"api", "cmd", "deploy", "internal", "loadtest", "tracing"} {
		if folder == top || strings.HasPrefix(folder, top+"/") {
			return true
		}
	}
	return false
}
