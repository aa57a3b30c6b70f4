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
// A job is a Go type, its kind the name that the storage knows it by. A task is one
// job that was enqueued; its identity is a queue and an id, printed mail/06gv…. A
// runner claims tasks under a lease, which it keeps alive while the job runs, and
// settles them. Dead is where a task ends that is out of retries or was refused; it
// is kept and can be requeued. Retries count runs that failed, crashes runs whose
// runner died.
//
// # Life of a task
//
//	enqueue ──▶ waiting ──claim──▶ pending ──▶ completed (kept as long as asked)
//	   │          ▲  ▲               │ │ │
//	   ▼ in, at   │  └── released, ──┘ │ └── discarded, out of retries, crash loop ──▶ dead
//	scheduled ────┘      runner died   └──── failed ──▶ retry ── when due ──▶ waiting
//
// A job speaks by what it returns: nil completes, an error is retried by its
// backoff, [Discard] gives up at once, [RetryIn] chooses the delay, [Snooze] comes
// back later uncharged; a panic is an error. [Client.Cancel] ends a task in any of
// these states in cancelled; a running job sees its context end.
//
// Inside a job [FollowUp] and [SetResult] are stored in the same step as its
// completion, [Progress] and [Checkpoint] at once. The context tells by its cause
// why it ended: [ErrCancelled], [ErrTimeout], [ErrLeaseLost] or [ErrShutdown].
//
// # Promise
//
// Each acknowledged task reaches exactly one final state. A job runs at least once:
// again after an error, a snooze, a requeue or a shutdown that it outlasted, else only
// after its lease was lost. So what it does outside midge should be idempotent;
// [Current] gives a key and a fencing number for that. What it commits
// through midge happens once. A task never starts early. A schedule makes one task
// per tick however many runners declare it. What an acknowledgement survives is the
// storage's: its Durability, which a runner logs when it starts.
package midge
