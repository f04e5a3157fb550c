package counterd

import (
	"context"
	"os"
	"sync"
)

// life is the time from New to Close, with the goroutines that run in it.
type life struct {
	ctx     context.Context // ends with the life
	stop    context.CancelFunc
	mu      sync.Mutex // orders enter and end
	running sync.WaitGroup
	ending  sync.Once
	err     error // of the end
}

func newLife() *life {
	l := &life{}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// enter begins something that the end waits for until leave. It fails after the end.
func (l *life) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return ErrClosed
	}
	l.running.Add(1)
	return nil
}

func (l *life) leave() { l.running.Done() }

// end ends the life: it waits for what runs in it, and then calls closing, once.
func (l *life) end(closing func() error) {
	l.ending.Do(func() {
		l.mu.Lock()
		l.stop()
		l.mu.Unlock()
		l.running.Wait()
		l.err = closing()
	})
}

// relay calls each of ask for each value of the channel, until the end.
func (l *life) relay(asks <-chan os.Signal, ask ...func()) {
	if asks == nil || l.enter() != nil {
		return
	}
	go func() {
		defer l.leave()
		for {
			select {
			case <-l.ctx.Done():
				return
			case _, open := <-asks:
				if !open {
					return
				}
				for _, one := range ask {
					one()
				}
			}
		}
	}()
}
