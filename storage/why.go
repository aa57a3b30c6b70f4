package storage

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Cause is the reason why a task stands where it does.
type Cause string

// The causes, in the order in which [Why] checks them. Why returns the first that holds.
const (
	// CauseEnded: the task has completed, was cancelled or is dead. Since is when, Reason is why it is
	// dead, and Error is the error of its last attempt that has one.
	CauseEnded Cause = "ended"
	// CauseRunning: Runner has run the task since Since, under a lease that ends at Until.
	CauseRunning Cause = "running"
	// CauseAhead: Runner has claimed the task ahead, and starts it once one of its slots is free.
	CauseAhead Cause = "claimed ahead"
	// CauseLeaseExpired: the lease of Runner ended at Until. The next claim from the queue brings the task
	// back. RunnerGone means that the runner's heartbeat has expired too.
	CauseLeaseExpired Cause = "lease expired"
	// CauseCancelAsked: Runner is asked to stop the task. The task ends as cancelled when Runner stops it, or
	// after the lease ends at Until.
	CauseCancelAsked Cause = "cancel asked"
	// CausePaused: the queue is paused until Until, zero for until it is resumed. The pause lasts beyond the
	// moment at which the task is due. Of a schedule: it is itself paused until it is resumed.
	CausePaused Cause = "paused"
	// CausePartitionPaused: the partition of the task is paused until Until, zero for until it is resumed. The
	// pause lasts beyond the moment at which the task is due.
	CausePartitionPaused Cause = "partition paused"
	// CauseThrottled: the partition of the task rests until Until, because a task of it was throttled. If
	// Partition is "", the tasks without a partition rest. The rest lasts beyond the moment at which the task is
	// due.
	CauseThrottled Cause = "throttled"
	// CauseUndecodable: no runner could decode the parameters of the task, for Reason. A runner tries it again
	// at Until.
	CauseUndecodable Cause = "undecodable"
	// CauseDue: the task is due at Until. Retries counts its failures, the last with Error, and Snoozes its
	// snoozes, the last for Reason.
	CauseDue Cause = "due later"
	// CauseNoRunner: no live runner serves the queue.
	CauseNoRunner Cause = "no runner"
	// CauseUnknownKind: live runners serve the queue, and none handles the kind of the task. Until, if it is
	// set, is when the task dies.
	CauseUnknownKind Cause = "unknown kind"
	// CauseGated: the gates of the runners that handle the kind keep the queue closed.
	CauseGated Cause = "gate closed"
	// CauseLimit: as many tasks of the queue are pending as the Concurrency of its limit admits.
	CauseLimit Cause = "limit reached"
	// CauseRate: the Rate of the queue's limit admits a start of Cost at Until. That is the cost of the task, or
	// of a task that stands before it in its line and holds it back.
	CauseRate Cause = "rate spent"
	// CausePartitionLimit: as many tasks of the partition are pending as the Concurrency of the limit of
	// partitions admits.
	CausePartitionLimit Cause = "partition limit reached"
	// CausePartitionRate: the Rate of the limit of partitions admits a start of Cost at Until. That is the cost
	// of the task, or of a task that stands before it in its line and holds it back.
	CausePartitionRate Cause = "partition rate spent"
	// CauseBusy: all slots that the runners of the kind have for the queue are taken. Position is
	// the place of the task in its line.
	CauseBusy Cause = "every slot busy"
	// CauseSuspect: the next crash makes the task dead, so that a runner starts it only while it runs no
	// other suspect.
	CauseSuspect Cause = "suspect"
	// CauseStartOnly: the lease of the task ended while it was only claimed ahead, so that a runner takes it
	// only to start at once.
	CauseStartOnly Cause = "start-only"
	// CauseInLine: the task waits for its turn, at Position of Of.
	CauseInLine Cause = "in line"
	// CauseTicks: the record is a schedule, which ticks next at Until, zero for never.
	CauseTicks Cause = "ticks"
	// CauseOrphaned: the record is a schedule that no live runner declares, so that nobody ticks it. If it is
	// kept, CauseNoRunner or CauseUnknownKind is returned instead and names the reason.
	CauseOrphaned Cause = "orphaned"
)

// Causes lists every cause, in the order in which Why checks them.
func Causes() []Cause {
	return []Cause{
		CauseEnded, CauseRunning, CauseAhead, CauseLeaseExpired, CauseCancelAsked, CausePaused,
		CausePartitionPaused, CauseThrottled, CauseUndecodable, CauseDue, CauseNoRunner, CauseUnknownKind,
		CauseGated, CauseLimit, CauseRate, CausePartitionLimit, CausePartitionRate, CauseBusy, CauseSuspect,
		CauseStartOnly, CauseInLine, CauseTicks, CauseOrphaned,
	}
}

// Verdict is the answer of [Why]: why a task stands where it does.
type Verdict struct {
	Ref   Ref
	Kind  string
	State State
	// Partition is the key of the task's partition. It is "" if the task has none, or waits in the line of its
	// kind, because a runner has declined it.
	Partition string
	Cause     Cause
	// Now is the storage's time at which the verdict held.
	Now time.Time
	// Since is when the task ended, or was started.
	Since time.Time
	// Until is when the cause ends by itself, zero if it does not, or if that is not known.
	Until time.Time
	// Deadline is that of the task, zero for none.
	Deadline time.Time
	// Runner is the runner that holds the lease. It runs on Host in process PID, if its id or heartbeat
	// names them. RunnerGone means that its heartbeat has expired.
	Runner     string
	Host       string
	PID        int
	RunnerGone bool
	// Runners is how many live runners serve the queue, and Able how many of these handle the kind.
	Runners, Able int
	// Slots is how many slots the able runners have for the queue, and Free how many of these are free. If
	// none is free, Busy names the queues of which the runners run tasks, the queue with the most tasks
	// first. It counts only the tasks in RunnerInfo.Running.
	Slots, Free int
	Busy        []QueueSize
	// Bounded means that an able runner has fewer slots for the queue than it has in all, because of
	// its QueueConcurrency or a gate.
	Bounded bool
	// Limit is the limit of the queue that is in force, and Pending how many tasks count for its Concurrency.
	// PartitionRunning is how many tasks count for that of the partition.
	Limit                     Limit
	Pending, PartitionRunning int64
	// Cost is the cost for which the Rate of the queue, or that of the partition, was judged.
	Cost Cost
	// Unstopped is since when the running job has ignored the end of its context, zero if it has not. Only
	// the end of its process stops such a job.
	Unstopped time.Time
	// Position is the place of the task in the order in which its line is claimed, from 1, and Of the number
	// of tasks that wait there: the line of its partition, or that of all tasks without a partition. If
	// Position is 0, at least PositionAtLeast tasks stand before the task, or the place is not known.
	Position, Of    int64
	PositionAtLeast int64
	// Turns is how many lines take turns: the partitions with waiting tasks that are not paused and do not rest
	// after a throttle, and the line of the tasks without a partition. It is 0 in a queue without partitions.
	// MoreTurns means that the queue has more than a hundred partitions: Turns counts only the first hundred.
	Turns     int
	MoreTurns bool
	// ETA is about how long it takes until the task starts, 0 if that is not known: it needs an earlier
	// sample, or a Rate of the queue or its partitions. It is not known if a Concurrency bounds the partition.
	ETA time.Duration
	// Retries, Snoozes and Reason are those of the task, and Error is its LastError, or the fault of a
	// schedule.
	Retries, Snoozes int
	Reason           string
	Error            string
}

// QueueSize is the number of tasks of a queue.
type QueueSize struct {
	Queue string
	Tasks int64
}

// The bounds of the search for a task in its line: pages and partitions read, and bytes of payload.
const (
	whyPages = 5
	whyBytes = 8 << 20
	whyTurns = 100 // partitions of the queue
)

// Why reports why a task, or a schedule, stands where it does: it returns the first cause that holds, in the
// order of [Causes]. With earlier samples of the queue in before, the verdict on a waiting task has an ETA.
// Why reads the task, the stats of its queue, the partitions, the runners and at most five pages of the
// line, one after the other, so that a verdict on a task that moves meanwhile may mix two moments. Its errors
// are those of the storage's methods: [ErrNotFound] if there is no such task.
func Why(ctx context.Context, store Storage, ref Ref, before ...Sample) (Verdict, error) {
	t, err := store.Task(ctx, ref)
	if err != nil {
		return Verdict{}, err
	}
	d, err := store.Describe(ctx)
	if err != nil {
		return Verdict{}, err
	}
	w := whyWalk{task: t, limits: d.Limits.WithDefaults(), v: Verdict{
		Ref: t.Ref, Kind: t.Kind, State: t.State, Partition: t.Partition, Now: d.Now,
		Retries: t.Retries, Snoozes: t.Snoozes, Reason: t.CurrentReason(), Error: t.LastError(),
		Deadline: t.Deadline(),
	}}
	if t.State.Ended() {
		w.v.Cause, w.v.Since = CauseEnded, t.Ended
		return w.v, nil
	}
	if w.runners, err = store.Runners(ctx); err != nil {
		return Verdict{}, err
	}
	stats, err := store.Stats(ctx, ref.Queue)
	if err != nil {
		return Verdict{}, err
	}
	w.stats = stats[0]
	if t.Partition != "" && t.State != Pending && t.State != Cursors {
		if w.partition, err = PartitionOf(ctx, store, t.Queue, t.Partition); err != nil {
			return Verdict{}, err
		}
	}
	w.serve()
	switch {
	case t.State == Cursors:
		w.schedule()
	case t.State == Pending:
		w.pending()
	case w.paused() || w.later() || w.unserved():
	default:
		err = w.line(ctx, store, before)
	}
	return w.v, err
}

// whyWalk is a verdict in the making.
type whyWalk struct {
	task      Task
	stats     Stats
	partition PartitionStats // of the task, zero if it has none
	runners   []RunnerInfo
	limits    Limits
	claims    map[string]bool // the kinds that the able runners know
	gated     int             // able runners that keep the queue closed
	ahead     Cost            // of the first task before the task in the listing of its line
	v         Verdict
}

// serve counts the runners that serve the queue, and the slots of those that know the kind.
func (w *whyWalk) serve() {
	w.claims = make(map[string]bool)
	busy := make(map[string]int64) // the tasks that the able runners run, by queue
	for i := range w.runners {
		r := &w.runners[i]
		if !slices.Contains(r.Queues, w.task.Queue) {
			continue
		}
		w.v.Runners++
		if !slices.Contains(r.Kinds, w.task.Kind) {
			continue
		}
		w.v.Able++
		slots, free := r.Room(w.task.Queue)
		w.v.Slots += slots
		w.v.Free += free
		if slots == 0 && r.Concurrency > 0 {
			w.gated++
		}
		w.v.Bounded = w.v.Bounded || slots < r.Concurrency
		for _, kind := range r.Kinds {
			w.claims[kind] = true
		}
		for _, of := range r.Running {
			busy[of.Ref.Queue]++
		}
	}
	if w.v.Free > 0 {
		return
	}
	for queue, n := range busy {
		w.v.Busy = append(w.v.Busy, QueueSize{queue, n})
	}
	slices.SortFunc(w.v.Busy, func(a, b QueueSize) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Queue, b.Queue))
	})
}

// schedule decides about a cursor: whether it is paused, and whether a live runner ticks it.
func (w *whyWalk) schedule() {
	w.v.Cause = CauseOrphaned
	d, err := w.task.Cursor.Decode()
	switch {
	case err != nil:
		w.v.Error = err.Error()
	case d.Paused:
		w.v.Cause = CausePaused
	case TickersOf(w.runners).Tick(&w.task, &d):
		w.v.Cause, w.v.Until = CauseTicks, w.task.Cursor.Next
	case d.Kept:
		w.unserved()
	}
}

// pending decides about a task that a runner has claimed.
func (w *whyWalk) pending() {
	t := &w.task
	w.v.Runner, w.v.Until, w.v.Since, w.v.RunnerGone = t.Runner, t.LeaseUntil, t.StartedAt(), true
	w.v.Host, w.v.PID = RunnerHost(t.Runner)
	for i := range w.runners {
		r := &w.runners[i]
		if r.ID != t.Runner {
			continue
		}
		w.v.Host, w.v.PID, w.v.RunnerGone = r.Host, r.PID, false
		for _, of := range r.Running {
			if of.Ref == t.Ref {
				w.v.Unstopped = of.Unstopped
			}
		}
	}
	switch {
	case !t.LeaseUntil.After(w.v.Now):
		w.v.Cause = CauseLeaseExpired
	case t.CancelAsked:
		w.v.Cause = CauseCancelAsked
	case t.Started:
		w.v.Cause = CauseRunning
	default:
		w.v.Cause = CauseAhead
	}
}

// paused decides whether a pause of the queue, or of the partition, or the rest of a throttled task lasts
// beyond the moment at which the task is due.
func (w *whyWalk) paused() bool {
	lasts := func(paused bool, until time.Time) bool {
		return paused && (until.IsZero() || w.task.Due.Before(until))
	}
	rests := func(until time.Time) bool { return lasts(!until.IsZero(), until) }
	switch {
	case lasts(w.stats.Paused, w.stats.PausedUntil):
		w.v.Cause, w.v.Until = CausePaused, w.stats.PausedUntil
	case lasts(w.partition.Paused, w.partition.PausedUntil):
		w.v.Cause, w.v.Until = CausePartitionPaused, w.partition.PausedUntil
	case rests(w.partition.Rests):
		w.v.Cause, w.v.Until = CauseThrottled, w.partition.Rests
	case !w.keyed() && rests(w.stats.Rests):
		w.v.Cause, w.v.Until, w.v.Partition = CauseThrottled, w.stats.Rests, ""
	default:
		return false
	}
	return true
}

// later decides whether the task is due later, and whether because a runner could not decode it.
func (w *whyWalk) later() bool {
	if w.task.State == Waiting || !w.task.Due.After(w.v.Now) {
		return false
	}
	if w.v.Cause, w.v.Until = CauseDue, w.task.Due; Undecodable(w.task.Reason) {
		w.v.Cause = CauseUndecodable
	}
	return true
}

// unserved decides whether no live runner can run the task.
func (w *whyWalk) unserved() bool {
	switch {
	case w.v.Runners == 0:
		w.v.Cause = CauseNoRunner
	case w.v.Able == 0:
		w.v.Cause = CauseUnknownKind
		if !w.task.Declined.IsZero() {
			w.v.Until = w.task.Declined.Add(w.limits.DeclinedFor)
		}
	default:
		return false
	}
	return true
}

// line decides about a task that waits for its turn, and finds its place and ETA.
func (w *whyWalk) line(ctx context.Context, store Storage, before []Sample) error {
	if w.keyed() {
		w.v.Of = w.partition.Waiting
	} else {
		w.v.Partition, w.v.Of = "", w.stats.Waiting-w.stats.Partitioned
	}
	if w.task.State == Waiting {
		if err := w.place(ctx, store); err != nil {
			return err
		}
	}
	switch {
	case w.gated == w.v.Able:
		w.v.Cause = CauseGated
	case w.limited():
	case w.v.Free == 0:
		w.v.Cause = CauseBusy
	case Suspect(w.task.Crashes, w.task.CrashLimit):
		w.v.Cause = CauseSuspect
	case w.task.PassedOver == PassedOverStartOnly:
		w.v.Cause = CauseStartOnly
	default:
		w.v.Cause = CauseInLine
	}
	if err := w.turns(ctx, store); err != nil {
		return err
	}
	w.estimate(before)
	return nil
}

// estimate estimates when the task starts. That is not known if a Concurrency bounds its partition.
func (w *whyWalk) estimate(before []Sample) {
	starts, p := w.starts(), w.v.Limit.Partition
	if starts <= 0 || w.keyed() && p.Concurrency > 0 {
		return
	}
	w.v.ETA = Outlook{limit: w.stats.Limit, at: w.v.Now}.ratedUntil(starts)
	if w.keyed() {
		of := &QueueLimit{
			Operator: &Limit{Rate: p.Rate}, Started: Started(w.partition.Counts), Next: w.partition.Next,
		}
		w.v.ETA = max(w.v.ETA, Outlook{limit: of, at: w.v.Now}.ratedUntil(w.v.Position))
	}
	if w.v.Cause == CauseRate || w.v.Cause == CausePartitionRate {
		w.v.ETA = max(w.v.ETA, w.v.Until.Sub(w.v.Now))
	}
	for _, b := range before {
		if b.Queue == w.task.Queue {
			w.v.ETA = max(w.v.ETA, Forecast(b, Sample{At: w.v.Now, Stats: w.stats}).ETA(starts))
		}
	}
}

// keyed reports whether the task stands, or is to stand, in the line of its partition.
func (w *whyWalk) keyed() bool { return w.task.Partition != "" && w.task.Declined.IsZero() }

// turns counts the lines of the queue that take turns.
func (w *whyWalk) turns(ctx context.Context, store Storage) error {
	if w.stats.Partitioned == 0 {
		return nil
	}
	page, err := store.Partitions(ctx, PartitionsQuery{Queue: w.task.Queue, Limit: whyTurns})
	if err != nil {
		return err
	}
	w.v.MoreTurns = page.Next != ""
	for _, p := range page.Partitions {
		if p.Waiting > 0 && !p.Paused && p.Rests.IsZero() {
			w.v.Turns++
		}
	}
	if !w.keyed() || w.stats.backlog() > w.stats.Partitioned {
		w.v.Turns++
	}
	return nil
}

// starts returns about how many tasks of the queue start until the task has started, 0 if that is not known.
func (w *whyWalk) starts() int64 {
	switch {
	case w.v.Turns < 2 && !w.v.MoreTurns:
		return w.v.Position
	case w.v.MoreTurns:
		return 0
	}
	return min(w.v.Position*int64(w.v.Turns), w.stats.Waiting)
}

// limited decides whether the limit of the queue, or that of its partitions, does not admit the task now, or
// not the first of its line.
func (w *whyWalk) limited() bool {
	w.v.Limit, w.v.Pending, w.v.Cost = w.stats.Limit.InForce(), w.stats.Pending, w.task.Cost
	w.v.Limit.Partition = w.partition.InForce(w.v.Limit.Partition)
	if w.ahead.N() > w.v.Cost.N() {
		w.v.Cost = w.ahead
	}
	if full, _ := w.stats.AtLimit(); full {
		w.v.Cause = CauseLimit
		return true
	}
	if until := w.stats.Limit.NextOf(w.v.Cost); !until.IsZero() {
		w.v.Cause, w.v.Until = CauseRate, until
		return true
	}
	p := w.v.Limit.Partition
	if w.task.Partition == "" || p.IsZero() {
		return false
	}
	w.v.PartitionRunning = w.partition.Running
	if p.Concurrency > 0 && w.partition.Running >= int64(p.Concurrency) {
		w.v.Cause = CausePartitionLimit
		return true
	}
	if until := p.Rate.NextOf(w.v.Cost, w.partition.Counts); !until.IsZero() {
		w.v.Cause, w.v.Until = CausePartitionRate, until
		return true
	}
	return false
}

// place counts the tasks that a Claim of an able runner takes before the task in its line, in the first
// pages of the listing, and sets Position or PositionAtLeast. Declined tasks stand behind the others in the
// listing, and a Claim takes them before the other tasks of their priority if it names their kind. The tasks
// of partitions stand at the end.
func (w *whyWalk) place(ctx context.Context, store Storage) error {
	claimed := slices.ContainsFunc(w.stats.Declined, func(k KindSize) bool { return w.claims[k.Kind] })
	query := TasksQuery{Queue: w.task.Queue, State: Waiting, Limit: MaxPage}
	if w.keyed() {
		query.Partition, claimed = w.task.Partition, false
	}
	read, found := 0, false
	for range whyPages {
		page, err := store.Tasks(ctx, query)
		if err != nil {
			return err
		}
		for i := range page.Tasks {
			t := &page.Tasks[i]
			if !w.keyed() && t.Partition != "" && t.Declined.IsZero() {
				page.Next = "" // the tasks of partitions follow
				break
			}
			if read += len(t.Payload); t.ID == w.task.ID {
				found = true
			} else if w.before(t, found) {
				if w.v.PositionAtLeast++; w.v.PositionAtLeast == 1 {
					w.ahead = t.Cost
				}
			}
		}
		query.After = page.Next
		if found && (page.Next == "" || !claimed) {
			w.v.Position, w.v.PositionAtLeast = w.v.PositionAtLeast+1, 0
			w.v.Of = max(w.v.Of, w.v.Position)
			return nil
		}
		if page.Next == "" || read > whyBytes {
			break
		}
	}
	return nil
}

// before reports whether a Claim of an able runner takes another waiting task before the task. passed
// means that the listing has named the task already.
func (w *whyWalk) before(t *Task, passed bool) bool {
	of := &w.task
	switch {
	case t.Declined.IsZero() && of.Declined.IsZero():
		return !passed
	case !t.Declined.IsZero() && !w.claims[t.Kind]: // no able runner claims it
		return false
	case t.Priority != of.Priority:
		return t.Priority > of.Priority
	case t.Declined.IsZero():
		return false
	case of.Declined.IsZero():
		return true
	case t.Declined.Equal(of.Declined):
		return t.Version < of.Version
	}
	return t.Declined.Before(of.Declined)
}
