package counterd

import (
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

// Rules are the events that a Limiter knows, and the limits of each. Rules come from ReadRules,
// ParseRules or RulesOf; the zero Rules are none, and an error wherever they are used.
type Rules struct{ parsed *events.Rules }

// ReadRules reads a rules file: YAML, as docs/rules.md describes it. The error lists all its
// faults, each with its line. A program that reads a newer version of the file puts it in force by [Limiter.SetRules].
func ReadRules(path string) (Rules, error) {
	parsed, err := rulesfile.Read(path)
	return Rules{parsed}, err
}

// ParseRules reads the text of a rules file. The error lists all its faults, each with its line.
//
// Programs that share a sliding-log go by the newer of their rules. A text has no time: if another
// release of a program has another text, set its time by [events.Rules.Modified] and use [RulesOf].
func ParseRules(text []byte) (Rules, error) {
	parsed, err := rulesfile.Parse(text)
	return Rules{parsed}, err
}

// RulesOf takes rules that a program made of the types of package events. Nothing may change in
// them afterwards.
func RulesOf(parsed *events.Rules) Rules {
	if parsed == nil {
		return Rules{}
	}
	return Rules{parsed.Hashed()}
}
