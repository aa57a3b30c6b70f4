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
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// wake listens to the wake-ups of queues on one connection.
//
// A queue is listened to from its first Claim or Wait on. Its listening is confirmed
// by an event of its own, as is every reconnection: whatever was missed until then, a
// Wait from before it returns at once. So nothing is lost between a Claim and the
// Wait that follows, although neither waits for the confirmation.
type wake struct {
	keys   *keys
	client goredis.UniversalClient
	ctx    context.Context //nolint:containedctx // of the subscription; ended by Close

	events wakeup.Stream
	turns  sync.Mutex // one subscribes at a time, lest an older wish undoes a newer one

	mu     sync.Mutex // guards what follows; no I/O under it
	closed bool
	pubsub *goredis.PubSub      // nil until the first queue
	used   map[string]time.Time // when a queue that is listened to was last asked for

	reader sync.WaitGroup // the goroutines that read and subscribe; they end when pubsub is closed
}

func newWake(ctx context.Context, client goredis.UniversalClient, k *keys) *wake {
	return &wake{keys: k, client: client, ctx: ctx, used: make(map[string]time.Time)}
}

// since listens to these queues, and gives the number of the last event.
func (w *wake) since(queues []string) storage.Since {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0
	}
	now := time.Now()
	var fresh []string
	for _, q := range queues {
		if _, known := w.used[q]; !known {
			fresh = append(fresh, w.keys.channel(q))
		}
		w.used[q] = now
	}
	var stale []string
	if len(fresh) > 0 {
		stale = w.stale(now)
	}
	pubsub := w.pubsub
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
	return w.events.Since()
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
		_, again := w.used[w.keys.queueOf(channel)]
		return again
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
	for q, used := range w.used {
		if now.Sub(used) > staleAfter {
			delete(w.used, q)
			w.events.Forget(q)
			channels = append(channels, w.keys.channel(q))
		}
	}
	return channels
}

// known lists the queues that are listened to.
func (w *wake) known() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.used))
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
	if _, known := w.used[queue]; known {
		w.events.Ring(alert, queue)
	}
}

// close ends the subscription and waits for its goroutine.
func (w *wake) close() {
	w.mu.Lock()
	w.closed = true
	pubsub := w.pubsub
	w.mu.Unlock()
	w.events.Close()
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
	if err := s.wake.events.Wait(ctx, req); err != nil {
		return fmt.Errorf("redis: wait: %w", err)
	}
	return nil
}
