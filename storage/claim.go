package storage

import (
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
	// Queues to claim from, in order: the first is emptied before the second.
	Queues []ClaimQueue
	// Start is how many tasks the runner can start at once, and Ahead how many more it
	// claims ahead, to be started later. They are at most MaxClaim together; a claim
	// with neither only maintains.
	Start, Ahead int
	// Suspect lets one suspect be among the tasks that start.
	Suspect bool
	// Kinds are those that the runner can run, at most MaxKinds; an empty list means all.
	// They choose among the declined tasks alone: the claim may bring a task of another
	// kind that was not declined yet. They hold for the queues without a negative Max.
	Kinds []string
	// Lease is how long the claim holds unless it is extended.
	Lease time.Duration
}

// Most is how many tasks the claim takes at most.
func (r *ClaimRequest) Most() int { return r.Start + r.Ahead }

// ClaimQueue is one queue of a claim.
type ClaimQueue struct {
	Name string
	// Max bounds the tasks that the claim takes from this queue. 0 sets no bound of its
	// own; with a negative Max the claim takes nothing from the queue, names no kinds there,
	// and only maintains it.
	Max int
}

// Claimed is what a Claim took.
type Claimed struct {
	// Tasks in the order of their claim, each Pending. Attempts, Stack, Result, Progress
	// and Checkpoint are left out, and Reason may be.
	Tasks []Task
	// Fences has one element per task.
	Fences []Fence
	// Ticks are cursors that are due, for the caller to tick. They need no fence.
	Ticks []Task
	// Ended are the tasks that the maintenance of this call ended, for whoever keeps a
	// log: those in a crash loop and those of a kind that no runner knows are dead, those
	// whose cancel was asked are cancelled.
	// A repeat of the call may leave them out.
	Ended []Ended
	// Now is the storage's time, and NextDue the earliest moment at which
	// something scheduled, retried or ticking in these queues is due, or a pause
	// that keeps tasks waiting ends; zero if nothing is.
	Now, NextDue time.Time
	// More says that the same call again would find work at once: tasks, if it may take
	// some, or maintenance left over. A suspect does not count where the call has taken
	// one. It may be set where all tasks that are left may only
	// start at once and the call's Start is 0.
	More bool
	// Cancels says that a cancel of a pending task waits in one of the queues: a
	// runner with tasks running extends now to learn whether it is one of its own.
	Cancels bool
	// Since is for the Wait that follows.
	Since Since
}

// tasksMemory keeps what [Claimed.Free] gave back, as *[]Task.
var tasksMemory sync.Pool

// Grow gives Tasks an empty slice for n tasks. A storage that uses it for an answer takes the memory
// of one that was given back.
func (c *Claimed) Grow(n int) {
	if kept, ok := tasksMemory.Get().(*[]Task); ok && cap(*kept) >= n {
		c.Tasks = *kept
		return
	}
	c.Tasks = make([]Task, 0, n)
}

// Free gives the memory of Tasks back, for the answers of later claims: a caller may do so once it has
// taken from the tasks what it needs. The slice must not be used any more; what its elements pointed
// to, such as payloads, stays as it is. That saves a caller who drains a full queue a fifth of its time.
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
// knows its kind.
type Ended struct {
	Ref    Ref
	Kind   string
	State  State  // Dead or Cancelled
	Reason string // why it is dead, as in Task.Reason; "" where it is cancelled
}

// Since marks a point in a storage's stream of wake-ups. It means something only
// to the opened Storage that gave it.
type Since uint64

// WaitRequest names what to wait for.
type WaitRequest struct {
	Queues []string
	Since  Since
	// CancelsOnly ignores new work and due moments: for a runner without a free
	// slot. What it ignores still counts as new for a later Wait from Since.
	CancelsOnly bool
}

// ExtendRequest extends leases and carries a runner's heartbeat.
type ExtendRequest struct {
	Call Call
	// Runner is the heartbeat; with an empty ID there is none.
	Runner RunnerInfo
	// Leases to extend.
	Leases []Extension
}

// Extension extends one lease.
type Extension struct {
	Fence Fence
	// For is the new lease from now; 0 leaves the deadline as it is.
	For time.Duration
	// Started marks the task as started, if it was claimed ahead.
	Started bool
	// Progress and Checkpoint replace the last ones where not nil.
	Progress   []byte
	Checkpoint []byte
}

// Extended answers an Extend.
type Extended struct {
	// Lost are the leases whose fence is no longer valid; nothing of their
	// extension was written.
	Lost []Ref
	// Locked are the tasks whose leases were neither extended nor found lost, because a
	// transaction of the application's or a step under way has the task locked, or because
	// its queue is damaged. Such a lease runs to its old deadline: the caller must not
	// count it as extended, and tries again soon.
	Locked []Ref
	// CancelAsked are the tasks whose cancel was asked.
	CancelAsked []Ref
	// Now is the storage's time.
	Now time.Time
}

// RunnerInfo is what a runner tells of itself with each heartbeat.
type RunnerInfo struct {
	ID          string // NewRunnerID makes ids
	Host        string
	PID         int
	Version     string // of the program; of midge where that is not known
	Queues      []string
	Kinds       []string // those that it can run, at most MaxKinds
	Concurrency int
	Started     time.Time // by the storage's clock
	// Running lists what it runs, at most MaxRunning.
	Running []Running
	// Schedules lists what it declares.
	Schedules []Declared
	// For is how long it counts as alive from now, at least a second.
	For time.Duration
	// Leaving removes it.
	Leaving bool
	// Vitals are figures of the runner's own, of at most MaxVitals bytes, which a storage keeps as
	// they are. They count from the runner's start. A heartbeat without vitals keeps the vitals of
	// the heartbeat before, as long as the storage has not forgotten the runner.
	Vitals []byte
	// Seen is when it was last heard of; the storage fills it.
	Seen time.Time
}

// Running is one task that a runner runs.
type Running struct {
	Ref   Ref
	Kind  string
	Since time.Time // by the storage's clock
}

// Declared is one periodic schedule that a runner declares.
type Declared struct {
	Ref  Ref    // the cursor's
	Hash string // of its declaration
}
