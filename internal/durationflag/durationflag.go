// Package durationflag makes the errors of duration flags say what is wrong: package flag says
// "parse error" of -timeout 30, and this one "30 has no unit: write 30s, or 30ms".
package durationflag

import (
	"errors"
	"flag"
	"strconv"
	"time"
)

// Explain makes the duration flags of a set explain their errors until restore is called.
// Between the two the set is to parse its arguments; a help text looks at the flags outside.
func Explain(set *flag.FlagSet) (restore func()) {
	replaced := map[*flag.Flag]flag.Value{}
	set.VisitAll(func(f *flag.Flag) {
		if getter, is := f.Value.(flag.Getter); is {
			if _, is := getter.Get().(time.Duration); is {
				replaced[f] = f.Value
				f.Value = explained{f.Value}
			}
		}
	})
	return func() {
		for f, value := range replaced {
			f.Value = value
		}
	}
}

// explained is the value of a duration flag.
type explained struct{ flag.Value }

// Set sets the value, or says why it cannot.
func (e explained) Set(text string) error {
	if e.Value.Set(text) == nil {
		return nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return errors.New(text + " has no unit: write " + text + "s, or " + text + "ms")
	}
	return errors.New("it is written like 500ms, 30s, 15m or 1h30m")
}
