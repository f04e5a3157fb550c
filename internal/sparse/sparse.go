// Package sparse thins out what is logged again and again: of a store that is down
// one line a second says as much as one for each request.
package sparse

import (
	"errors"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// interval is the shortest time between two lines on one cause.
	interval = time.Second
	// maxCauses bounds the causes that are kept apart.
	maxCauses = 64
	// others is the cause of what comes beyond that.
	others = ""
)

// Lines decides which of many lines are written: of each cause at most one a
// second. The zero Lines is ready to use. It is safe for concurrent use.
type Lines struct {
	mu     sync.Mutex
	causes map[string]*cause
}

type cause struct {
	last       time.Time
	suppressed int64
	writing    bool
}

// CauseOf returns what errors of one cause have in common: their text, but for the
// port that a connection had on this side.
func CauseOf(err error) string {
	text := err.Error()
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Source != nil {
		text = strings.Replace(text, e.Source.String()+"->", "", 1)
	}
	return text
}

// Do calls write, unless that has been done for the same cause within the last
// second or is still being done. It tells it how many lines on that cause were left
// out since the last one. No lock is held meanwhile: where the log is blocked only
// the caller that writes waits for it.
func (l *Lines) Do(name string, write func(suppressed int64)) {
	c, suppressed, ok := l.begin(name, time.Now())
	if !ok {
		return
	}
	defer l.end(c)
	write(suppressed)
}

func (l *Lines) begin(name string, now time.Time) (c *cause, suppressed int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c = l.cause(name, now)
	if c.writing || !c.last.IsZero() && now.Sub(c.last) < interval {
		c.suppressed++
		return nil, 0, false
	}
	suppressed, c.suppressed = c.suppressed, 0
	c.last, c.writing = now, true
	return c, suppressed, true
}

func (l *Lines) end(c *cause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.writing = false
}

// cause returns the cause of that name. What is over makes room for it; where
// nothing is, it is one of the others.
func (l *Lines) cause(name string, now time.Time) *cause {
	if c := l.causes[name]; c != nil {
		return c
	}
	if len(l.causes) >= maxCauses {
		for old, c := range l.causes {
			if !c.writing && now.Sub(c.last) >= interval {
				delete(l.causes, old)
			}
		}
	}
	if len(l.causes) >= maxCauses {
		name = others
		if c := l.causes[name]; c != nil {
			return c
		}
	}
	if l.causes == nil {
		l.causes = map[string]*cause{}
	}
	c := &cause{}
	l.causes[name] = c
	return c
}
