package rlsconfig

import (
	"strconv"
	"strings"
	"time"
)

// Succeed has the limits of c say since when their counters are kept, if c takes over from a previous configuration at
// that time: what it has that the previous one has not, of a path or a window, is kept from then on. So are limits
// of the same keys as one that is gone, since they apply to what that one applied to. It is called before c is used.
func (c *Config) Succeed(previous *Config, now time.Time) {
	before, gone := make(map[string]*Limit), make(map[string]bool)
	for _, limit := range previous.limits {
		before[limit.counted()] = limit
		gone[limit.keys()] = false
	}
	after := make(map[string]bool)
	for _, limit := range c.limits {
		after[limit.counted()] = true
	}
	for _, limit := range previous.limits {
		if !after[limit.counted()] {
			gone[limit.keys()] = true
		}
	}
	for _, limit := range c.limits {
		if limit.Unlimited {
			continue
		}
		of := &limit.Rule.Limits[0]
		was := before[limit.counted()]
		switch {
		case was == nil || gone[limit.keys()]:
			of.Since = now.Unix()
		case was.Rule.Limits[0].Since+int64(of.Window/time.Second) > now.Unix():
			of.Since = was.Rule.Limits[0].Since
		}
	}
}

// counted returns what the limit counts, and in which windows.
func (l *Limit) counted() string {
	return l.quoted(func(entry Entry) string { return strconv.Quote(entry.Key) + strconv.Quote(entry.Value) }) +
		l.Window().String() + strconv.FormatBool(l.ShareThreshold)
}

// keys returns the keys of the limit's path.
func (l *Limit) keys() string {
	return l.quoted(func(entry Entry) string { return strconv.Quote(entry.Key) })
}

func (l *Limit) quoted(of func(Entry) string) string {
	var b strings.Builder
	b.WriteString(strconv.Quote(l.Domain))
	for _, entry := range l.Path {
		b.WriteString(of(entry))
	}
	return b.String()
}
