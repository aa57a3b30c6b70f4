// Package storage is the contract between midge and the places where tasks
// live. It depends on the standard library only. The storages (memory, redis, postgres)
// fulfil [Storage]; the client and the runner are written against it alone;
// storagetest states each rule below as a test for authors of new storages.
//
// # Words
//
// A [Task] is one enqueued job. Its identity is its [Ref]: queue and id. It
// stands in exactly one [State]. [Storage.Claim] moves tasks from waiting to
// pending under a lease; the [Fence] of a claimed task proves that lease;
// [Settle] ends it. A cursor is a periodic schedule kept beside the tasks.
//
// # Atomic steps
//
// Everything that changes a task is a [Tx] given to [Storage.Apply], a Claim or
// an Extend. A Tx happens whole or not at all, and one that is refused leaves no
// trace: a queue that only it named does not exist. No crash at any point leaves a
// task in two states or in none. The arrows between states are in state.go.
//
// # Time
//
// The storage's clock decides everything, and a storage knows two times. The mark
// of a queue only grows: each step that writes to the queue, and each Claim that
// names it, takes it to the clock, or a microsecond on where the clock is not past
// it. Versions, turns and fences are made from the mark. Moments (due, lease, keep,
// window, tick, lane, pause, runner) are made from the clock as it is and compared
// with it, and so are the times that answers tell: never early means by the
// server's clock. Callers send durations; an absolute time (At, Cursor.Next) is
// compared with the storage's clock. All times are kept in whole microseconds.
//
// A clock may be wrong for a while. Where a step finds it more than [JumpAfter]
// past the mark, unless nothing was ever written, a wait begins: nothing is
// promoted, recovered, ticked, expired or swept until the clock is [JumpWait] past
// the beginning of the wait. Where the clock stands before that beginning it has
// jumped back, and the wait is over and forgotten. Meanwhile NextDue is no later
// than the end of the wait, and More is not set for what waits on it. So a clock
// that is ahead for a moment promotes, recovers, ticks and expires nothing. Pauses,
// unique windows, lanes and runners are judged by the clock as it is, in a wait too: a
// window whose end has passed by that clock lets an insert through. What was stamped
// then keeps its moment; an Extend overwrites its lease; ticks that were made are not
// repeated. The mark stays where the clock once was, so that a second jump to a moment
// before it is no longer told from time that passes.
// [ClockWarnings] says in Describe that a wait is on, or that the mark is far
// ahead of the clock.
//
// # Versions
//
// A task's version is a positive number that grows on insert, change, claim,
// recovery and settle; it is the mark of that step in microseconds, or the last
// version plus one where that is more. Extending a lease, reporting progress and
// asking for a cancel leave it alone.
//
// # Identity of calls
//
// A reply can be lost, and clients of databases repeat commands by themselves.
// So every mutating call carries a [Call]: a [Lane] and a number that grows
// within the lane. A storage keeps, in the same step as the work itself, the
// last number and outcome of each lane, in each of its atomic domains (a Redis
// slot, a database):
//
//   - The same number again gives the first outcome, and does nothing. A Claim
//     gives the tasks of the first outcome that are still claimed under its
//     token; it may leave out Ticks and Ended. With other content nothing
//     happens, and the answer means nothing: it may be an ErrUnknown.
//   - A smaller number is refused with [ErrUnknown].
//   - A lane is good for [LaneLife] after it was opened, by the storage's
//     clock. A later call on it is refused with [ErrLaneExpired] (which is an
//     ErrUnknown), unless it repeats the remembered number, and so is a call on a
//     lane that was opened more than LaneLife ahead of the clock. What remembers a
//     lane may be swept once its life is over, and not before.
//   - The zero Call has no identity and is never remembered; it is for steps
//     inside a caller's own transaction.
//
// That is bounded by the number of lanes opened in the last LaneLife, never by
// the number of tasks. [Session] hands out lanes and repeats calls; callers use
// it and never make Calls of their own.
//
// # Rules of insert
//
// All of a Tx is checked against the state before it: a task that the Tx ends still
// holds its unique key for the inserts of the same Tx, and of two operations with one
// key the second collides with the first; changes come before inserts.
//
// An insert whose Ref exists succeeds when kind, encoding and payload are those
// of the existing task (cursors: when the record is a cursor too, kind, encoding,
// payload and the cursor's Declaration are the same); Placed.Existing says so.
// Otherwise it is a collision. A record guards its id for as long as it is kept, and
// an insert whose id and unique key are both taken is judged by its id.
//
// A unique key belongs to a queue. [UniqueLife] holds it from the insert to any
// end of the task (completed, dead, cancelled, deleted, moved away) and it is
// taken and released in the same step. [UniqueWindow] holds it for exactly
// Unique.For from the insert, whatever becomes of the task. An insert with a
// taken key is a collision that names the holder, or with OnConflict Skip it is
// left out, the rest of the Tx proceeds, and Placed says where the Tx left the
// holder: one that is gone, of which a window may be left or which ended in this Tx,
// is named with neither version nor state. Requeueing a finished task takes its
// UniqueLife key again and collides where it is taken. A move collides by id, by
// key, or by both, and tells both.
//
// # Rules of order
//
// Waiting tasks are claimed by priority, highest first, then first in, first
// out. What is released or recovered goes to the head of its priority; what is
// enqueued, promoted, requeued or re-prioritised joins its tail; a Change that
// names neither a priority nor a moment leaves a task that stays in its state where
// it is. In a queue the tasks that a Tx settles come before the tasks that it changes,
// and those before the tasks that it inserts, each in their order. Of tasks that are released together each
// goes to the head, so that the last one is claimed first. Of tasks that one Claim
// recovers those that were claimed first wait first: versions grow along the tasks
// of a Claim. Tasks due earlier are promoted first, and those due at the same moment
// in the order in which steps scheduled them.
//
// Waiting tasks are listed in the order of their claim, whoever may claim them;
// scheduled and retried ones as they are promoted; pending ones by the end of their
// lease; ended ones by when they expire; cursors by when they are handed out next,
// those that are never due last. A TasksQuery.After that is the Next of another
// listing gives an *[InvalidError], or tasks of the queue and state asked for.
//
// # Rules of claim
//
// A Claim first maintains the queues that it names, in bounded batches: promotes
// what is due, recovers what expired, trims what is kept too long. It may claim a
// due task where it stands, leave another due task to a later Claim, and put off
// recovery and trimming for less than a second. It never
// blocks and takes nothing from a paused queue. It hands out due cursors however many tasks
// it may take; the Change that ticks one ends its hiding. Of the tasks it returns the first
// ClaimRequest.Start are started; the others are claimed ahead and count as
// started from the next Extend that says so.
//
// Tasks, Fences, Ticks and Now of a Claimed are exact, as they stood at the step.
// NextDue, More and Cancels are what the step knew (a repeated call may set More where
// nothing is left): another step may have made them wrong by the time they are read, and
// a runner that misses something finds it by a scan of its own every few seconds. NextDue
// does not cover leases, which such a scan finds too: after a crash a task starts again
// within its lease and the time between two scans. It covers the end of a pause that keeps
// tasks waiting.
//
// Recovery of an expired lease: a task that was started gets Crashes+1 and is dead
// ([ReasonCrashes]) when that reaches its CrashLimit, one that was only claimed
// ahead is not charged, and from then on is claimed only to start at once. A task
// whose cancel was asked ends in cancelled. All others go to the head of waiting. The
// Claim names the tasks that it ends so in Claimed.Ended.
// A lease that expired but was not recovered yet can still be settled.
//
// A suspect is a task with at least one crash whose Crashes is CrashLimit-1. Its
// place in the order is that of any other, but a Claim passes it over unless
// ClaimRequest.Suspect is set, takes at most one then, and only to start at
// once, so that the neighbours of a poison pill do not die with it. Suspects are
// counted as waiting.
//
// # Rules of settle
//
// A Settle needs a valid fence, else the whole Tx is refused with the task listed
// in DependencyError.Lost, which is an [ErrLeaseLost]. Outcomes:
//
//   - Complete ends in completed, even where a cancel was asked.
//   - Fail adds one to Retries; past MaxRetries the task is dead
//     ([ReasonRetries]), else it is in retry until Delay has passed.
//   - Snooze puts it in scheduled for Delay, uncharged, with Settle.Reason; Snoozes
//     counts those in a row and SnoozedSince is the time of the first. Any other
//     settle clears these, a recovery the reason alone.
//   - Release puts it back at the head of waiting, uncharged. With no Delay a failure
//     or snooze is due at once, and still in retry or scheduled until the next Claim.
//   - Bury ends in dead with Settle.Reason.
//   - Cancel ends in cancelled.
//
// Where a cancel was asked, every outcome but Complete ends in cancelled. Fail counts in
// Totals.Failed all the same, Bury in Totals.Dead alone. The checkpoint outlives every
// end of an attempt, and a requeue too.
// Fail, Bury, Cancel and a recovery each append an [Attempt].
//
// # Rules of change
//
// What has ended comes back by [Change].Requeue alone, which starts its counters anew
// and keeps its history. Otherwise a completed or cancelled task refuses every Change,
// but that cancelling again does nothing, and a dead one is edited and moved where it
// is; see [Change.Permitted]. A move goes alone, in the state in which the task is.
//
// A queue exists from its first record or setting until it is removed, or was empty,
// without settings and untouched for a day. Removing one that does not exist does
// nothing.
//
// # Keeping
//
// A completed or cancelled task is kept for Keep.For, else it is gone at once. A
// completion with a Result and no Keep is kept for [DefaultResultKeep]; UntilRead
// means at most [DefaultUnreadKeep] unless Keep.For says otherwise, and the reader
// deletes it. Dead tasks are kept for Limits.DeadFor and at most Limits.DeadMax per
// queue, the oldest going first; a record and its indexes go together. Correctness
// never rests on an expiry of the database's own: deadlines stand in records and are
// swept by Claim.
//
// # Bounds
//
// Names are of [CheckName]'s characters. The texts of headers and cursors and each
// After of a query are valid UTF-8 without NUL, else the call is refused; errors,
// stacks, reasons, and host and version of a runner are made so. Payloads, results,
// progress and checkpoints are any bytes.
//
// Nothing is O(all tasks); no step holds a server for more than 5 ms. Limits are
// checked before any I/O by the functions of validate.go, which every storage
// calls first. A Claim returns at most MaxClaimBytes of payload, or one task.
// History is the last [MaxAttempts] attempts with [MaxAttemptError] bytes of error
// each; stack and full error are those of the last. A record that cannot be read stops
// nobody: a Claim that meets it sets it apart and counts it in Stats.Damaged. Until then
// listings leave it out, a read of it is an error that is no [ErrUnknown], and its id
// is taken.
//
// # Optional abilities
//
//	interface   says                                          without it
//	[Spanner]   which queues can share one Tx                 any queues can
//
// A Tx whose queues cannot share an atomic step is refused with [ErrSpan], the other
// Txs of the call are not.
package storage
