// Command house prints what this repository weighs: the words of its identifiers and
// comments, its largest types, the size of the load tool and of the documents, and the
// files that one hit runs through.
//
//	go run ./internal/house          the table; "aim" is what each figure is held against
//	go run ./internal/house -v       with the packages, types and words behind the figures
//	go run ./internal/house -hit     counts the files of one hit, too; needs memcached
//	go run ./internal/house -words hierarchy
//	                                 lists the lines of a package, a file or a page whose words
//	                                 are to be replaced
//
// Its tests hold comments and documents to their vocabulary.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

func main() {
	root := flag.String("root", ".", "root of the repository")
	detailed := flag.Bool("v", false, "list what is behind the figures")
	hit := flag.Bool("hit", false, "build the server with coverage counters, and count the files that one hit runs through")
	words := flag.String("words", "", "list the lines of this `place`: a package, a file or a page, that hold a word to be replaced")
	flag.Parse()
	if *words != "" {
		if err := findWords(os.Stdout, *root, *words); err != nil {
			fmt.Fprintln(os.Stderr, "house:", err)
			os.Exit(1)
		}
		return
	}
	if err := report(os.Stdout, *root, *detailed, *hit); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

// figure is a row of the table.
type figure struct {
	name, value, aim string
	details          []string
}

func report(out io.Writer, root string, detailed, hit bool) error {
	tree, err := readTree(root)
	if err != nil {
		return err
	}
	documents, err := readDocuments(root)
	if err != nil {
		return err
	}
	figures := []figure{
		identifierFigure(tree),
		dialectFigure(tree, documents),
		retiredFigure(tree, documents),
		methodFigure(tree),
		assertionFigure(tree),
		lineFigure(tree),
		documentFigure(documents),
	}
	tool, err := loadtestFigure(root, tree)
	if err != nil {
		return err
	}
	figures = append(figures, tool)
	if hit {
		touched, err := hitFigure(root)
		if err != nil {
			return err
		}
		figures = append(figures, touched)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "figure\tnow\taim")
	for _, f := range figures {
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.name, f.value, f.aim)
	}
	if err := table.Flush(); err != nil || !detailed {
		return err
	}
	for _, f := range figures {
		if len(f.details) > 0 {
			fmt.Fprintf(out, "\n%s\n  %s\n", f.name, strings.Join(f.details, "\n  "))
		}
	}
	return nil
}
