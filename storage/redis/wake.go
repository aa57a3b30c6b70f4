package redis

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// wake listens to the wake-ups of queues on one connection.
//
// A step that makes work wakes one process that was marked as idle in the queue, on a channel of that
// process. A Claim that leaves nothing of a queue marks its process there, in the same step. News and
// alerts go to all processes, on a channel of the queue.
//
// It listens to a queue from the first Claim or Wait for it on. The confirmation of a subscription
// counts as an event of the queue, also after each reconnection. So a Wait that began before it returns
// at once, and no wake-up that was missed until then is lost. Neither a Claim nor the Wait that follows
// it waits for the confirmation.
type wake struct {
	keys    *keys
	client  goredis.UniversalClient
	ctx     context.Context //nolint:containedctx // of the subscription; ended by Close
	process string          // a name of this storage among all that share the Redis

	events wakeup.Stream
	turns  sync.Mutex // held while subscribing, so that an older change does not undo a newer one

	mu     sync.Mutex // guards closed, pubsub and used; no I/O under it
	closed bool
	pubsub *goredis.PubSub // nil until the first queue
	used   map[string]use  // by queue with a subscription

	claims atomic.Int64 // under way
	passOn func(queue, mark string)
	reader sync.WaitGroup // the goroutines that read, subscribe and pass on; they end when pubsub is closed
}

// use is when a Claim or Wait last named a queue, and the Since of the last Claim that marked this process as
// idle there.
type use struct {
	at     time.Time
	idle   bool
	marked storage.Since
}

// newWake makes a wake. The function passOn wakes a process for the work of a queue, and marks the
// process mark as idle there unless it is "".
func newWake(
	ctx context.Context, client goredis.UniversalClient, k *keys, passOn func(queue, mark string),
) *wake {
	token := storage.NewToken()
	w := &wake{
		keys: k, client: client, ctx: ctx, process: hex.EncodeToString(token[:8]), used: make(map[string]use),
		passOn: passOn,
	}
	w.events.Elsewhere = func(queue string) {
		if w.claims.Load() == 0 { // else the Wait that follows the claim finds the event
			w.reader.Go(func() { passOn(queue, "") })
		}
	}
	return w
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
		u, known := w.used[q]
		if !known {
			fresh = append(fresh, w.keys.channels(q, w.process)...)
		}
		u.at = now
		w.used[q] = u
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
	for q, u := range w.used {
		if now.Sub(u.at) > staleAfter {
			delete(w.used, q)
			w.events.Forget(q)
			channels = append(channels, w.keys.channels(q, w.process)...)
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

// rests notes that a Claim has marked this process as idle in the queues from which it takes tasks.
func (w *wake) rests(req *storage.ClaimRequest, since storage.Since) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range req.Queues {
		if u, some := w.used[req.Queues[i].Name]; some && req.Queues[i].Max >= 0 {
			u.idle, u.marked = true, max(u.marked, since)
			w.used[req.Queues[i].Name] = u
		}
	}
}

// mark marks this process as idle in those queues of a Wait in which no Claim has done so since the Claim of
// the Wait. That Claim left tasks, or could take none.
func (w *wake) mark(req *storage.WaitRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range req.Queues {
		if u := w.used[q]; !w.closed && !req.CancelsOnly && (!u.idle || u.marked < req.Since) {
			w.reader.Go(func() { w.passOn(q, w.process) })
		}
	}
}

// passOn wakes a process for the work of a queue, and marks the process mark as idle there unless it is
// "". It is a hint.
func (s *Storage) passOn(queue, mark string) {
	ctx, cancel := context.WithTimeout(s.background, time.Second)
	defer cancel()
	keys := s.keys.some(queue, nil, s.scripts.places(&s.scripts.pass))
	_, _ = s.scripts.pass.run(ctx, s.client, keys, mark)
}

// Wait returns when an event has happened in one of the queues since the Claim that returned
// req.Since. It sends nothing to the server.
func (s *Storage) Wait(ctx context.Context, req storage.WaitRequest) error {
	if err := storage.CheckWait(&req); err != nil {
		return err
	}
	s.wake.listen(req.Names())
	s.wake.mark(&req)
	if err := s.wake.events.Wait(ctx, req); err != nil {
		return fmt.Errorf("redis: wait: %w", err)
	}
	return nil
}
