package settings

import (
	"errors"
	"regexp"
	"strings"

	"github.com/counterd/counterd/events"
)

// Fault is what is wrong with a setting. Its text names settings as the options of the root
// package; Spell names them otherwise.
type Fault struct {
	Setting string
	Reason  string // other settings stand in braces: {memcached-tls}
	Cause   error  // nil, or what ends the text
}

func (f *Fault) Error() string { return "counterd: " + f.spell(OptionName) }

func (f *Fault) Unwrap() error { return f.Cause }

// Is reports whether the target is the cause of all faults.
func (f *Fault) Is(target error) bool { return target == events.ErrInvalid }

// named is a setting within a reason.
var named = regexp.MustCompile(`\{[a-z-]+\}`)

func (f *Fault) spell(name func(setting string) string) string {
	var parts []string
	if f.Setting != "" {
		parts = append(parts, name(f.Setting))
	}
	if f.Reason != "" {
		parts = append(parts, named.ReplaceAllStringFunc(f.Reason, func(braced string) string { return name(strings.Trim(braced, "{}")) }))
	}
	if f.Cause != nil {
		parts = append(parts, f.Cause.Error())
	}
	return strings.Join(parts, ": ")
}

// Spell returns the text of an error, with settings named by name: a line for each fault.
func Spell(err error, name func(setting string) string) string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var lines []string
		for _, one := range joined.Unwrap() {
			lines = append(lines, Spell(one, name))
		}
		return strings.Join(lines, "\n")
	}
	if fault, ok := errors.AsType[*Fault](err); ok && error(fault) == err {
		return fault.spell(name)
	}
	return err.Error()
}

// FlagName names a setting as the command does.
func FlagName(setting string) string { return "-" + setting }

// initialisms are the words of settings that are written in capitals.
var initialisms = map[string]string{"ca": "CA", "otlp": "OTLP", "rls": "RLS", "tls": "TLS"}

// OptionName names a setting as the root package does: max-pending is WithMaxPending.
func OptionName(setting string) string {
	name := "With"
	for word := range strings.SplitSeq(setting, "-") {
		if capitals, ok := initialisms[word]; ok {
			name += capitals
			continue
		}
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}
