// Package client is the Go client of counterd's HTTP interface. A Client is safe
// for concurrent use and keeps its connections open; make one and share it.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

const (
	// DefaultTimeout is the longest that a call takes where its context sets no
	// earlier end.
	DefaultTimeout = 10 * time.Second
	// DefaultConns is how many idle connections are kept.
	DefaultConns = 64
)

// Features are the actor of an event: a value for each kind, as in {"ip": "192.0.2.1"}.
type Features = map[string]string

// Config sets up a Client. Only URL is needed.
type Config struct {
	URL string // the server's, as in http://127.0.0.1:8080
	// Token returns the token of each request: see TokenFile. If nil, requests carry no token.
	// New calls it once, and fails if there is no token that a header can carry. Over http every host on the path can
	// read the token.
	Token   func() (string, error)
	Timeout time.Duration // longest time for one call, with the wait for a turn in a queue; 0: DefaultTimeout
	Conns   int           // idle connections kept; 0: DefaultConns
	// MaxWaiting bounds the hits that wait for their turn where a rule has a queue; 0: memproto.DefaultMaxWaiting;
	// below 0: none waits, Decision.Wait says how long the caller has to, and Release gives its turn back.
	MaxWaiting int
	// NoCoalescing has each hit be a request of its own. Without it hits that are asked for while a request with hits is
	// under way go together with the next one, in the order of their calls, up to 1,000 at once. A hit that finds none
	// under way goes at once. So many callers get more hits decided, and one waits for up to two requests. While many hits
	// come, up to three requests go side by side, each with the hits of calls in a row.
	NoCoalescing bool
	// TLS is what https is spoken with: authorities, and a certificate to show; nil: the
	// system's authorities, and none.
	TLS *tls.Config
	// Transport makes the exchanges; nil: one of the client's own, which Conns and TLS
	// apply to. The client sends no traceparent and no X-Request-Id: one that takes them
	// from the context carries them on. Hits that go together have the context of the first.
	Transport http.RoundTripper
}

// Client calls one counterd server.
type Client struct {
	server    server
	coalescer *coalescer // nil: each hit is a request
	turns     wire.Turns
}

// New returns a client of the server at the config's URL. Its error wraps ErrInvalid.
func New(config Config) (*Client, error) {
	base, err := url.Parse(config.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%w: the server's URL is written like http://127.0.0.1:8080", ErrInvalid)
	}
	if config.Timeout < 0 || config.Conns < 0 {
		return nil, fmt.Errorf("%w: the timeout and the number of connections are not below 0", ErrInvalid)
	}
	if _, err := readToken(config.Token); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	transport := config.Transport
	if transport == nil {
		own := defaultTransport()
		own.MaxIdleConns = cmp.Or(config.Conns, DefaultConns)
		own.MaxIdleConnsPerHost = own.MaxIdleConns
		own.TLSClientConfig = config.TLS.Clone()
		own.MaxResponseHeaderBytes = maxHeader
		transport = own
	}
	timeout := cmp.Or(config.Timeout, DefaultTimeout)
	c := &Client{turns: wire.NewTurns(config.MaxWaiting), server: server{base: base, token: config.Token, most: maxAnswer, http: &http.Client{
		Transport: transport,
		Timeout:   timeout,
		// counterd never redirects. A proxy that does would get the features, and a POST
		// would become a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}}
	if !config.NoCoalescing {
		c.coalescer = &coalescer{server: c.server, timeout: timeout}
	}
	return c, nil
}

// defaultTransport returns one like net/http's, also where the program has replaced that.
func defaultTransport() *http.Transport {
	if own, ok := http.DefaultTransport.(*http.Transport); ok {
		return own.Clone()
	}
	return &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second}
}

// Close closes the idle connections.
func (c *Client) Close() { c.server.http.CloseIdleConnections() }

// Increment adds by, 1 to 1,000,000, to the counters of the event: one for each
// of the features and for each combination of them that a rule names. The zero
// time is now. An ErrUnavailable leaves open what was counted.
func (c *Client) Increment(ctx context.Context, event string, features Features, by int64, at time.Time) (wire.Incremented, error) {
	var done wire.Incremented
	body := wire.Increment{Features: features, By: &by}
	if !at.IsZero() {
		body.At = wire.Moment{Time: at}
	}
	err := c.server.callOn(ctx, event, http.MethodPost, "increment", nil, body, &done)
	return done, err
}

// Count returns the exact sum of one counter over a window, in whole seconds,
// that ends at the moment at; the zero time is now.
func (c *Client) Count(ctx context.Context, event string, features Features, window time.Duration, at time.Time) (wire.Count, error) {
	if window < time.Second || window%time.Second != 0 {
		return wire.Count{}, fmt.Errorf("%w: the window, %s, is not in whole seconds, at least 1s", ErrInvalid, window)
	}
	query := featureQuery(features)
	query.Set("window", events.FormatDuration(window))
	setMoment(query, "at", at)
	count := wire.Count{Count: -1} // until it is read
	if err := c.server.callOn(ctx, event, http.MethodGet, "count", query, nil, &count); err != nil {
		return wire.Count{}, err
	}
	return count, nil
}

// History returns the buckets of one counter at a level: second, minute, hour or
// day. The zero times are as far back as it is remembered, and now. The outcome is denied for
// the hits that its limits denied, which have no seconds; admitted or empty for what it counts.
func (c *Client) History(ctx context.Context, event string, features Features, level string, from, to time.Time, outcome string) (wire.History, error) {
	var history wire.History
	query := featureQuery(features)
	query.Set("level", level)
	setMoment(query, "from", from)
	setMoment(query, "to", to)
	if outcome != "" {
		query.Set("outcome", outcome)
	}
	err := c.server.callOn(ctx, event, http.MethodGet, "history", query, nil, &history)
	return history, err
}

// Reset forgets the one counter of those features together.
func (c *Client) Reset(ctx context.Context, event string, features Features) error {
	return c.server.callOn(ctx, event, http.MethodDelete, "counters", featureQuery(features), nil, nil)
}

// Hit adds a hit of that cost, 0 to 1,000,000, to the counters of the event that
// its rules name, and returns whether the rules admit it. A denial is no error:
// Decision.Allowed says it. An ErrUnavailable is a rule that refuses what cannot be
// decided, or leaves open whether the hit was counted. If the context ends, Hit returns at once; it has no effect on hits
// that go together with this one, whose decisions are as if they came one after the other, in the order of their calls:
// a denial's limits may have the counts after all of them.
//
// Where a rule has a queue, Hit returns when the turn of an admitted hit has come. If the context or the timeout ends
// before, or too many hits wait, it gives the turn back, with all that the hit counts, and returns the
// decision, no longer allowed, and an ErrUnavailable: within two seconds, as far as it depends on the server.
func (c *Client) Hit(ctx context.Context, event string, features Features, cost int64) (wire.Decision, error) {
	return c.decide(ctx, event, wire.Hit{Features: features, Cost: &cost})
}

// Reserve is Hit with a cost that is an estimate, which Settle replaces within the time d, in whole seconds up
// to 24h. After it, the estimate counts. Decision.Reservation names what was reserved; so it does without a
// call of Reserve where a limit is on leases.
func (c *Client) Reserve(ctx context.Context, event string, features Features, cost int64, d time.Duration) (wire.Decision, error) {
	reserve := events.FormatDuration(d)
	return c.decide(ctx, event, wire.Hit{Features: features, Cost: &cost, Reserve: &reserve})
}

// Settle replaces the cost that was reserved by the true one, 0 to 1,000,000, and releases the leases of the
// reservation. It may be repeated: with another cost the error is an ErrConflict, after its time an ErrEnded.
func (c *Client) Settle(ctx context.Context, reservation string, cost int64) error {
	_, err := settle(ctx, c.server, wire.Settle{Reservation: reservation, Cost: &cost})
	return err
}

// Release settles a reservation with the cost 0: what was reserved is given back, and the leases are free.
func (c *Client) Release(ctx context.Context, reservation string) error {
	return c.Settle(ctx, reservation, 0)
}

// Renew has the leases of the reservation end no sooner than that after now, at most as long as a lease, and returns the
// reservation to renew next. If one has ended it is an ErrEnded, and all are released. After any other error
// they are as they were, or end later: repeat the call.
func (c *Client) Renew(ctx context.Context, reservation string, by time.Duration) (string, error) {
	renew := events.FormatDuration(by)
	settled, err := settle(ctx, c.server, wire.Settle{Reservation: reservation, Renew: &renew})
	return settled.Reservation, err
}

func settle(ctx context.Context, s server, in wire.Settle) (settled wire.Settled, err error) {
	err = s.call(ctx, http.MethodPost, s.base.JoinPath("v1", "settle"), nil, in, &settled)
	done := settled.Settled
	if in.Renew != nil {
		done = settled.Reservation != ""
	}
	if err == nil && !done {
		err = fmt.Errorf("%w: the answer does not say that it is done", ErrUnexpected)
	}
	return settled, err
}

// decide returns the decision of a hit when it comes, and when its turn comes.
func (c *Client) decide(ctx context.Context, event string, hit wire.Hit) (wire.Decision, error) {
	end := time.Now().Add(c.server.http.Timeout)
	var decision wire.Decision
	var err error
	if c.coalescer == nil {
		decision, err = c.server.hit(ctx, event, hit)
	} else {
		decision, err = c.coalescer.decide(ctx, event, hit)
	}
	if err != nil {
		return wire.Decision{}, err
	}
	if err := awaitTurn(ctx, c.turns, decision, end); err != nil {
		decision.Allowed = false
		return decision, errors.Join(err, giveBack(ctx, c.server, decision.Reservation))
	}
	return decision, nil
}

// Check returns the decision that a hit would get, with exact counts, and adds
// nothing.
func (c *Client) Check(ctx context.Context, event string, features Features, cost int64) (wire.Decision, error) {
	var decision wire.Decision
	query := featureQuery(features)
	query.Set("cost", strconv.FormatInt(cost, 10))
	err := c.server.callOn(ctx, event, http.MethodGet, "check", query, nil, &decision)
	return decision, err
}

// Explain returns the decision that a hit would get, as Check does, and for each of its limits what the count consists
// of, and when room returns.
func (c *Client) Explain(ctx context.Context, event string, features Features, cost int64) (wire.Explained, error) {
	var explained wire.Explained
	query := featureQuery(features)
	query.Set("cost", strconv.FormatInt(cost, 10))
	err := c.server.callOn(ctx, event, http.MethodGet, "explain", query, nil, &explained)
	return explained, err
}

// MaxTop is the most features that a Top has.
const MaxTop = 1000

// TopQuery says what a Top is of.
type TopQuery struct {
	Outcome string        // denied or admitted; empty: denied
	Event   string        // empty: all events
	N       int           // at most so many features, up to MaxTop; 0: 20
	Window  time.Duration // in whole minutes, up to an hour; 0: an hour
	Alone   bool          // of that process alone, without its peers
}

// Top returns the features with the most hits, as the server, and its peers if it has some, have decided them. An
// answer of more than 4 MiB is an ErrUnexpected: ask for fewer features.
func (c *Client) Top(ctx context.Context, q TopQuery) (wire.Top, error) {
	var top wire.Top
	query := url.Values{}
	for name, value := range map[string]string{"outcome": q.Outcome, "event": q.Event} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if q.N != 0 {
		query.Set("limit", strconv.Itoa(q.N))
	}
	if q.Window != 0 {
		query.Set("window", events.FormatDuration(q.Window))
	}
	if q.Alone {
		query.Set("peers", "false")
	}
	bounded := c.server
	bounded.most = maxTopAnswer
	err := bounded.call(ctx, http.MethodGet, bounded.base.JoinPath("v1", "top"), query, nil, &top)
	return top, err
}

// Overrides returns the temporary overrides in force.
func (c *Client) Overrides(ctx context.Context) ([]wire.Override, error) {
	var all wire.Overrides
	err := c.server.call(ctx, http.MethodGet, c.server.base.JoinPath("v1", "overrides"), nil, nil, &all)
	return all.Overrides, err
}

// SetOverride sets a temporary override. All processes decide by it two seconds later. It may be repeated.
func (c *Client) SetOverride(ctx context.Context, event string, o wire.SetOverride) (wire.Override, error) {
	var set wire.Override
	err := c.server.callOn(ctx, event, http.MethodPost, "override", nil, o, &set)
	return set, err
}

// RemoveOverride ends a temporary override, and returns whether there was one. It may be repeated.
func (c *Client) RemoveOverride(ctx context.Context, event, kind, value string) (bool, error) {
	var removed wire.RemovedOverride
	err := c.server.callOn(ctx, event, http.MethodDelete, "override", featureQuery(Features{kind: value}), nil, &removed)
	return removed.Removed, err
}

// Batch adds and decides 1 to 1,000 hits in one exchange, those on the same
// counter in their order. It returns one result for each, in their order: a
// decision, or the problem of a hit that was at fault. It does not wait for turns in queues: Decision.Wait says
// how long the caller has to.
func (c *Client) Batch(ctx context.Context, hits []wire.BatchHit) ([]wire.Result, error) {
	answer, err := c.server.exchange(ctx, http.MethodPost, c.server.base.JoinPath(batchPath...), nil, wire.Batch{Hits: hits})
	if err != nil {
		return nil, err
	}
	defer answer.free()
	return answer.results(len(hits))
}

// Events returns the rules in force.
func (c *Client) Events(ctx context.Context) (wire.Events, error) {
	var all wire.Events
	err := c.server.call(ctx, http.MethodGet, c.server.base.JoinPath("v1", "events"), nil, nil, &all)
	return all, err
}

// Event returns the rules in force of one event.
func (c *Client) Event(ctx context.Context, event string) (wire.Event, error) {
	var one wire.Event
	err := c.server.callOn(ctx, event, http.MethodGet, "", nil, nil, &one)
	return one, err
}

func featureQuery(features Features) url.Values {
	query := url.Values{}
	for _, kind := range slices.Sorted(maps.Keys(features)) {
		query.Add("feature", kind+":"+features[kind])
	}
	return query
}

func setMoment(query url.Values, name string, at time.Time) {
	if !at.IsZero() {
		query.Set(name, at.UTC().Format(time.RFC3339))
	}
}

// errNoToken is the error of a file that is empty or contains more than one word.
var errNoToken = errors.New("write one token into the file, and nothing else")

// TokenFile returns a function that reads the token from the file at each call: a token
// that is replaced there is sent from then on. Replace the file by a rename, so that no
// reader sees half of it.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		words := strings.Fields(string(text))
		if len(words) != 1 {
			return "", fmt.Errorf("%s: %w", path, errNoToken)
		}
		return words[0], nil
	}
}
