// Package storage is the contract between midge and the places where tasks
// live. It depends only on the standard library and two small packages of midge. The
// storages (memory, sqlite, redis, postgres) fulfil [Storage]; the client and the runner
// use nothing else of a storage; package storagetest states each rule below as a test for
// authors of new storages.
//
// # Words
//
// A [Task] is one enqueued job. Its [Ref], a queue and an id, is its identity. A task
// stands in exactly one [State]. A [Storage.Claim] moves tasks from waiting to pending
// under a lease, the [Fence] of a claimed task proves that lease, and a [Settle] ends
// it. A [Cursor] is a periodic schedule kept beside the tasks. A record is a task or a
// cursor.
//
// # Atomic steps
//
// A [Tx] passed to [Storage.Apply], a Claim and an Extend change tasks; nothing else
// does. A Tx happens whole or not at all. A refused Tx leaves no trace: a queue that only
// this Tx named does not exist. A crash at any point leaves each task in exactly one state.
// The functions of state.go and change.go define which state leads to which.
//
// # Time
//
// The storage's clock decides everything. Callers send durations; a storage compares an
// absolute time (Insert.At, Change.At, Cursor.Next) with its own clock. All times are
// kept in whole microseconds.
//
// A storage has two times. The mark of a queue only grows: each step that writes to
// the queue, and each Claim that names it, sets the mark to the clock, or adds a
// microsecond to the mark if the clock is not past it. Versions, places in the order
// of waiting and fences are made from the mark. Moments (due, lease, keep, window, tick,
// lane, pause, runner) are made from the clock as it is and compared with it, and the times in
// answers are the clock's too: "never early" means never early by the server's clock. If the mark is
// less than a second ahead of the clock, the version that a claim set may stand for the moment of
// the claim (Task.Claimed, Attempt.Claimed), and that of an insert for Task.Created. In a database in
// which a mark that all steps share would be a lock, such as PostgreSQL, the mark may follow a clock
// that was set back by less than 20 ms: steps of other tasks may then get versions and places below
// those that were assigned before. The versions of one task grow even so.
//
// A clock may be wrong for a while. If a step finds the clock more than [JumpAfter]
// past the clock of the step before it, which a storage may keep only to the minute, a
// wait begins: the storage promotes, recovers, ticks, expires and sweeps nothing until
// the clock is [JumpWait] past the beginning of the wait. So a clock that is ahead for a
// moment does none of that. If the clock jumps ahead again during a wait, another wait
// begins; if it stands before the beginning of the wait, it has jumped back, and the wait
// is over. During a wait NextDue is no later than its end, More is not set for work that
// waits for its end, and no pause of a queue ends. Unique windows, lanes and runners are
// judged by the clock during a wait too: a window whose end has passed by that clock lets
// an insert through. A record that was stamped by the wrong clock keeps its moment; an
// Extend overwrites the moment of its lease, and ticks that were made are not repeated.
// The warnings of Describe, from [ClockWarnings], report that a wait is on, or that the
// mark is far ahead of the clock.
//
// # Versions
//
// A task's version is a positive number that grows on insert, change, claim, recovery
// and settle. It is the mark of that step in microseconds, or the last version plus one
// if that is more. An extension of the lease, a report of progress and a request to
// cancel leave the version as it is.
//
// # Identity of calls
//
// A reply can be lost, and clients of databases repeat commands by themselves. Therefore
// every mutating call carries a [Call]: a [Lane] and a number that grows within the lane.
// A storage keeps the last number of each lane and the outcome of its call, in the same
// step as the work itself, in each of its atomic domains (a Redis slot, a database):
//
//   - The same number again returns the first outcome, and does nothing. A repeated Claim
//     returns the tasks of the first outcome that are still claimed under its token; it
//     may leave out Ticks and Ended. A Claim that took nothing and changed nothing need
//     not be remembered, so that its repeat may be the first to take something. The
//     same number with other content does nothing, and its answer means nothing: it may
//     be an ErrUnknown.
//   - A smaller number is refused with [ErrUnknown].
//   - A lane is good for [LaneLife] after it was opened, by the storage's clock. A later
//     call on the lane is refused with [ErrLaneExpired] (which is an ErrUnknown), unless
//     it repeats the remembered number. The same holds for a call on a lane that was
//     opened more than LaneLife ahead of the clock. A storage forgets no lane before its
//     LaneLife is over.
//   - The zero Call has no identity and is never remembered. It is for steps inside an
//     application's transaction.
//
// The number of lanes opened in the last LaneLife bounds the calls that a storage
// remembers; the number of tasks does not matter. [Session] opens lanes and repeats
// calls; callers use a session and never make Calls of their own.
//
// # Rules of insert
//
// A storage checks all of a Tx against the state before it: a task that the Tx ends still
// holds its unique key for the inserts of the same Tx. Of two operations of a Tx that
// need the same key the second collides with the first, and changes come before inserts.
//
// An insert whose Ref exists succeeds if its kind, encoding and payload are those of the
// existing record and, for a cursor, its Declaration too; Placed.Existing is then set. Any
// other insert of an existing Ref is a collision. A record guards its id for as long as it
// is kept, and an insert whose id and unique key are both taken is judged by its id.
//
// A unique key belongs to a queue. [UniqueLife] holds it from the insert to any end of the
// task (completed, dead, cancelled, deleted, moved away, set apart as damaged); the step
// that makes or ends the task takes or frees the key. [UniqueWindow] holds it for exactly
// Unique.For from the insert, whatever becomes of the task. An insert whose key is taken
// is a collision that names the holder. With OnConflict Skip the insert is left out
// instead, the rest of the Tx proceeds, and Placed holds the version and the state of the
// holder after the Tx. A holder whose record is gone, because it ended in this Tx and is
// not kept, was deleted by it, or has left only its window behind, has neither version nor
// state there. A requeue of an ended task takes its UniqueLife key again and collides if
// the key is taken. A move collides by id, by key, or by both, and the error names both.
//
// # Rules of order
//
// Claims take waiting tasks by priority, highest first, then first in, first out. A task
// that is released or recovered goes to the head of its priority. A task that is
// enqueued, promoted, requeued or re-prioritised joins the tail. A Change that names
// neither a priority nor a moment leaves a task in its place. Declined tasks stand apart:
// see the rules of kinds.
//
// Within a Tx and a queue, settled tasks join before changed tasks, and changed tasks
// before inserted tasks, each in their order. Each task that a Tx releases goes to the
// head, so that the last of them is claimed first. Of the tasks that one Claim recovers,
// the task that was claimed first waits first: versions grow along the tasks of a Claim.
// Tasks due earlier are promoted first. Tasks due at the same moment are promoted in the
// order in which their moments were set, by an insert, a Change, a Fail or a Snooze; if
// one Tx set the moments, in the order of its operations.
//
// A listing has the order of its state: waiting tasks as they are claimed, whoever may
// claim them, but the declined ones behind all others, by the name of their kind and in
// the order of its line, and then the tasks of partitions, by key and in the order of the
// line of the partition; scheduled and retried tasks as they are promoted; pending tasks
// by the end of their lease; ended tasks by when they expire; cursors by when they are
// handed out next, the cursors that are never due at the end. With TasksQuery.Newest a
// listing of ended tasks has the reverse of that order: of tasks that are kept equally
// long, as all dead tasks of a queue are, the task that ended last comes first. A
// TasksQuery.After that is the Next of another listing leads to an *[InvalidError], or to
// tasks of the queue and state asked for.
//
// # Rules of claim
//
// A Claim first maintains the queues that it names, in bounded batches: it promotes the
// tasks that are due, recovers expired leases, and removes records that were kept long
// enough. It promotes hundreds of tasks that fall due at once, and the order of priorities holds among
// these. It may claim a due task where it stands, leave another due task to a later
// Claim, and put off recovery and removal for less than a second. It never blocks, and
// takes nothing from a paused queue. It hands out due cursors however many tasks it may
// take; the Change that ticks a cursor ends its hiding. Of the tasks that it returns the
// first ClaimRequest.Start are started. The others are claimed ahead, and count as
// started from the first Extend that marks them as started.
//
// Tasks, Fences, Ticks and Now of a Claimed are exact, as they stood at the step. NextDue,
// More, Cancels and Bounded are as the step found them: another step may have made them wrong
// by the time they are read. A repeated call may set More although nothing is left, and then
// Bounded and NextDue need not cover the rates of the queues. If More is set, Held and NextDue
// need not cover partitions that the Claim has not examined; nor need NextDue cover the moment at
// which the starts of a partition without tasks cease to count. A runner finds the work that it
// misses by a scan of its own every few seconds. NextDue covers the end of a pause that keeps
// tasks waiting. It does not cover leases, which a scan finds too: after a crash a task starts
// again within its lease and the time of two scans.
//
// A recovery ends an expired lease. A task whose cancel was asked ends in cancelled. A
// started task gets Crashes+1, and is dead ([ReasonCrashes]) if that reaches its
// CrashLimit. A task that was only claimed ahead is not charged. From then on no Claim
// takes it ahead: it is one of the first ClaimRequest.Start tasks of the Claim that takes
// it, which are started at once. All tasks that do not end go to the head of waiting. The
// Claim names in Claimed.Ended the tasks that it ends in this way. A lease that expired
// and was not recovered yet can still be settled and extended.
//
// A Claim recovers no lease that ended at its ClaimRequest.RecoverBefore or later, and sets
// no More for it. A storage cannot determine whether its runners could reach it: so each
// runner bounds its claims. It recovers only leases that had ended when an earlier claim
// of its own was answered, and for some seconds after a time without answers only leases
// that had ended before that time. So an outage, however long, charges no crash to a task
// whose runner is alive.
//
// A suspect is a task with at least one crash whose Crashes is CrashLimit-1. It has the
// same place in the order as any other task and counts as waiting. A Claim passes it over
// unless ClaimRequest.Suspect is set. Such a Claim takes at most one suspect, as one of the
// tasks that are started at once and never ahead, so that the neighbours of a poison pill
// do not die with it. Once the Claim has taken a suspect, the suspects behind it do not
// count for its More, although the same call again would take the next: a runner that has
// claimed a suspect asks for no other until that task has ended.
//
// # Rules of wait
//
// New work in a queue is for one of the callers that wait for it, however many there are.
// Others are woken if a Claim leaves work behind (Claimed.More), so that as many Claims
// follow as the work needs, and if no Claim follows that could take the work: the caller
// that was woken has ended, or only maintains the queue. Until a Claim follows, further work
// may wake nobody else. A Wait finds the work that came since its own Claim began, unless
// another caller is to claim it. A caller for which there is no room for a task waits with
// WaitRequest.CancelsOnly, so that a wake-up goes to others.
//
// All callers are woken by an event that only some of them may need: an earlier due moment, a
// decline, a suspect or a task that is claimed only to start at once. A cancel and changed
// settings also wake the callers that wait with CancelsOnly. A storage may wake more callers
// than these rules require, and each process that shares it may count its callers for itself.
//
// # Rules of limits
//
// A queue may have a [Limit], which programs declare and an operator may override: see
// [QueueLimit.InForce]. A Claim takes a task of such a queue only if the limit admits it. The step
// that makes the task pending counts it; a repeat of the call counts nothing. A limit with a Rate, or
// of partitions, admits only the ClaimRequest.Start tasks that are started at once. A limit that has
// nothing but a Concurrency admits a task ahead as well while its pending tasks, this one among them,
// are at most half of the Concurrency, so that tasks which wait in one runner leave half of it to others.
//
// The Concurrency counts the pending tasks of the queue and nothing else. So the slot of a
// dead runner is free once its lease has been recovered. The Rate counts the costs of
// starts, by the storage's clock and in parts of Per: a start counts until Per has passed
// since the end of its part. A [Cost] over N counts as N. A task whose cost the Rate does not
// admit yet holds all others of its queue back that would come after it in the same claim, so
// that nothing cheaper overtakes it. A Rate that is spent admits no task, even if it costs
// nothing. No start is taken back, neither by a release, a decline or a failure, nor by an
// answer that is lost. Starts after now, which a clock that was ahead has stamped, count as
// made now. During a wait of the clock no start ceases to count.
//
// A limit that is lowered stops no task that runs. A limit that is raised or cleared wakes all
// callers. A change of the Rate leaves the starts counted, unless there is no Rate any more. If Per
// is raised, starts that have ceased to count may count again. Claimed.Bounded names the queues whose
// limit admits no task of the claim, or not the task that comes next: their tasks do not count for
// More, and NextDue covers the next start that a Rate admits. A queue with a limit is not removed for
// being empty. A limit that cannot be read counts as none and in Stats.Damaged.
//
// # Rules of partitions
//
// A task may have a partition: the waiting tasks of a queue with the same key stand in a line
// of their own, by priority, then first in, first out. A task keeps its partition through every
// change of state, and in another queue; a Change may replace it. Suspects and tasks that are
// claimed only to start at once stand in the line of their partition too, and those behind them
// do not wait for them. A declined task stands in the line of its kind.
//
// A queue serves its partitions in turn. Its ring holds each partition with waiting tasks, in the order of
// the turns. A Claim takes a task of the first partition of the ring, which then goes to the end, then a
// task of the next, round after round. If the limit of a partition has a Weight, its turn has so many
// tasks. If a Claim ends within a turn, the partition keeps its place, and the next Claim goes on with the
// rest of the turn. The rest is lost if the partition has no waiting task any more, is paused or rests; a
// change of the Weight leaves at most as many tasks of it as the new Weight allows. A partition that has
// its first waiting task joins the end of the ring, also if that task was its only one before. The tasks
// without a partition, and the declined tasks, are served together as one partition of Weight 1, which
// always has its place. So priorities count within a partition, and not between partitions. If a Claim can
// take no task of a partition, or no other of its turn, because all of them are suspects for example, it
// passes the partition over, and the partition keeps its turn, or the rest of it. A Claim examines
// MaxTurns partitions of a queue at most. If others are left, and it has taken a task, it sets More. It
// may take fewer tasks of a queue with partitions than it asks for, and set More.
//
// A partition can be paused, whether it has tasks or not, by Settings.Partition. A Claim takes
// no task of a paused partition, not even a declined one. A Release with a Delay, by which a job is
// throttled, does the same for the Delay: the partition rests. The later of two rests holds. A
// pause and a rest are independent: a resume ends no rest. A task that has no partition puts the
// tasks without a partition to rest, together with the declined tasks, and no partition.
//
// The limit of a queue may bound each of its partitions ([PartitionLimit]): a Claim then takes a task,
// declined or not, only if its partition admits it too, and only as one of the tasks that are started at
// once. The step that makes the task pending counts it. The Concurrency counts the tasks that were claimed
// under a limit with a Concurrency of partitions, for as long as they are pending. A Claim passes over a
// partition that is at its Concurrency, which keeps its turn, and names the queue in Claimed.Held, as it does
// if it takes the last task that the Concurrency admits. If it has examined MaxTurns partitions and others
// are left, the partitions that it passed over go to the end of the ring. If the Rate does not admit the next
// task of a partition yet, a Claim that examines it puts the partition to rest until then, so that nothing
// cheaper of the partition overtakes it. It rests until then even if that task leaves it meanwhile, unless it
// was the last one; a pause and a resume end such a rest. The limit of partitions concerns no task without
// one. A change of it puts the first MaxTurns partitions that rest because of their rate at the end of the
// ring; the others rest on.
//
// A partition may have a limit of its own, which an operator sets by Settings.Partition and Settings.Limit.
// It stands in the place of the limit of all partitions, and whole: a bound that it does not set is none. A
// change of the limit of all does not concern it, and a change of its own puts the partition at the end of
// the ring if it rests because of its rate, and wakes all callers. No task of a partition with a limit is
// claimed ahead, even if the queue has none. Only its own clearing and the removal of the queue end such a
// limit.
//
// The end of a pause, of a rest, and a resume put the partition at the end of the ring; partitions whose
// moments are the same come in the order of their keys, after a change of the limit too. A resume wakes
// all callers; the end of a pause or a rest wakes nobody, because NextDue covers the first end, whether
// tasks wait in that partition or not. A Claim ends MaxRest pauses and rests of a queue in a step, and
// leaves others that are over to the next step or Claim. It ends none during a wait of the clock. A
// partition stays while it has waiting tasks, tasks that count for its Concurrency, a pause, a rest, a
// limit of its own, or starts that count for its Rate, and else leaves nothing behind. A queue with such
// a partition is not removed for being empty.
//
// # Rules of kinds
//
// A Claim may bring a task of a kind that its runner cannot run. The runner declines it
// with the outcome [Decline], which charges nothing and appends no attempt. A queue keeps
// a line for each kind whose tasks were declined, and a declined task waits there, by
// priority, then by when it was declined.
//
// A Claim names the kinds in its Kinds, and all kinds if Kinds is empty. It takes the
// declined tasks of the kinds that it names before the other tasks of their priority, and
// orders them across kinds by when they were declined. The declined tasks of other kinds
// do not exist for it: they count neither for its More nor for its NextDue. A Claim names
// no kind in a queue with the ClaimQueue.Max MaxNone. A Claim with empty Kinds may leave out
// lines behind the first MaxKinds, and any Claim may take fewer declined tasks at once than
// it asks for, and set More. If more than a hundred lines hold tasks of its kinds, a Claim may
// examine some of the lines, leave the others to the next Claim, and set More: the order then holds
// only among the lines that it examined. In all lines of its kinds together a Claim passes over a
// hundred declined tasks at least whose partitions do not admit them. The declined tasks behind
// those may wait until the partitions admit them; a task that was not declined does not.
//
// A declined task that was start-only or a suspect remains so, and the next task of its
// line does not wait for it. A release, a recovery, a promotion, a requeue, a Change with
// a priority or with Now, and a move take it out of its line, to where every Claim may
// take it and another runner may decline it again. A cancel and a delete work as for any
// waiting task. A decline wakes every Wait for new work, since one of the callers may handle the kind.
//
// A declined task is dead ([ReasonKind]) once it has waited in its line for
// Limits.DeclinedFor, and no Claim has named its kind in the queue for as long, whether the
// Claim could take tasks or not. A storage may remember the last such Claim as up to a
// twenty-fourth of DeclinedFor earlier than it was, so that a task may die that much too
// early. The Claim that ends the task names it in Claimed.Ended. No declined task dies in
// a paused queue.
//
// # Rules of settle
//
// A Settle needs a valid fence, else the whole Tx is refused and lists the task in
// DependencyError.Lost, which is an [ErrLeaseLost]. The outcomes are:
//
//   - Complete ends the task in completed, even if a cancel was asked.
//   - Fail adds one to Retries. Past MaxRetries the task is dead ([ReasonRetries]),
//     else it is in retry until Delay has passed.
//   - Snooze puts the task in scheduled for Delay, uncharged, with Settle.Reason.
//     Snoozes counts the snoozes in a row, and SnoozedSince is the time of the first.
//     Any other settle clears these; a recovery clears only the reason.
//   - Release puts the task back at the head of waiting, uncharged.
//   - Bury ends the task in dead with Settle.Reason.
//   - Cancel ends the task in cancelled.
//   - Decline puts the task into the line of its kind, uncharged.
//
// A failure or snooze with no Delay is due at once, and stands in retry or scheduled
// until the next Claim. If a cancel was asked, every outcome but Complete ends in
// cancelled. Totals.Failed counts every Fail, even if it ends in dead or cancelled, and no
// Bury. Fail, Bury, Cancel and a recovery each append an [Attempt], and so does a Complete
// of a task that is kept. The checkpoint outlives every end of an attempt.
//
// # Rules of change
//
// [Change] lists its operations and which of them go together; [Change.Permitted] reports
// in which states a task takes a change, and [Change.Target] returns the state to which
// it leads. A task that has ended comes back only by a requeue, which starts its counters
// anew and keeps its history. Progress and checkpoint outlive the requeue of a dead or
// cancelled task, but not that of a completed task, and no change with FromStart: see
// [Change.Forgets].
//
// A queue exists from its first record or setting, or its creation, until it is removed, or
// was empty, without settings and untouched for a day. A removal of a queue that does not
// exist does nothing. A removal by [Settings].Remove frees the queue's unique windows with
// it. A queue in which a window is held is never removed for being empty.
//
// # Age of waiting tasks
//
// The waiting tasks of a queue stand in lines: for each priority a line of the tasks that
// every Claim takes, a line of the tasks that are claimed only to start at once, and a line
// of the suspects; and for each kind and priority a line of the declined tasks. The age of
// a line is how long its first task that joined at the tail has stood there, by the
// storage's clock. Tasks that were put back at the head stand before that task and do not
// count; a line that is empty, or holds only such tasks, has the age zero. The oldest
// waiting task of a queue is as old as the oldest of its lines. Stats.Oldest is the age of the oldest line
// that holds no declined tasks, so that a kind which nobody runs does not hide how long all others wait. Of
// the partitions only the first 20 of the ring count, each with the tasks that have the priority of its first
// task. The age follows from the first tasks of the lines: a storage reads at most 19 tasks for each of the
// three sorts of line. After the clock was set back the age may be too small.
//
// # Keeping
//
// A task that completes or is cancelled is kept for its Keep.For. If that is 0, a cancelled
// task is gone at once, and a completed task too, with two exceptions: with Keep.UntilRead it
// is kept for [DefaultUnreadKeep], and with a Result for [DefaultResultKeep]. The storage
// deletes a task when that time is over; UntilRead makes the reader of a result delete the
// task before. Dead tasks are kept for Limits.DeadFor and at most Limits.DeadMax per queue;
// the oldest goes first. Totals.Evicted counts the dead tasks that went before their time
// because of DeadMax. A record and its indexes go together. Correctness never rests on an
// expiry of the database's own: deadlines stand in records, and Claims remove the records
// that are past them.
//
// # Bounds
//
// A storage checks limits before any I/O, by the functions of this package whose names
// begin with Check. Names are of [CheckName]'s characters. The texts of headers, each
// Cursor.Declaration and each After of a query are valid UTF-8 without NUL, else the call
// is refused; a storage repairs errors, stacks, reasons, and the host and version of a
// runner instead. Payloads, results, progress and checkpoints are any bytes.
//
// No operation is O(all tasks), and no step holds a server for more than 5 ms. A Claim
// returns tasks of at most MaxClaimBytes of payload, or one task. It hands out cursors of as
// much payload, or one cursor, and if others are due sets More and a NextDue that is past. If
// a Claim takes several atomic steps, these bounds hold for each of them. The history of a
// task is its last [MaxAttempts] attempts with [MaxAttemptError] bytes of error each; the
// stack and the full error are kept of the last attempt only.
//
// The bytes that a storage reads back are input, and damage stops nobody. A Claim that
// meets a record that cannot be read sets it apart and counts it in Stats.Damaged. Until
// then listings leave the record out, a read of it is an error that is no [ErrUnknown],
// and its id is taken. A damaged Declaration concerns only its cursor: see
// [Cursor.Decode].
//
// # Optional abilities
//
//	interface   reports                                       without it
//	[Spanner]   which queues can share one Tx                 any queues can
//	[Roster]    the ids of runners, without records           Runners is asked
//	[Reader]    (an Applier) what its transaction sees        clients read the Storage
//	[Located]   where a Storage or an Applier keeps tasks     its transaction is not checked
//
// A Tx whose queues cannot share an atomic step is refused with [ErrSpan]; the other Txs
// of the call are not.
package storage
