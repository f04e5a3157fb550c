package memcache

import (
	"context"
	"slices"
	"time"

	"github.com/counterd/counterd/internal/replica"
)

// dropAlias stops using a server whose name leads to the server of another name in the list, until its name leads to a
// server of its own. If the list is being changed, it does nothing: the next look at the server calls it again.
func (f *Fleet) dropAlias(s *server) {
	if !f.changing.TryLock() {
		return
	}
	defer f.changing.Unlock()
	if !slices.Contains(f.servers, s) {
		return
	}
	_, used := s.examiner.memory.NameFaults()
	f.aliases[s.Name()] = true
	if f.setServers(f.looking, f.namesToUse()) != nil { // it is closed
		return
	}
	looking := f.looking
	f.leaving.Go(func() { f.awaitOwnServer(looking, s, used) })
}

// awaitOwnServer looks at an alias of the server called used, and takes it back when its name leads to a server that is
// not in the list. It ends with the context.
func (f *Fleet) awaitOwnServer(ctx context.Context, s *server, used string) {
	for rest(ctx, s.examiner.compares) {
		if back := f.takeBack(ctx, s, used); back != nil {
			back.changed(Back)
			return
		}
	}
}

// takeBack uses the server of a name that was an alias, if it is not one now, and returns that server. It returns nil if it
// is one, if that is not known, or if the list is being changed: the next look tries again.
func (f *Fleet) takeBack(ctx context.Context, s *server, used string) *server {
	deadline := time.Now().Add(f.common.Timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	own := false
	err := s.examiner.onMarker(ctx, deadline, func(item replica.MarkerItem) (err error) {
		own, err = f.set.LeadsElsewhere(ctx, item, used)
		return err
	})
	if err != nil || !own || !f.changing.TryLock() {
		return nil
	}
	defer f.changing.Unlock()
	if ctx.Err() != nil { // perhaps the list was changed since
		return nil
	}
	delete(f.aliases, s.Name())
	if err := f.setServers(ctx, f.namesToUse()); err != nil {
		f.aliases[s.Name()] = true
		return nil
	}
	return f.servers.named(s.Name())
}

// namesToUse returns the names of the last SetServers without the aliases. The list is locked.
func (f *Fleet) namesToUse() []string {
	return slices.DeleteFunc(slices.Clone(f.names), func(name string) bool { return f.aliases[name] })
}
