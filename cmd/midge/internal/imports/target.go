package imports

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// target is the destination of an import. It is part of the name of a chunk, so that asynq's Redis records
// for each chunk which storage and queue may already have its tasks.
type target struct {
	storage string // id of the storage
	queue   string
}

// chunkName makes the name of a new chunk.
func (t target) chunkName() string {
	return storage.NewID() + " " + t.storage + " " + t.queue
}

// targetOf reads the target from the name of a chunk. A chunk of an earlier version has no target.
func targetOf(chunk string) (t target, ok bool) {
	words := strings.Split(chunk, " ")
	if len(words) != 3 {
		return target{}, false
	}
	return target{storage: words[1], queue: words[2]}, true
}

// TargetError means that a killed run has set tasks aside for another queue or storage. That queue may
// already have the tasks, so no other queue may take them.
type TargetError struct {
	From string // the queue of asynq
	To   string // the queue of midge for which the tasks were set aside
	// Elsewhere is set if To is a queue of another storage.
	Elsewhere bool
}

// Error names the queue for which the tasks were set aside.
func (e *TargetError) Error() string {
	text := fmt.Sprintf("a killed run has set tasks of queue %s of asynq aside for queue %s", e.From, e.To)
	if e.Elsewhere {
		return text + " of another storage"
	}
	return text
}

// check returns a *[TargetError] for a chunk that was set aside for another target.
func (a *Asynq) check(chunk string) error {
	t, ok := targetOf(chunk)
	if !ok || t == a.target || t.storage != a.target.storage && a.Gone {
		return nil
	}
	to := storage.PrintableText(t.queue, storage.MaxName) // any client of asynq's Redis may have written it
	return &TargetError{From: a.From, To: to, Elsewhere: t.storage != a.target.storage}
}

// aim sets the target of this import.
func (a *Asynq) aim(ctx context.Context) error {
	id, err := a.storageID(ctx)
	a.target = target{storage: id, queue: a.To}
	return err
}

// Resume sets To to the queue for which a killed run has set tasks aside. Without such tasks, To stays as
// it is. If the tasks are for another storage, the error is a *[TargetError], unless Gone is set.
func (a *Asynq) Resume(ctx context.Context) error {
	if err := a.aim(ctx); err != nil {
		return err
	}
	chunk, err := a.Source.Get(ctx, a.key("midge:chunk")).Result()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return fmt.Errorf("read asynq: %w", err)
	}
	if t, ok := targetOf(chunk); ok && t.storage == a.target.storage {
		a.To, a.target = t.queue, t
	}
	return a.check(chunk)
}

// storageID returns the id of the storage, which a record in the storage holds. The address does not
// identify a storage: it can be written in many ways, and one address may lead to many storages.
func (a *Asynq) storageID(ctx context.Context) (string, error) {
	ref := storage.Ref{Queue: storage.ReservedQueues + "import", ID: "storage"}
	t, err := a.record(ctx, ref, []byte(`"`+storage.NewID()+`"`))
	if err != nil {
		return "", err
	}
	return strings.Trim(string(t.Payload), `"`), nil
}

// record reads a record, and creates it if there is none. The record never falls due, and a cancel by hand
// leaves it there.
func (a *Asynq) record(ctx context.Context, ref storage.Ref, text []byte) (storage.Task, error) {
	for {
		t, err := a.Session.Storage().Task(ctx, ref)
		if !errors.Is(err, storage.ErrNotFound) {
			return t, err
		}
		_, err = a.Session.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{{
			Ref: ref, Kind: storage.ImportKind, Encoding: "json", Payload: text, At: payload.Never, CrashLimit: 1,
			Keep: storage.Keep{For: storage.MaxDelay},
		}}})
		var dependency *storage.DependencyError
		if err != nil && !errors.As(err, &dependency) { // another process created it
			return t, err
		}
	}
}

// finishTime bounds the step that ends a chunk.
const finishTime = 10 * time.Second

// finish deletes the inserted tasks of a chunk from asynq, and sets the other tasks aside until the import
// ends. The end of ctx does not stop this step, because the inserted tasks are in both queues until it is
// done.
func (a *Asynq) finish(ctx context.Context, chunk, inserted string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer stop()
	keys := []string{a.key("midge:staged"), a.key("midge:chunk"), a.key("midge:left")}
	if err := finish.Run(ctx, a.Source, keys, chunk, a.taskPrefix(), inserted).Err(); err != nil {
		return fmt.Errorf("finish a chunk of asynq: %w", err)
	}
	return nil
}
