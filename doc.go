// Package midge runs background jobs. An application declares job types, enqueues
// typed values, and starts a runner in its own main. Tasks live in a storage: memory
// for one process, an SQLite file for one machine, Redis or PostgreSQL for many.
//
//	type SendWelcome struct{ User string }
//
//	func (j SendWelcome) Run(ctx context.Context) error { … }
//
//	store, err := memory.Open(memory.Config{}) // or redis.Open
//	runner, err := midge.NewRunner(store, midge.RunnerConfig{})
//	err = midge.Register[SendWelcome](runner)
//	go runner.Run(ctx) // drains when ctx ends
//
//	client, err := midge.NewClient(store, midge.ClientConfig{})
//	task, err := client.Enqueue(ctx, SendWelcome{User: "ann"})
//
// The whole program is the example of this package.
//
// # Words
//
// A job is a Go type, and its kind is the name of that type in the storage.
// A task is one enqueued job; a queue and an id identify it, printed as mail/06gv…. A
// runner claims tasks under a lease, keeps the lease alive while the job runs, and then
// settles the task: it records the outcome. A task is dead when it is out of retries or
// was refused; it is kept and can be requeued. Retries count failed runs, crashes count
// runs whose runner died. A partition is the tasks of a queue that share a key, such as the
// name of a tenant; the partitions of a queue are served in turn.
//
// # Life of a task
//
//	enqueue ──▶ waiting ──claim──▶ pending ──▶ completed (kept as long as asked)
//	   │          ▲  ▲               │ │ │
//	   ▼ in, at   │  └── released, ──┘ │ └── discarded, out of retries, crash loop ──▶ dead
//	scheduled ────┘      runner died   └──── failed ──▶ retry ── when due ──▶ waiting
//
// The return value of a job decides what happens to its task: nil completes it, an
// error is retried after a backoff, [Discard] permits no retry, [RetryIn] chooses the
// delay, and [Snooze] runs the job again later without counting a retry. [Throttle] does so
// too, and lets the job's partition rest meanwhile. A panic counts as an error. [Client.Cancel] ends a task
// in any of these states as cancelled; the context of a running job then ends.
//
// Inside a job, values passed to [FollowUp] and [SetResult] are stored in the same step
// as its completion; [Progress] and [Checkpoint] store theirs at once. A job of several
// steps calls [Step] for each of them: a later attempt does not repeat what an earlier
// one has finished. Between two steps it may [Sleep] for weeks. The cause of the job's
// context names the reason for its end: [ErrCancelled], [ErrTimeout], [ErrExpired],
// [ErrLeaseLost] or [ErrShutdown].
//
// # Promise
//
// Each acknowledged task reaches exactly one final state. A job runs at least once. It
// runs again after an error, a snooze, a throttle, a requeue, or a shutdown that it outlasted, and
// otherwise only after its lease was lost. Its effects outside midge should therefore
// be idempotent; [Current] returns an idempotency key and a fencing number for that. The
// completion, the follow-ups and the result that a job commits through midge take
// effect once. A task never starts early. A schedule makes one task per tick, however
// many runners declare it. The Durability of a storage names the failures that an
// acknowledged task survives; a runner logs it when it starts.
package midge
