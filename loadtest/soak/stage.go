package soak

import (
	"context"
	"errors"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/loadtest/fleet"
)

// rules are those of the processes. The limits are held against the oracle.
const rules = `
events:
  wide:   {retention: 24h, limits: [{per: user, rate: 1000000000/d, on_error: deny}]}
  narrow: {retention: 24h, limits: [{per: user, rate: [10/s, 40/10s, 150/m, 1000/d], on_error: deny}]}
  count:  {retention: 24h}
`

// stage are the children, and how to call them.
type stage struct {
	*fleet.Fleet
	clients []*client.Client
}

func newStage(ctx context.Context, config Config) (s *stage, err error) {
	s = new(stage)
	s.Fleet, err = fleet.Start(ctx, fleet.Config{
		Counterd: config.Counterd, Memcached: config.Memcached, Rules: rules,
		Processes: processes, Servers: servers, Replicas: copies, Timeout: timeout,
	})
	if err != nil {
		return s, err
	}
	for _, process := range s.Processes {
		c, err := client.New(client.Config{URL: "http://" + process.Addr, Conns: config.callers()})
		if err != nil {
			return s, errors.Join(err, s.close())
		}
		s.clients = append(s.clients, c)
	}
	return s, nil
}

func (s *stage) close() error {
	s.idle()
	return s.Close()
}

// idle closes the connections to the processes that nobody uses.
func (s *stage) idle() {
	for _, c := range s.clients {
		c.Close()
	}
}
