package storage

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// ClaimRequest asks for tasks.
type ClaimRequest struct {
	Call Call
	// Token becomes part of the fence of each task claimed: 128 random bits,
	// made anew for each call.
	Token Token
	// Runner is the id of the runner that claims.
	Runner string
	// Queues are the queues to claim from, in order: the first is emptied before the second.
	Queues []ClaimQueue
	// Start is how many tasks the runner can start at once, and Ahead how many more it
	// claims ahead, to be started later. They are at most MaxClaim together; a claim
	// with neither only maintains.
	Start, Ahead int
	// Suspect lets one suspect be among the tasks that start.
	Suspect bool
	// Kinds are the kinds that the runner can run, at most MaxKinds; an empty list means all.
	// They choose only among the declined tasks: the claim may bring a task of another kind
	// that was not declined yet. They do not apply to queues with MaxNone.
	Kinds []string
	// Lease is how long the lease of each claimed task lasts unless it is extended.
	Lease time.Duration
	// RecoverBefore bounds the recovery of expired leases: a lease that ended at this moment of
	// the storage's clock or later is left to a later Claim. Zero sets no bound. With it a
	// runner that could not reach the storage for a while lets the holders of leases, which
	// could not reach it either, extend and settle first.
	RecoverBefore time.Time
}

// Most returns how many tasks the claim takes at most.
func (r *ClaimRequest) Most() int { return r.Start + r.Ahead }

// ClaimQueue is one queue of a claim.
type ClaimQueue struct {
	Name string
	// Max bounds the tasks that the claim takes from this queue. 0 sets no bound for this
	// queue. With MaxNone and MaxFull the claim takes nothing from the queue and only maintains it.
	Max int
}

// The values of ClaimQueue.Max with which a claim takes nothing from a queue. With MaxFull the caller serves
// the queue and has no room for its tasks now: the claim names its kinds there, so that declined tasks of
// these kinds stay alive. With MaxNone it names no kinds there.
const (
	MaxNone = -1
	MaxFull = -2
)

// Names reports whether a claim names its kinds in the queue.
func (q *ClaimQueue) Names() bool { return q.Max != MaxNone }

// Claimed is the result of a Claim.
type Claimed struct {
	// Tasks are the tasks taken, in the order of their claim, each Pending. Attempts, Stack,
	// Result, Progress and Checkpoint are left out, and Reason may be.
	Tasks []Task
	// Fences has one element per task.
	Fences []Fence
	// Ticks are cursors that are due, for the caller to tick, of at most MaxClaimBytes of payload or one. They
	// need no fence.
	Ticks []Task
	// Ended are the tasks that the maintenance of this call ended, for the caller's log: tasks
	// in a crash loop and tasks of a kind that no runner handles are dead, tasks whose cancel was
	// asked are cancelled. A repeat of the call may leave Ended out.
	Ended []Ended
	// Now is the storage's time, and NextDue the earliest moment at which a
	// scheduled task, a retry or a cursor of these queues is due, or a pause
	// that keeps tasks waiting ends; zero if there is none.
	Now, NextDue time.Time
	// More means that the same call again would find work at once: tasks, if it may take
	// some, or maintenance that remains. A suspect does not count if the call has taken one.
	// More may be set if all tasks that remain may only start at once and the call's Start
	// is 0.
	More bool
	// Cancels means that a cancel of a pending task waits in one of the queues: a runner with
	// running tasks extends their leases now, because the cancel may be for one of them.
	Cancels bool
	// Bounded names the queues of the claim whose limit admits no task of this claim now, whether tasks wait
	// there or not: because of the Concurrency, the Rate, which NextDue covers, or because the claim asks for no
	// tasks to start and the limit admits none ahead. It also names a queue that is not paused, if its next task
	// costs more than the Rate has left. A caller claims again once one of its tasks of such a queue has ended,
	// and does not wait for new tasks of the queue. Queues with MaxNone and MaxFull are not among them.
	Bounded []string
	// Held names queues that Bounded does not name, with a partition of which as many tasks are pending as
	// [PartitionLimit.Concurrency] admits: the claim has passed it over, or has taken the last of them, whether
	// others wait there or not. A caller claims again once one of its tasks of such a queue has ended, and goes
	// on to wait for new tasks of the queue.
	Held []string
	// Since is for the Wait that follows.
	Since Since
}

// tasksMemory holds the slices that [Claimed.Free] returned to it, as *[]Task.
var tasksMemory sync.Pool

// Grow makes Tasks an empty slice with room for n tasks, in memory that Free has released if there is
// some. Storages use it for their answers.
func (c *Claimed) Grow(n int) {
	if kept, ok := tasksMemory.Get().(*[]Task); ok && cap(*kept) >= n {
		c.Tasks = *kept
		return
	}
	c.Tasks = make([]Task, 0, n)
}

// Free releases the memory of Tasks, for the answers of later claims: a caller may do so once it has
// copied what it needs from the tasks. The slice must not be used any more; memory that its elements
// pointed to, such as payloads, stays valid. Free saves a caller who drains a full queue a fifth of its
// time.
func (c *Claimed) Free() {
	tasks := c.Tasks
	c.Tasks = nil
	if cap(tasks) == 0 {
		return
	}
	clear(tasks)
	tasks = tasks[:0]
	tasksMemory.Put(&tasks)
}

// Ended is a task that a storage ended by itself, because its lease expired or no runner
// handles its kind.
type Ended struct {
	Ref    Ref
	Kind   string
	State  State  // Dead or Cancelled
	Reason string // why it is dead, as in Task.Reason; "" if it is cancelled
}

// Since marks a point in a storage's stream of wake-ups. It means something only to the
// opened Storage that returned it.
type Since uint64

// WaitRequest names the queues and the events for which a caller waits.
type WaitRequest struct {
	// Queues are the queues from which the caller takes tasks: a caller that is woken claims from
	// them at once, or leaves the work to others.
	Queues []string
	// Maintained are the queues that the caller only maintains: new work in them does not concern it.
	Maintained []string
	Since      Since
	// CancelsOnly ignores new work and due moments, for a runner without a free
	// slot. A later Wait from the same Since still reports them.
	CancelsOnly bool
}

// Names returns the names of all queues for which the request waits.
func (r *WaitRequest) Names() []string {
	if len(r.Maintained) == 0 {
		return r.Queues
	}
	return slices.Concat(r.Queues, r.Maintained)
}

// ExtendRequest extends leases and carries a runner's heartbeat.
type ExtendRequest struct {
	Call Call
	// Runner is the runner's heartbeat; with an empty ID the request carries none.
	Runner RunnerInfo
	// Leases are the leases to extend.
	Leases []Extension
}

// Extension extends one lease.
type Extension struct {
	Fence Fence
	// For is how long the lease lasts from now; 0 leaves its end as it is.
	For time.Duration
	// Started marks the task as started, if it was claimed ahead.
	Started bool
	// Progress and Checkpoint replace the last ones if they are not nil.
	Progress   []byte
	Checkpoint []byte
}

// Extended is the result of an Extend.
type Extended struct {
	// Lost are the leases whose fence is no longer valid; nothing of their
	// extension was written.
	Lost []Ref
	// Locked are the tasks whose leases were neither extended nor found lost, because an
	// application's transaction or a step under way has locked the task, or because its
	// queue is damaged. Such a lease keeps its old end: the caller must not count it as
	// extended, and tries again soon.
	Locked []Ref
	// CancelAsked are the tasks whose cancel was asked.
	CancelAsked []Ref
	// Now is the storage's time.
	Now time.Time
}

// RunnerInfo is the description of a runner that each of its heartbeats carries.
type RunnerInfo struct {
	ID          string // NewRunnerID makes ids
	Host        string
	PID         int
	Version     string // of the program, or of midge if that is not known
	Queues      []string
	Kinds       []string // the kinds that it can run, at most MaxKinds; an empty list means none
	Concurrency int
	// Slots lists the queues of which the runner runs fewer jobs at once than Concurrency, or none now.
	Slots []QueueSlots
	// Limits are the limits of queues that the runner declares.
	Limits  []RunnerLimit
	Started time.Time // by the storage's clock
	// Running lists the tasks that the runner runs, at most MaxRunning, and Busy counts them all.
	Running []Running
	Busy    int
	// Undecodable lists the kinds of which the runner could lately not decode a task, at most MaxTroubles.
	Undecodable []KindTrouble
	// Schedules lists the schedules that the runner declares. A heartbeat without schedules keeps the schedules
	// of the heartbeat before, as long as the storage has not forgotten the runner.
	Schedules []Declared
	// For is how long the runner counts as alive from now, at least a second.
	For time.Duration
	// Leaving removes the runner from the list of runners.
	Leaving bool
	// Vitals are the runner's own figures, at most MaxVitals bytes, which a storage keeps unread.
	// They count from the runner's start. A heartbeat without vitals keeps the vitals of the
	// heartbeat before, as long as the storage has not forgotten the runner.
	Vitals []byte
	// Seen is the time of the last heartbeat; the storage fills it.
	Seen time.Time
}

// QueueSlots are the slots that a runner has for one queue.
type QueueSlots struct {
	Queue  string
	Slots  int  // how many jobs of the queue run at once, 0 for as many as the runner runs
	Taken  int  // by tasks of the queue that the runner has claimed
	Closed bool // by a gate of the program: no job of the queue starts
}

// String returns a text such as "video: 2 of 3" or "video: closed by its gate".
func (q QueueSlots) String() string {
	if q.Closed {
		return q.Queue + ": closed by its gate"
	}
	return fmt.Sprintf("%s: %d of %d", q.Queue, q.Taken, q.Slots)
}

// InUse returns how many slots of the runner are taken.
func (r *RunnerInfo) InUse() int { return max(r.Busy, len(r.Running)) }

// Room returns how many slots the runner has for a queue, 0 if a gate keeps the queue closed, and how many of
// these are free.
func (r *RunnerInfo) Room(queue string) (slots, free int) {
	slots, free = r.Concurrency, max(r.Concurrency-r.InUse(), 0)
	for _, q := range r.Slots {
		switch {
		case q.Queue != queue:
		case q.Closed:
			return 0, 0
		case q.Slots > 0 && q.Slots < slots:
			slots, free = q.Slots, min(free, max(q.Slots-q.Taken, 0))
		}
	}
	return slots, free
}

// Running is one task that a runner runs.
type Running struct {
	Ref   Ref
	Kind  string
	Since time.Time // by the storage's clock
	// Unstopped is since when the job has ignored the end of its context, zero if it has not: the task was
	// cancelled, its timeout or deadline is over, or its lease is lost.
	Unstopped time.Time
}

// KindTrouble is a kind of which a runner could not decode tasks. Such a task is put off, again and
// again, for Limits.DeclinedFor.
type KindTrouble struct {
	Queue, Kind string
	Since       time.Time // when the first of them was put off first, by the storage's clock
	Last        time.Time // when the newest of them was claimed
	Tasks       int64     // how many tasks at least
	Reason      string    // of the newest, at most MaxAttemptError bytes; it holds no parameters
}

// Declared is one periodic schedule that a runner declares.
type Declared struct {
	Ref  Ref    // the cursor's
	Hash string // of its declaration
}
