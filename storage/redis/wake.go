package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// wake listens to the wake-ups of queues on one connection, and numbers them.
//
// A queue is listened to from its first Claim or Wait on. Its listening is confirmed
// by an event of its own, as is every reconnection: whatever was missed until then, a
// Wait from before it returns at once. So nothing is lost between a Claim and the
// Wait that follows, although neither waits for the confirmation.
type wake struct {
	keys   *keys
	client goredis.UniversalClient
	ctx    context.Context //nolint:containedctx // of the subscription; ended by Close

	turns sync.Mutex // one subscribes at a time, lest an older wish undoes a newer one

	mu      sync.Mutex // guards what follows; no I/O under it
	closed  bool
	pubsub  *goredis.PubSub // nil until the first queue
	queues  map[string]*heard
	last    storage.Since
	changed chan struct{} // closed at the next event

	reader sync.WaitGroup // the goroutines that read and subscribe; they end when pubsub is closed
}

// heard is what was heard of a queue: the number of its last event, and of the last
// that concerns those too who have no room for work.
type heard struct {
	work, alert storage.Since
	used        time.Time
}

func newWake(ctx context.Context, client goredis.UniversalClient, k *keys) *wake {
	return &wake{
		keys: k, client: client, ctx: ctx,
		queues: make(map[string]*heard), changed: make(chan struct{}),
	}
}

// since listens to these queues, and gives the number of the last event.
func (w *wake) since(queues []string) storage.Since {
	w.mu.Lock()
	now := time.Now()
	var fresh []string
	for _, q := range queues {
		h := w.queues[q]
		if h == nil && !w.closed {
			h = &heard{}
			w.queues[q] = h
			fresh = append(fresh, w.keys.channel(q))
		}
		if h != nil {
			h.used = now
		}
	}
	var stale []string
	if len(fresh) > 0 {
		stale = w.stale(now)
	}
	since, pubsub := w.last, w.pubsub
	if len(fresh) > 0 && pubsub == nil {
		pubsub = w.client.Subscribe(w.ctx)
		w.pubsub = pubsub
		// The events of go-redis come through a channel of its own; it reconnects.
		events := pubsub.ChannelWithSubscriptions(goredis.WithChannelHealthCheckInterval(pingEvery))
		w.reader.Go(func() { w.read(events) })
	}
	if len(fresh) > 0 { // nobody waits for it: the server may hang
		w.reader.Go(func() { w.subscribe(pubsub, fresh, stale) })
	}
	w.mu.Unlock()
	return since
}

// subscribe listens to channels, and no longer to those that are stale, unless somebody
// has asked for them again meanwhile.
func (w *wake) subscribe(pubsub *goredis.PubSub, fresh, stale []string) {
	w.turns.Lock()
	defer w.turns.Unlock()
	// An error is not the caller's: the connection is made anew and subscribes to
	// all that was asked for.
	_ = pubsub.Subscribe(w.ctx, fresh...)
	w.mu.Lock()
	stale = slices.DeleteFunc(stale, func(channel string) bool {
		return w.queues[w.keys.queueOf(channel)] != nil
	})
	w.mu.Unlock()
	if len(stale) > 0 {
		_ = pubsub.Unsubscribe(w.ctx, stale...)
	}
}

// staleAfter is how long a queue is listened to that nobody asks for.
const staleAfter = 5 * time.Minute

// stale forgets the queues that nobody asks for any more, and gives their channels.
// The caller holds mu.
func (w *wake) stale(now time.Time) []string {
	var channels []string
	for q, h := range w.queues {
		if now.Sub(h.used) > staleAfter {
			delete(w.queues, q)
			channels = append(channels, w.keys.channel(q))
		}
	}
	return channels
}

// known lists the queues that are listened to.
func (w *wake) known() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.queues))
}

// pingEvery is how long the connection may be silent before it is tested.
const pingEvery = 10 * time.Second

// read numbers events until the subscription is closed.
func (w *wake) read(events <-chan any) {
	for event := range events {
		switch e := event.(type) {
		case *goredis.Message:
			w.ring(w.keys.queueOf(e.Channel), strings.Contains(e.Payload, "c"))
		case *goredis.Subscription:
			if e.Kind == "subscribe" {
				w.ring(w.keys.queueOf(e.Channel), true)
			}
		}
	}
}

func (w *wake) ring(queue string, alert bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.queues[queue]
	if h == nil {
		return
	}
	w.last++
	h.work = w.last
	if alert {
		h.alert = w.last
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// close ends the subscription and waits for its goroutine.
func (w *wake) close() {
	w.mu.Lock()
	w.closed = true
	pubsub := w.pubsub
	close(w.changed)
	w.changed = make(chan struct{})
	w.mu.Unlock()
	if pubsub != nil {
		_ = pubsub.Close()
		w.reader.Wait()
	}
}

// Wait returns when there was an event in one of the queues since the Claim that gave
// req.Since. It costs the server nothing.
func (s *Storage) Wait(ctx context.Context, req storage.WaitRequest) error {
	if err := storage.CheckWait(&req); err != nil {
		return err
	}
	s.wake.since(req.Queues)
	for {
		happened, changed, err := s.wake.look(&req)
		if err != nil {
			return fmt.Errorf("redis: wait: %w", err)
		}
		if happened {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("redis: wait: %w", ctx.Err())
		}
	}
}

// look reports whether what req waits for has happened, and what to wait for if not.
func (w *wake) look(req *storage.WaitRequest) (happened bool, changed <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false, nil, storage.ErrClosed
	}
	for _, q := range req.Queues {
		h := w.queues[q]
		if h != nil && (h.alert > req.Since || h.work > req.Since && !req.CancelsOnly) {
			return true, nil, nil
		}
	}
	return false, w.changed, nil
}
