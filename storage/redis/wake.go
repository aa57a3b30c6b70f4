package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// wake listens to the wake-ups of queues on one connection.
//
// It listens to a queue from the first Claim or Wait for it on. The confirmation of a subscription
// counts as an event of the queue, also after each reconnection. So a Wait that began before it returns
// at once, and no wake-up that was missed until then is lost. Neither a Claim nor the Wait that follows
// it waits for the confirmation.
type wake struct {
	keys   *keys
	client goredis.UniversalClient
	ctx    context.Context //nolint:containedctx // of the subscription; ended by Close

	events wakeup.Stream
	turns  sync.Mutex // held while subscribing, so that an older change does not undo a newer one

	mu     sync.Mutex // guards closed, pubsub and used; no I/O under it
	closed bool
	pubsub *goredis.PubSub      // nil until the first queue
	used   map[string]time.Time // when a Claim or Wait last named a queue, by queue with a subscription

	reader sync.WaitGroup // the goroutines that read and subscribe; they end when pubsub is closed
}

func newWake(ctx context.Context, client goredis.UniversalClient, k *keys) *wake {
	return &wake{keys: k, client: client, ctx: ctx, used: make(map[string]time.Time)}
}

// listen listens to these queues from now on.
func (w *wake) listen(queues []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
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
		// go-redis sends the events through this channel, and reconnects by itself.
		events := pubsub.ChannelWithSubscriptions(goredis.WithChannelHealthCheckInterval(pingEvery))
		w.reader.Go(func() { w.read(events) })
	}
	if len(fresh) > 0 { // in a goroutine, because the server may hang
		w.reader.Go(func() { w.subscribe(pubsub, fresh, stale) })
	}
}

// subscribe subscribes to the channels fresh, and unsubscribes from the channels stale, except those
// that a call has asked for again meanwhile.
func (w *wake) subscribe(pubsub *goredis.PubSub, fresh, stale []string) {
	w.turns.Lock()
	defer w.turns.Unlock()
	// The error is ignored: go-redis makes the connection anew and subscribes to all channels
	// again.
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

// staleAfter is how long the storage listens to a queue that no Claim or Wait names.
const staleAfter = 5 * time.Minute

// stale forgets the queues that no call has named for staleAfter, and returns their channels.
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

// known lists the queues to which the storage listens.
func (w *wake) known() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.used))
}

// pingEvery is how long the connection may be silent before it is tested.
const pingEvery = 10 * time.Second

// read reports events to the waiting calls until the subscription is closed.
func (w *wake) read(events <-chan any) {
	for event := range events {
		switch e := event.(type) {
		case *goredis.Message:
			w.ring(w.keys.queueOf(e.Channel), eventOf(e.Payload))
		case *goredis.Subscription:
			if e.Kind == "subscribe" {
				w.ring(w.keys.queueOf(e.Channel), wakeup.Alert)
			}
		}
	}
}

// eventOf returns the kind of event that a message is about. Messages that are not known are about news.
func eventOf(message string) wakeup.Event { return wakeup.Of(message == "w", message == "c") }

func (w *wake) ring(queue string, event wakeup.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.used[queue]; known {
		w.events.Ring(event, queue)
	}
}

// close ends every Wait and the subscription, and waits for its goroutines.
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

// Wait returns when an event has happened in one of the queues since the Claim that returned
// req.Since. It sends nothing to the server.
func (s *Storage) Wait(ctx context.Context, req storage.WaitRequest) error {
	if err := storage.CheckWait(&req); err != nil {
		return err
	}
	s.wake.listen(req.Names())
	if err := s.wake.events.Wait(ctx, req); err != nil {
		return fmt.Errorf("redis: wait: %w", err)
	}
	return nil
}
