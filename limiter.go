package counterd

import (
	"sync"

	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/settings"
)

// Limiter decides hits and counts events. It is safe for concurrent use, and one serves a whole
// program. Close ends it.
type Limiter struct {
	parts   *assembly.Parts
	service *service.Service
	closing sync.Once
	err     error // of Close
}

// New returns a Limiter by those rules. Servers that do not answer are no error: the rules say
// what is decided without them. The error lists all faults of the options, or says why a file or
// a server's name cannot be used.
func New(rules Rules, options ...Option) (*Limiter, error) {
	c := assembly.Config{Settings: settings.Default()}
	s := &c.Settings
	for _, option := range options {
		if option == nil {
			s.Invalid = append(s.Invalid, errorf(ErrInvalid, "an option is nil"))
			continue
		}
		option(&c)
	}
	if rules.parsed == nil {
		s.Invalid = append(s.Invalid, errNoRules)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	c.Rules = assembly.NewRules(rules.parsed)
	parts, err := assembly.Open(c)
	if err != nil {
		return nil, err
	}
	settings.LogWarnings(s.Log, "rules", "counterd validate", rules.parsed.Warnings)
	return &Limiter{parts: parts, service: parts.Service}, nil
}

// Parts returns what packages api, api/page and metrics take of a Limiter. Programs pass them the Limiter itself.
func (l *Limiter) Parts() *assembly.Parts { return l.parts }

// SetRules puts other rules in force. Calls under way finish by the rules that they began with.
// A limit whose counter was not kept before says that it is incomplete until its window has
// passed. Rules that the limiter cannot keep are an error, and change nothing.
func (l *Limiter) SetRules(rules Rules) error {
	if rules.parsed == nil {
		return errNoRules
	}
	return l.parts.SetRules(rules.parsed)
}

// Close waits for the calls under way, at most for the timeout of the store, and joins all goroutines. Later calls
// fail with ErrClosed, and requests are answered 503. Close may be called again.
func (l *Limiter) Close() error {
	l.closing.Do(func() { l.err = l.parts.Close() })
	return l.err
}
