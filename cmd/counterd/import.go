package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/rls/rlsimport"
)

const importUsage = `counterd import ratelimit prints a configuration of envoyproxy/ratelimit, a file or a
folder of them, as a rules file: domains are events, and keys of descriptors are the
kinds that limits are per. Comments in it say what is decided or answered otherwise
than there. Files may have the same domain. Warnings of the configuration go to standard error.

Usage:
  counterd import ratelimit PATH
`

const importExamples = `
Example:
  counterd import ratelimit /data/ratelimit/config > rules.yaml
`

// importRules prints the configuration of another rate limiter as rules.
func importRules(_ context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("counterd import", stdout, importUsage, importExamples)
	if err := parse(flags, args); err != nil {
		return err
	}
	word := flags.Arg(0)
	if word != "" { // flags may be behind it, too
		if err := parse(flags, flags.Args()[1:]); err != nil {
			return err
		}
	}
	if flags.NArg() != 1 || word != "ratelimit" {
		return usageError("import takes the word ratelimit, and one file or folder")
	}
	config, err := rlsconfig.Read(flags.Arg(0))
	if err != nil {
		return err
	}
	rules, summary, err := rlsimport.Rules(config)
	if err != nil {
		return err
	}
	for _, warning := range config.Warnings {
		fmt.Fprintf(stderr, "counterd: warning: %v\n", warning)
	}
	if _, err = stdout.Write(rules); err != nil {
		return err
	}
	for _, warning := range warningsOf(summary) {
		fmt.Fprintf(stderr, "counterd: warning: %s\n", warning)
	}
	return nil
}

// warningsOf returns what the reader of imported rules must know.
func warningsOf(s rlsimport.Summary) (warnings []string) {
	var parts []string
	if s.LeftOut > 0 {
		parts = append(parts, "leave out "+countOf(s.LeftOut, "limit", "limits"))
	}
	if others := s.Differences - s.LeftOut; others > 0 {
		parts = append(parts, "differ from the configuration in "+countOf(others, "decision or answer", "decisions or answers"))
	}
	if len(parts) > 0 {
		warnings = append(warnings, "the rules "+strings.Join(parts, ", and ")+
			": comments in them say which, and why; -rls-config serves the configuration as it is")
	}
	if s.Limits == 0 {
		warnings = append(warnings, "the rules have no limits: they admit all hits")
	}
	return warnings
}

func countOf(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}
