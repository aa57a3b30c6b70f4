package redis

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// registerEvery is how often a queue in use is put on the list of queues again.
const registerEvery = time.Minute

// queueLife is how long a queue stays on the list after it last had a record, a setting or a use.
const queueLife = 24 * time.Hour

// names remembers which queues this process put on the list, and when.
type names struct {
	mu    sync.Mutex // guards since and fresh
	since map[string]time.Time
	// fresh has the queues that this process added to the list, until a call reports that it left
	// something in the queue, or all calls that it left nothing.
	fresh map[string]freshness
}

type freshness struct {
	at    string // when the queue was last used, according to the list
	calls int    // how many calls under way may leave something in the queue
}

// due returns the queues that have to be registered. never reports whether this process has not yet
// registered one of them, so that registering has to succeed.
func (n *names) due(queues []string) (due []string, never bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range queues {
		at, ok := n.since[q]
		if !ok || time.Since(at) > registerEvery {
			due = append(due, q)
			never = never || !ok
		}
	}
	return due, never
}

// done notes that a queue is on the list and in use, and no longer fresh.
func (n *names) done(queue string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.since == nil {
		n.since = make(map[string]time.Time)
	}
	n.since[queue] = time.Now()
	delete(n.fresh, queue)
}

// listed notes that a call has put a queue on the list, as used at the moment at. added is true if the
// queue was not on the list before. listed reports whether the queue is fresh.
func (n *names) listed(queue string, added bool, at string) bool {
	n.mu.Lock()
	is, fresh := n.fresh[queue]
	if fresh = fresh || added; fresh {
		if n.fresh == nil {
			n.fresh = make(map[string]freshness)
		}
		n.fresh[queue] = freshness{at, is.calls + 1}
	}
	n.mu.Unlock()
	if !fresh {
		n.done(queue)
	}
	return fresh
}

// leave notes that a call left nothing in a fresh queue. If that is true of all calls that named the
// queue, leave returns the moment at which the queue was last used according to the list, else "".
func (n *names) leave(queue string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	is, fresh := n.fresh[queue]
	if is.calls--; fresh && is.calls > 0 {
		n.fresh[queue] = is
		return ""
	}
	return is.at
}

func (n *names) drop(queue string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.since, queue)
	delete(n.fresh, queue)
}

// doubt has the next call register those of the queues again that this process has registered and that
// are not fresh, and returns them.
func (n *names) doubt(queues []string) (doubtful []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range queues {
		if _, fresh := n.fresh[q]; !fresh {
			delete(n.since, q)
			doubtful = append(doubtful, q)
		}
	}
	return doubtful
}

// known lists the queues that this process has registered.
func (n *names) known() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.since))
}

// listKeys returns the keys of the list of queues and of the hash that holds when each was last used.
func (s *Storage) listKeys() []any {
	return []any{s.keys.global("queues"), s.keys.global("seen")}
}

// register puts the queues into which txs put tasks on the list of queues, before their first use and
// then once a minute. It returns the queues that are fresh: they were not on the list before.
func (s *Storage) register(ctx context.Context, txs []storage.Tx) (fresh []string, err error) {
	var queues []string
	for i := range txs {
		for queue := range fillsOf(&txs[i]) {
			if !slices.Contains(queues, queue) {
				queues = append(queues, queue)
			}
		}
	}
	return s.registerQueues(ctx, queues)
}

// fillsOf yields the queues into which a Tx puts tasks, some of them more than once.
func fillsOf(tx *storage.Tx) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range tx.Inserts {
			if !yield(tx.Inserts[i].Ref.Queue) {
				return
			}
		}
		for i := range tx.Changes {
			if queue := tx.Changes[i].Queue; queue != "" && !yield(queue) {
				return
			}
		}
	}
}

func (s *Storage) registerQueues(ctx context.Context, queues []string) (fresh []string, err error) {
	if len(queues) == 0 {
		return fresh, nil
	}
	due, never := s.names.due(queues)
	if len(due) == 0 {
		return fresh, nil
	}
	args := make([]any, len(due))
	for i, q := range due {
		args[i] = q
	}
	list, err := s.scripts.register.list(ctx, s.client, s.listKeys(), args...)
	if err != nil {
		if never {
			return nil, err
		}
		return fresh, nil // an earlier call has put all of them on the list
	}
	told := values(list)
	for _, q := range due {
		r := reader{rest: told.text()}
		if s.names.listed(q, r.text(1) == "1", r.rest) {
			fresh = append(fresh, q)
		}
	}
	return fresh, nil
}

// relist puts queues that exist on the list again, unless they are fresh: another process may have removed
// them since this one registered them. After an error the next call registers them.
func (s *Storage) relist(ctx context.Context, queues []string) {
	queues = s.names.doubt(queues)
	if _, err := s.registerQueues(ctx, queues); err != nil {
		return
	}
	for _, q := range queues {
		s.names.done(q)
	}
}

// unregister takes the fresh queues off the list into which a call put nothing, according to txs and
// applied, or to the error of the call.
func (s *Storage) unregister(
	ctx context.Context, fresh []string, txs []storage.Tx, applied []storage.Applied, err error,
) {
	if len(fresh) == 0 {
		return
	}
	for i := range txs {
		for queue := range fillsOf(&txs[i]) {
			if at := slices.Index(fresh, queue); at >= 0 && err == nil && applied[i].Err == nil {
				s.names.done(queue)
				fresh = slices.Delete(fresh, at, at+1)
			}
		}
	}
	s.leave(ctx, fresh, err)
}

// leave takes fresh queues off the list into which a call that ended with err put nothing, unless another
// call may have put something there. If err leaves open whether the call happened, the queues stay on
// the list.
func (s *Storage) leave(ctx context.Context, fresh []string, err error) {
	if away(err) && !errors.Is(err, storage.ErrLaneExpired) {
		return
	}
	for _, queue := range fresh {
		if at := s.names.leave(queue); at != "" {
			_, _ = s.unlist(ctx, queue, "="+at) // after an error the queue stays listed, and is empty
		}
	}
}

// forget removes a queue that was empty, without settings and unused for queueLife. It first takes it off
// the list, unless a process has put it there since: then, and after an error, a later Claim finds such a
// queue again.
func (s *Storage) forget(ctx context.Context, queue string) {
	if off, err := s.unlist(ctx, queue, inMicros(queueLife)); err != nil || !off {
		return
	}
	args := append(laneArgs(storage.Call{}, 0), "forget")
	reply, err := s.scripts.configure.list(ctx, s.client, s.keys.of(queue, nil), args...)
	if err == nil && len(reply) == 3 && reply[2] != "" {
		s.relist(ctx, []string{queue}) // it has been used since
	}
}

// unlist takes a queue off the list, unless it was used since; forget.lua explains the argument. It reports
// whether the queue is off the list.
func (s *Storage) unlist(ctx context.Context, queue, since string) (off bool, err error) {
	s.names.drop(queue)
	reply, err := s.scripts.forget.run(ctx, s.client, s.listKeys(), queue, since)
	return reply == int64(1), err
}

// Configure changes the settings of a queue. With Settings.Remove it removes the queue, or returns
// storage.ErrNotEmpty if the queue holds a record.
func (s *Storage) Configure(
	ctx context.Context, call storage.Call, queue string, settings storage.Settings,
) error {
	if err := storage.CheckCall(call); err != nil {
		return err
	}
	if err := storage.CheckSettings(queue, &settings); err != nil {
		return err
	}
	action := "configure " + queue
	if err := s.mayWrite(); err != nil {
		return wrap(action, err)
	}
	err := s.configure(ctx, call, queue, settings)
	s.room.Wrote(err)
	return wrap(action, err)
}

func (s *Storage) configure(
	ctx context.Context, call storage.Call, queue string, settings storage.Settings,
) error {
	verb, patch := "set", []any(nil)
	exists := settings.Makes() // the queue exists from this call on
	if settings.Remove {
		verb = "remove"
	}
	if p := settings.Pause; p != nil {
		length := p.For.Microseconds()
		if p.On && length == 0 {
			length = -1
		}
		setting := "pause"
		if settings.Partition != "" {
			verb, setting = "rest", settings.Partition
		}
		patch = append(patch, setting, length)
	}
	if l := settings.Limit; l != nil {
		setting := "limit"
		if settings.Partition != "" {
			verb, setting = "own", settings.Partition
		}
		patch = append(patch, setting, engine.OperatorText(l))
	}
	if d := settings.Declared; d != nil {
		patch = append(patch, "declared", engine.DeclaredText(d))
	}
	var fresh []string
	if exists {
		s.names.doubt([]string{queue}) // another process may have removed it
		var err error
		if fresh, err = s.registerQueues(ctx, []string{queue}); err != nil {
			return err
		}
	}
	if err := s.configured(ctx, call, queue, verb, patch); err != nil {
		s.leave(ctx, fresh, err)
		return err
	}
	if exists {
		s.names.done(queue)
	}
	if settings.Remove {
		if err := s.unlistRemoved(ctx, queue); err != nil {
			return inPart(err) // the queue is gone
		}
	}
	return nil
}

// unlistRemoved takes a queue that was removed off the list, and puts it back if it exists again: another
// process may have filled and registered it since, which matters most if the removal is repeated.
func (s *Storage) unlistRemoved(ctx context.Context, queue string) error {
	if _, err := s.unlist(ctx, queue, ""); err != nil {
		return err
	}
	mark, err := heed(ctx, &s.scripts.calls, func(ctx context.Context) ([]any, error) {
		return s.client.HMGet(ctx, s.keys.key(queue, metaKey), "mark").Result()
	})
	if len(mark) > 0 && mark[0] != nil {
		s.relist(ctx, []string{queue})
	}
	return translateRead(err)
}

// configured calls configure.lua.
func (s *Storage) configured(ctx context.Context, call storage.Call, queue, verb string, patch []any) error {
	args := append(append(laneArgs(call, 0), verb), patch...)
	reply, err := s.scripts.configure.list(ctx, s.client, s.keys.of(queue, nil), args...)
	if err != nil {
		return err
	}
	v := values(reply)
	letter := v.text()
	v.number() // the time of the call
	if err := verdict(first(letter)); err != nil {
		return err
	}
	switch outcome := v.text(); {
	case v.bad:
		return errReply
	case outcome == "notempty":
		return storage.ErrNotEmpty
	}
	return nil
}

// Queues lists a page of the names of queues, sorted. Next is the last name of the page.
func (s *Storage) Queues(ctx context.Context, query storage.QueuesQuery) (storage.QueuesPage, error) {
	var page storage.QueuesPage
	if err := storage.CheckQueues(&query); err != nil {
		return page, err
	}
	if err := s.enter(); err != nil {
		return page, wrap("queues", err)
	}
	from, to := "-", "+"
	if query.Prefix != "" {
		from, to = "["+query.Prefix, "["+query.Prefix+"\xff"
	}
	if query.After > query.Prefix || query.Prefix == "" && query.After != "" {
		from = "(" + query.After
	}
	found, err := heed(ctx, &s.scripts.calls, func(ctx context.Context) ([]string, error) {
		return s.client.ZRangeByLex(ctx, s.keys.global("queues"), &goredis.ZRangeBy{
			Min: from, Max: to, Count: int64(query.Limit) + 1,
		}).Result()
	})
	if err != nil {
		return page, wrap("queues", translateRead(err))
	}
	if len(found) > query.Limit {
		found = found[:query.Limit]
		page.Next = found[query.Limit-1]
	}
	page.Names = found
	return page, nil
}
