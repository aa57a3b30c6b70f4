package storage

import (
	"context"
	"time"
)

// Storage is where tasks live. All methods are safe for concurrent use and
// concurrent calls may share round trips; one caller's cancelled context spoils
// only its own answer. The rules are in the package documentation.
//
// Errors: a nil error is a definite success and an error that wraps [ErrUnknown]
// an unknown outcome: the call may or may not have happened, and repeating it with
// the same Call is safe. Any other error is definite: nothing happened. Those are
// *[InvalidError] (bad input, found before any I/O), [ErrFull], [ErrUnavailable],
// [ErrClosed] and the errors that the methods name.
type Storage interface {
	// Apply carries out each Tx whole or not at all. Txs are independent of each other and
	// happen in order if they concern one queue. The result has one element per Tx; a Tx
	// that was refused has Applied.Err and changed nothing: a *[DependencyError], an
	// [ErrSpan], or the storage's error if a queue that it names is damaged.
	Apply(ctx context.Context, call Call, txs ...Tx) ([]Applied, error)

	// Claim maintains the queues named, then moves tasks from waiting to pending
	// under a lease. It never blocks. That there are no tasks is not an error. Claim passes
	// over a damaged queue: Describe and Stats.Damaged report it.
	Claim(ctx context.Context, req ClaimRequest) (Claimed, error)

	// Extend is a runner's heartbeat: it extends leases, marks tasks started,
	// writes progress and checkpoints under the leases, and returns which leases are lost
	// and which cancels were asked. It charges no crash and changes no version.
	// Extended.Locked names the leases that could not be extended now; if such an extension
	// carries progress or a checkpoint, the call fails instead.
	Extend(ctx context.Context, req ExtendRequest) (Extended, error)

	// Wait returns nil when there may be new work, an earlier due moment, a
	// cancel or changed settings in one of the queues since the Claim that returned
	// req.Since; nothing is lost between that Claim and this Wait. If several callers wait,
	// new work may wake one of them: see the rules of wait. Wait is a hint: it may return
	// early, and if a wake-up was lost it may not return at all, so callers bound it by ctx,
	// whose error it then returns.
	Wait(ctx context.Context, req WaitRequest) error

	// Task reads one task with its history, stack, result, progress and
	// checkpoint, but never a token. It returns [ErrNotFound] if there is no such task,
	// [ErrDamaged] if its record cannot be read.
	Task(ctx context.Context, ref Ref) (Task, error)

	// Tasks lists tasks of one queue and state, a page at a time: a best-effort
	// snapshot in the state's own order. Stack, Result, Progress and Checkpoint
	// are left out.
	Tasks(ctx context.Context, query TasksQuery) (TasksPage, error)

	// Queues lists queue names with a prefix, sorted, a page at a time.
	Queues(ctx context.Context, query QueuesQuery) (QueuesPage, error)

	// Stats returns sizes and lifetime totals of the queues named, in their order,
	// in constant time per queue. A queue that does not exist has zero Stats.
	Stats(ctx context.Context, queues ...string) ([]Stats, error)

	// Partitions lists the partitions of a queue that have waiting tasks or a limit of their own, are paused
	// or rest, or whose limit counts running tasks or starts, by key, a page at a time.
	Partitions(ctx context.Context, query PartitionsQuery) (PartitionsPage, error)

	// Runners lists the runners whose heartbeat has not expired, by id.
	Runners(ctx context.Context) ([]RunnerInfo, error)

	// Configure changes those settings of a queue that settings names, and leaves the
	// others as they are. With Settings.Remove it removes the queue and its totals, or
	// returns [ErrNotEmpty] if the queue still holds a record.
	Configure(ctx context.Context, call Call, queue string, settings Settings) error

	// Describe returns the storage's name and time, the worth of an acknowledgement, and
	// anything of which an operator should be warned.
	Describe(ctx context.Context) (Description, error)

	// Close frees what Open acquired. Calls under way may fail with an
	// ErrUnknown; later calls fail with [ErrClosed]. Closing again is harmless.
	Close() error
}

// Reader reads tasks and the names of queues. It is a Storage, or an Applier within a transaction,
// which also sees what that transaction has written.
type Reader interface {
	// Task is as Storage.Task.
	Task(ctx context.Context, ref Ref) (Task, error)
	// Tasks is as Storage.Tasks.
	Tasks(ctx context.Context, q TasksQuery) (TasksPage, error)
	// Queues is as Storage.Queues.
	Queues(ctx context.Context, q QueuesQuery) (QueuesPage, error)
}

// Applier applies a client's writes. It is a Storage, or it writes within an application's
// transaction, under the zero Call.
type Applier interface {
	// Apply is as in [Storage].
	Apply(ctx context.Context, call Call, txs ...Tx) ([]Applied, error)
}

// Joined writes and reads within an application's transaction. The method WithinSQL of the storages
// postgres and sqlite takes a *sql.Tx and returns a Joined, so that one interface describes both:
//
//	interface{ WithinSQL(tx *sql.Tx) storage.Joined }
type Joined interface {
	Applier
	Reader
}

// Spanner is the optional ability to report which queues can share a Tx. A storage
// without it can put any queues of one Tx into one step. Claim, Extend and Apply also take
// queues that cannot share a Tx, and answer once all parts of the storage have answered: a
// caller that must not let one silent part hold up the others makes a call for each part,
// as the runner does.
type Spanner interface {
	// Spans reports whether a Tx may name all these queues.
	Spans(queues ...string) bool
}

// Spans reports whether a Tx on s may name all these queues.
func Spans(s Storage, queues ...string) bool {
	if sp, ok := s.(Spanner); ok {
		return sp.Spans(queues...)
	}
	return true
}

// Roster is the optional ability to list the ids of the runners without reading their heartbeats, which are
// about a kilobyte each.
type Roster interface {
	// RunnerIDs lists the ids of the runners whose heartbeat has not expired, in order.
	RunnerIDs(ctx context.Context) ([]string, error)
}

// RunnerIDs lists the ids of the runners of s whose heartbeat has not expired, in order.
func RunnerIDs(ctx context.Context, s Storage) ([]string, error) {
	if r, ok := s.(Roster); ok {
		return r.RunnerIDs(ctx)
	}
	runners, err := s.Runners(ctx)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(runners))
	for i := range runners {
		ids[i] = runners[i].ID
	}
	return ids, nil
}

// Located is the optional ability of a Storage, and of an Applier that writes within an application's
// transaction, to name the place where it keeps its tasks.
type Located interface {
	// Location names that place in words for people: "postgres database shop, schema midge". Two values
	// that keep the same tasks have the same location. It is "" if the place is not known, and never
	// holds credentials.
	Location() string
}

// CheckLocation returns an *InvalidError if the locations of s and a are known and differ, so that a
// would write to another place than s.
func CheckLocation(s Storage, a Applier) error {
	of := func(v any) string {
		if l, ok := v.(Located); ok {
			return l.Location()
		}
		return ""
	}
	if here, there := of(s), of(a); here != there && here != "" && there != "" {
		return Invalid("transaction", "of "+there, "one of %s", here)
	}
	return nil
}

// Description is the result of [Storage.Describe].
type Description struct {
	// Storage is the kind and the version of the storage, such as "redis 7.0.15".
	Storage string
	// Now is the storage's time.
	Now time.Time
	// Durability names in one sentence what an acknowledged task survives.
	Durability string
	// Limits are the limits that the storage was opened with, defaults filled.
	Limits Limits
	// Full is one sentence about why the storage is full and refuses writes, "" if it is not full. A
	// storage detects it by a property of its server, by the last write that it refused, or by a small
	// write of its own, at most once a minute, that leaves nothing behind.
	Full string
	// FullSince is since when the storage is full, zero if Full is "". It is not before this handle first
	// learned of it.
	FullSince time.Time
	// ReadOnly is one sentence about why the storage can only be read, for example because its user
	// may not write, "" if it can be written. Warnings has the sentence too.
	ReadOnly string
	// Warnings are for the operator's log: each names something that is unsafe, unknown or damaged.
	Warnings []string
}

// Settings is a change of a queue's settings: a nil field leaves its setting as it is.
// A change names at least one setting, or Create or Remove alone.
type Settings struct {
	// Partition names the partition of the queue that Pause or Limit concerns, "" for the whole queue. One of
	// the two goes with it, and no other change.
	Partition string
	// Pause pauses the queue or the partition, or resumes it.
	Pause *Pause
	// Limit sets the limit of an operator, or clears it. For a partition it sets no other part than
	// Limit.Partition.
	Limit *OperatorLimit
	// Declared is the limit that a program declares. A zero Declared.Limit removes the declaration.
	Declared *DeclaredLimit
	// Create makes the queue exist. It changes no setting of a queue that exists.
	Create bool
	// Remove deletes the queue, which must be empty. Records that are damaged and set apart are deleted with it.
	Remove bool
}

// Makes reports whether the change makes a queue that does not exist. Any other change does nothing to such a
// queue.
func (s *Settings) Makes() bool {
	return s.Create || s.Pause != nil && s.Pause.On || s.Limit != nil && s.Limit.On ||
		s.Declared != nil && !s.Declared.Limit.IsZero()
}

// Pause decides whether a queue is paused. The zero Pause resumes the queue.
type Pause struct {
	// On stops claims from the queue. Enqueueing, settling, schedules and maintenance
	// go on.
	On bool
	// For is how long a pause lasts at most, at least MinSpan; 0 pauses until the queue is resumed.
	For time.Duration
}

// Stats are a queue's sizes and its totals over its lifetime.
type Stats struct { //nolint:recvcheck // SetSize and Add write, all else reads values
	Queue string
	// The sizes by state. Waiting counts suspects and declined tasks too.
	Waiting, Pending, Scheduled, Retry, Completed, Cancelled, Dead, Cursors int64
	// Declined counts the declined tasks of each kind, sorted by kind: the first MaxStatsKinds.
	Declined []KindSize
	// Partitioned counts the waiting tasks that stand in the line of a partition. Waiting counts them too.
	Partitioned int64
	// Damaged counts records that could not be read and were set apart, and records that have
	// lost their place in the queue.
	Damaged int64
	// Oldest is the age of the oldest waiting task that was not declined, 0 if there is none:
	// see "Age of waiting tasks". It grows while the queue is paused, too.
	Oldest time.Duration
	Totals Totals
	// Paused means that the queue is paused, and PausedUntil is when the pause ends; a zero
	// PausedUntil means that it ends when the queue is resumed.
	Paused      bool
	PausedUntil time.Time
	// Rests is when the rest ends that a throttled task without a partition began for all tasks without one,
	// zero if there is none.
	Rests time.Time
	// Limit is the limit of the queue, nil if no program has declared one and no operator has set one.
	Limit *QueueLimit
}

// KindSize is the number of tasks of a kind.
type KindSize struct {
	Kind  string
	Tasks int64
}

// Live returns the number of tasks that have not ended.
func (s Stats) Live() int64 { return s.Size(liveStates...) }

var liveStates = StatesWhere(State.Live)

// Size returns the number of tasks, or cursors, in a state or in several.
func (s Stats) Size(states ...State) (n int64) {
	for _, state := range states {
		if size := s.size(state); size != nil {
			n += *size
		}
	}
	return n
}

// SetSize sets the number of tasks, or cursors, in a state.
func (s *Stats) SetSize(state State, n int64) {
	if size := s.size(state); size != nil {
		*size = n
	}
}

// Add adds the sizes and totals of another queue. Oldest becomes the longer of both.
func (s *Stats) Add(other *Stats) {
	for _, state := range States() {
		s.SetSize(state, s.Size(state)+other.Size(state))
	}
	s.Damaged += other.Damaged
	s.Partitioned += other.Partitioned
	s.Oldest = max(s.Oldest, other.Oldest)
	t, of := &s.Totals, &other.Totals
	t.Enqueued, t.Requeued, t.Deleted = t.Enqueued+of.Enqueued, t.Requeued+of.Requeued, t.Deleted+of.Deleted
	t.Completed, t.Cancelled, t.Dead = t.Completed+of.Completed, t.Cancelled+of.Cancelled, t.Dead+of.Dead
	t.Failed, t.Crashed, t.Evicted = t.Failed+of.Failed, t.Crashed+of.Crashed, t.Evicted+of.Evicted
}

// size returns the field of a state, nil for an unknown one.
func (s *Stats) size(state State) *int64 {
	switch state {
	case Waiting:
		return &s.Waiting
	case Pending:
		return &s.Pending
	case Scheduled:
		return &s.Scheduled
	case Retry:
		return &s.Retry
	case Completed:
		return &s.Completed
	case Cancelled:
		return &s.Cancelled
	case Dead:
		return &s.Dead
	case Cursors:
		return &s.Cursors
	}
	return nil
}

// Totals count over a queue's lifetime; cursors are not counted. At any moment
// Enqueued + Requeued = Completed + Dead + Cancelled + Deleted + Stats.Live().
type Totals struct {
	Enqueued  int64 // inserted here, or moved here from another queue while live
	Requeued  int64 // brought back from completed, cancelled or dead
	Completed int64
	Dead      int64
	Cancelled int64
	Deleted   int64 // deleted, moved away or set apart as damaged while live
	Failed    int64 // attempts that failed, whether retried or not
	Crashed   int64 // charged crashes
	Evicted   int64 // dead tasks that were deleted because the queue had more than Limits.DeadMax
}

// TasksQuery asks for a page of tasks.
type TasksQuery struct {
	Queue string
	State State
	// Partition asks for the waiting tasks in the line of one partition, in the order of that line. With any
	// other state it leads to an *[InvalidError]. Declined tasks stand in the line of their kind.
	Partition string
	// After is the Next of the page before, "" for the first page. It is a place
	// in the state's order, not a count: if tasks leave the state meanwhile, the
	// next page neither skips nor repeats the tasks that stay. It has 3*[MaxName] bytes at most.
	After string
	// Limit is the page's size: 1 to 200, 0 means 50.
	Limit int
	// Newest reverses the order of an ended state: the dead task that died last comes first, and the
	// completed or cancelled task that expires last. After is then the Next of a page that was asked
	// for with the same Newest. With any other state Newest leads to an *[InvalidError].
	Newest bool
}

// TasksPage is a page of tasks. Next is "" on the last page.
type TasksPage struct {
	Tasks []Task
	Next  string
}

// QueuesQuery asks for a page of queue names.
type QueuesQuery struct {
	Prefix string
	// After is the Next of the page before, "" for the first page.
	After string
	// Limit is the page's size: 1 to 1,000, 0 means 1,000.
	Limit int
}

// QueuesPage is a page of queue names. Next is "" on the last page.
type QueuesPage struct {
	Names []string
	Next  string
}
