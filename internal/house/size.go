package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// lineFigure counts lines of Go, blank lines and comments included.
func lineFigure(tree []source) figure {
	var code, tests int
	byTop := map[string][2]int{}
	for _, file := range tree {
		top, _, _ := strings.Cut(file.folder, "/")
		n := byTop[top]
		if file.test {
			tests += file.lines
			n[1] += file.lines
		} else {
			code += file.lines
			n[0] += file.lines
		}
		byTop[top] = n
	}
	f := figure{name: "lines of Go", value: fmt.Sprintf("%d, tests %d", code, tests)}
	var tops []string
	for top := range byTop {
		tops = append(tops, top)
	}
	slices.Sort(tops)
	for _, top := range tops {
		f.details = append(f.details, fmt.Sprintf("%6d, tests %6d %s", byTop[top][0], byTop[top][1], top))
	}
	return f
}

// documentFigure counts words as wc -w does.
func documentFigure(documents []document) figure {
	total := 0
	f := figure{name: "words of README and docs", aim: "at most 28000"}
	for _, d := range documents {
		n := len(strings.Fields(d.text))
		total += n
		f.details = append(f.details, fmt.Sprintf("%6d %s", n, d.path))
	}
	f.value = fmt.Sprint(total)
	return f
}

var (
	commandLine = regexp.MustCompile(`(?m)^  loadtest ([a-z]+) `)
	flagLine    = regexp.MustCompile(`(?m)^  -([a-z0-9-]+)`)
)

// loadtestFigure weighs the load tool. Commands and flags are those of its help texts; a flag
// that several commands have counts once.
func loadtestFigure(root string, tree []source) (figure, error) {
	var lines, tests int
	packages := map[string]bool{}
	for _, file := range tree {
		switch {
		case file.folder != "loadtest" && !strings.HasPrefix(file.folder, "loadtest/"):
		case file.test:
			tests += file.lines
		default:
			lines += file.lines
			packages[file.folder] = true
		}
	}
	f := figure{name: "loadtest", aim: "at most 14000 lines"}
	folder, err := os.MkdirTemp("", "house-")
	if err != nil {
		return figure{}, err
	}
	defer os.RemoveAll(folder)
	tool := filepath.Join(folder, "loadtest")
	build := exec.Command("go", "build", "-o", tool, "./loadtest")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return figure{}, fmt.Errorf("building loadtest: %w: %s", err, out)
	}
	help := func(args ...string) (string, error) {
		text, err := exec.Command(tool, args...).Output()
		if err != nil {
			return "", fmt.Errorf("loadtest %s: %w", strings.Join(args, " "), err)
		}
		return string(text), nil
	}
	usage, err := help("-h")
	if err != nil {
		return figure{}, err
	}
	var flags []string
	commands := commandLine.FindAllStringSubmatch(usage, -1)
	for _, command := range commands {
		text, err := help(command[1], "-h")
		if err != nil {
			return figure{}, err
		}
		var own []string
		for _, match := range flagLine.FindAllStringSubmatch(text, -1) {
			own = append(own, match[1])
		}
		f.details = append(f.details, fmt.Sprintf("%3d flags of %s", len(own), command[1]))
		flags = append(flags, own...)
	}
	slices.Sort(flags)
	flags = slices.Compact(flags)
	f.value = fmt.Sprintf("%d lines (tests %d), %d packages, %d commands, %d flags", lines, tests, len(packages), len(commands), len(flags))
	return f, nil
}
