package verify

import (
	"context"
	"net/http"
)

// RunAlone is Run where nobody else calls for the event of the targets, which Run cannot know
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
