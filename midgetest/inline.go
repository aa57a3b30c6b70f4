package midgetest

import (
	"context"
	"sync"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// Inline returns a client whose Enqueue runs the job before it returns, and then the tasks that the
// job has enqueued or followed up: one attempt of each task that is due at once. Enqueue returns
// its usual values: the failure of a job appears in the log of the test, and its retry waits for
// Until, as scheduled tasks do. The test fails if a task cannot be claimed, because its kind is not
// registered, or because a pause, a limit or a [midge.Throttle] holds it back: test these with
// [Kit.Client] and [Kit.Drain].
//
// The client may be used in the handlers of an HTTP server; only one job runs at a time. Within a
// job, pass it the context of the job. The tasks that the job then enqueues run after it, but after
// [Kit.Work] and [Kit.WorkTask] only with the next Enqueue of the client, or with Drain.
func (k *Kit) Inline() *midge.Client { return k.inline }

// pending holds the tasks that an inline client is to run.
type pending struct {
	mu   sync.Mutex // guards refs
	refs []midge.Ref
}

func (p *pending) add(refs ...midge.Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refs = append(p.refs, refs...)
}

// next removes and returns the task that has waited longest.
func (p *pending) next() (ref midge.Ref, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.refs) == 0 {
		return midge.Ref{}, false
	}
	ref, p.refs = p.refs[0], p.refs[1:]
	return ref, true
}

// inlineStore runs the tasks that are enqueued in it.
type inlineStore struct{ *kitStore }

// Apply runs the tasks that it has inserted.
func (s *inlineStore) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	applied, err := s.kitStore.Apply(ctx, call, txs...)
	var due []midge.Ref
	for i := range applied {
		for _, p := range applied[i].Inserted {
			if !p.Existing && p.State == storage.Waiting {
				due = append(due, p.Ref)
			}
		}
	}
	s.kit.runInline(ctx, due)
	return applied, err
}

// runInline makes an attempt of each task and of its follow-ups. Tasks that a job enqueues run
// after that job.
func (k *Kit) runInline(ctx context.Context, due []midge.Ref) {
	k.pending.add(due...)
	if len(due) == 0 || runner.FromContext(ctx) != nil { // the goroutine that runs this job holds the turn
		return
	}
	k.turn.Lock()
	defer k.turn.Unlock()
	for attempts := 0; ; attempts++ {
		ref, ok := k.pending.next()
		switch {
		case !ok:
			return
		case attempts == attemptsMost:
			k.t.Errorf("midgetest: %d attempts were made inline, and more is due: "+
				"see whether a job enqueues itself", attempts)
			return
		}
		k.workInline(ref) //nolint:contextcheck // an attempt ends with the test, not with the call that enqueued it
	}
}

// workInline makes an attempt of a task that still waits. The turn is held.
func (k *Kit) workInline(ref midge.Ref) {
	if task, err := k.client.Task(k.t.Context(), ref); err != nil || task.State != midge.Waiting {
		return // it was run or cancelled meanwhile
	}
	worked, err := k.work(ref)
	if err != nil {
		k.t.Errorf("midgetest: inline: %v", err)
		return
	}
	for _, task := range worked.FollowUps {
		if task.State == midge.Waiting {
			k.pending.add(task.Ref)
		}
	}
}
