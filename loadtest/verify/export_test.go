package verify

import (
	"context"
	"net/http"
	"time"
)

// RunAlone is Run where no other client calls for the event of the targets, which Run cannot know
// of those of others.
func RunAlone(ctx context.Context, config Config) (*Report, error) {
	r := newRun(config)
	r.alone = true
	return r.run(ctx)
}

// Over returns the config with calls made by a transport.
func Over(config Config, transport http.RoundTripper) Config {
	config.transport = transport
	return config
}

// RunFor is RunAlone for a time in which one log after the other gets full, as in a soak.
func RunFor(ctx context.Context, config Config, length time.Duration) (report *Report, rounds int, err error) {
	config.Soak = true
	r := newRun(config)
	r.alone = true
	if err := r.prepare(ctx, config.URLs); err != nil {
		return nil, 0, err
	}
	err = r.load(ctx, length)
	return r.finish(ctx), r.rounds, err
}

// Tolerant returns the config with calls that may take so much longer than the timeout.
func Tolerant(config Config, slack time.Duration) Config {
	config.maxSlack = slack
	return config
}
