package memcache

import (
	"context"
	"errors"
)

// SetServers is not built: the servers stay.
func (f *Fleet) SetServers(context.Context, []string) error {
	return errors.New("memcache: not built: the servers of a fleet cannot be changed while it runs")
}
