package midge

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/contain"
	"github.com/midgehq/midge/storage"
)

// EnqueueMiddleware wraps the enqueueing of tasks. It may alter the inserts, for example their
// headers, also in place. It calls next at most once, with the inserts that are to be enqueued;
// midge checks these again. Inserts that are not passed to next are left out. An error of the
// middleware is the error of the call. It does not undo the inserts: if a client's next had
// returned nil, the tasks are there, and the call returns them with the error. A middleware whose
// own work fails after next should report that elsewhere and return nil, so that nobody enqueues
// the tasks again.
//
// The middleware of a client wraps each call of Enqueue, EnqueueIn, EnqueueAt and
// [Queue.RunSchedule], and each part, of up to 1,000 inserts, of an EnqueueMany. next returns once
// the storage has answered. The caller gets [ErrSkipped] for a task that was left out.
//
// The middleware of a runner wraps each [FollowUp] and each tick of a schedule. next only collects
// their inserts: they are enqueued after the middleware has returned, in one step with the
// completion or with the tick. A FollowUp that was left out returns nil, so that its job does not
// fail. A tick that is refused is left out, logged, and never tried again. The runner waits for the
// middleware of a tick; a panic of it counts as an error.
type EnqueueMiddleware func(
	next func(context.Context, []*storage.Insert) error,
) func(context.Context, []*storage.Insert) error

// enqueueChain is the middleware of a client or a runner; the first is the outermost.
type enqueueChain []EnqueueMiddleware

// check refuses nil functions.
func (m enqueueChain) check(what string) error {
	if slices.ContainsFunc(m, func(f EnqueueMiddleware) bool { return f == nil }) {
		return storage.Invalid(what, "with a nil", "functions alone")
	}
	return nil
}

// through runs the inserts through the middleware and passes the remaining inserts to send. places
// are their indexes in inserts.
func (m enqueueChain) through(
	ctx context.Context, inserts []storage.Insert,
	send func(ctx context.Context, passed []storage.Insert, places []int) error,
) error {
	given := make([]*storage.Insert, len(inserts))
	for i := range inserts {
		given[i] = &inserts[i]
		given[i].Headers = maps.Clone(given[i].Headers) // the inserts of a type share the map of its options
	}
	var called bool
	var failed error // the error of send, in case a middleware drops it
	next := func(ctx context.Context, passed []*storage.Insert) error {
		if called {
			return storage.Invalid("next", "called again", "one call of it")
		}
		called = true
		chosen, places, err := choose(given, passed)
		if err == nil && len(chosen) > 0 {
			err = send(ctx, chosen, places)
		}
		failed = err
		return err
	}
	for _, wrap := range slices.Backward(m) {
		next = wrap(next)
	}
	if err := next(ctx, slices.Clone(given)); err != nil {
		return err
	}
	return failed
}

// choose returns the inserts that were passed on, checked, and their indexes in given. It refuses
// an insert that is not in given, or is passed twice.
func choose(given, passed []*storage.Insert) (chosen []storage.Insert, places []int, err error) {
	at := make(map[*storage.Insert]int, len(given))
	for i, in := range given {
		at[in] = i
	}
	for _, in := range passed {
		i, ok := at[in]
		if !ok {
			return nil, nil, storage.Invalid("insert", "passed on by a middleware", "one that was given to it, once")
		}
		delete(at, in)
		if err := checkQueue("queue name", in.Ref.Queue); err != nil {
			return nil, nil, err
		}
		if err := storage.CheckInsert(highestLimits(), in); err != nil {
			return nil, nil, err
		}
		chosen, places = append(chosen, *in), append(places, i)
	}
	return chosen, places, nil
}

// passed returns the inserts that the middleware passes on. A panic or a runtime.Goexit of the
// middleware is an error.
func (m enqueueChain) passed(
	ctx context.Context, inserts []storage.Insert,
) (passed []storage.Insert, err error) {
	if len(m) == 0 {
		return inserts, nil
	}
	failed := contain.Call(func() {
		err = m.through(ctx, inserts, func(_ context.Context, chosen []storage.Insert, _ []int) error {
			passed = chosen
			return nil
		})
	}, panicked)
	if failed != nil {
		err = failed
	}
	return passed, err
}

// place enqueues each insert in a step of its own, through the middleware, and returns one answer
// per insert.
func (c *Client) place(ctx context.Context, inserts []storage.Insert) ([]storage.Applied, error) {
	if len(c.middleware) == 0 {
		return c.applyEach(ctx, inserts)
	}
	answers := make([]storage.Applied, len(inserts))
	for i := range answers {
		answers[i].Err = ErrSkipped
	}
	send := func(ctx context.Context, passed []storage.Insert, places []int) error {
		for i := range passed {
			if err := c.checkPayload(passed[i].Payload); err != nil {
				return err
			}
		}
		applied, err := c.applyEach(ctx, passed)
		for i := range applied {
			answers[places[i]] = applied[i]
		}
		return err
	}
	return answers, c.middleware.through(ctx, inserts, send)
}

// applyEach applies each insert in a step of its own.
func (c *Client) applyEach(ctx context.Context, inserts []storage.Insert) ([]storage.Applied, error) {
	txs := make([]storage.Tx, len(inserts))
	for i := range txs {
		txs[i].Inserts = inserts[i : i+1 : i+1]
	}
	return c.apply(ctx, txs...)
}

// prepare calls the job's method BeforeEnqueue, if it has one, and returns the job as the method
// left it. An error of the method refuses the job.
func (d *definition) prepare(ctx context.Context, job any) (any, error) {
	if !d.asks {
		return job, nil
	}
	job = codec.Addressable(job)
	asked, ok := job.(interface {
		BeforeEnqueue(ctx context.Context) error
	})
	if !ok {
		return nil, storage.Invalid("job", fmt.Sprintf("%T", job), "a struct, or a pointer to one")
	}
	return job, asked.BeforeEnqueue(ctx)
}
