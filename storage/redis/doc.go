// Package redis is the storage for fleets: Redis 6.2 or later, alone, behind Sentinel
// or as a Cluster.
//
//	store, err := redis.Open(ctx, redis.Config{URL: "redis://localhost:6379"})
//
// # Configuration
//
// A [Config] needs either a URL or a Client of go-redis that the application already has:
//
//	redis://user:password@host:6379/0                               one Redis
//	rediss://user:password@host:6379/0                              the same over TLS
//	unix://user:password@/path/to/redis.sock?db=0                   a socket
//	redis+sentinel://user:password@host:26379,host:26379/master     behind Sentinel
//	redis+cluster://user:password@host:7000,host:7001               a Cluster
//
// The schemes rediss+sentinel and rediss+cluster are the last two over TLS. All processes of an
// application have the same Config.Prefix; applications that share a Redis have different ones.
//
// Open refuses a replica, a node of a Cluster that the Config takes for one Redis, a version before
// 6.2, and a Redis that evicts keys when it is full: if maxmemory is set, maxmemory-policy has to
// be noeviction. Open warns if appendonly is off, because tasks are then lost when Redis stops. So
// redis.conf needs the lines below. With appendfsync always a power cut loses nothing. With replicas,
// min-replicas-to-write 1 keeps a master that is cut off from accepting tasks. With Config.WaitReplicas, or
// wait_replicas=1 in the URL, a call that no replica has confirmed fails with a [ReplicasError].
//
//	appendonly yes
//	appendfsync everysec
//	maxmemory-policy noeviction
//
// # Permissions
//
// A dedicated user needs these rules and no others, with the default prefix and one Redis:
//
//	ACL SETUSER midge on >password resetkeys ~midge:* resetchannels &midge:* -@all
//	  +hello +auth +ping +eval +evalsha +time +publish +subscribe +unsubscribe +type +exists +del
//	  +unlink +hget +hmget +hset +hsetnx +hdel +hlen +hscan +zadd +zcard +zcount +zrange +zrangebyscore
//	  +zrevrangebyscore +zrangebylex +zlexcount +zscore +zmscore +zrem +zremrangebyrank +llen
//	  +lrange +rpush +ltrim +info +config|get +client|setname
//
// That is one command line. A database other than 0 needs +select too, and a Cluster these rules:
//
//	+cluster|slots +command
//
// Config.WaitReplicas needs +wait, without which Open refuses the user.
//
// Open tries all commands that the scripts use. It refuses a user without one of the commands for
// reading, or with only some of the commands for writing, by a [PermissionError] that names the
// commands, and a user that may not use the keys, by a PermissionError that names the keys. Without
// any writes, or without scripts, it opens with a warning, and each call that writes returns a
// PermissionError. The permissions are checked again each minute. The same holds for commands that
// the server has renamed.
//
// Open makes its checks with +info and +config|get, and warns if it may not use them. With +client|setname
// the server's list of clients shows the storage as "midge". Categories such as +@connection or
// +@write contain commands that can harm other users: CLIENT KILL, FLUSHALL, MIGRATE. Redis 6.2 lets
// a new user listen to all channels; so resetchannels stands before the & rule.
//
// The rest of this comment describes how the storage works, for readers who read the data in Redis or work
// on midge.
//
// # Keys
//
// A queue named mail has the keys below. Its name is their hash tag, so that all of them are in one
// slot of a Cluster. All times are microseconds of the server's clock.
//
//	midge:{mail}:meta        hash: the numbers of the queue, listed below
//	midge:{mail}:tasks       hash: id -> record (record.go), whatever the task's state
//	midge:{mail}:line        list: ids of waiting tasks of priority 0 in their order, and void entries
//	midge:{mail}:voids       sorted set: id, by the number up to which its entries in the line are void
//	midge:{mail}:waiting     sorted set: id, by priority and turn, of waiting tasks not in the line
//	midge:{mail}:suspects    sorted set: the same, for tasks one crash short of their limit
//	midge:{mail}:lines       sorted set, all scores 0: name of a line, NUL, priority, place, moment of
//	                         the decline and id; the suspects of a line stand behind its other tasks;
//	                         the line of the declined tasks of a kind is named k and the kind, that of the
//	                         waiting tasks of a partition p and the key (ring.lua)
//	midge:{mail}:ring        sorted set: name of the line of each partition of which there is something: of a
//	                         ready one by its turn less 2⁵³-1, of any other by the moment from which it may
//	                         be ready, 2⁵³-1 for none, and then also q and the key, which sort them by key
//	midge:{mail}:scheduled   sorted set: place and id, by due time
//	midge:{mail}:retry       sorted set: place and id, by due time
//	midge:{mail}:leases      sorted set, by the end of the lease: id of a pending task, or "!" and
//	                         the fence of a claim for all tasks that are still in its group
//	midge:{mail}:pending     hash: id -> fence, flags and runner of the lease; one long field keeps
//	                         Redis from packing the hash (padSize in scripts.go)
//	midge:{mail}:claims      hash: fence -> ids of a group; "#" and fence -> how many are still in it
//	midge:{mail}:completed   sorted set: place and id, by expiry
//	midge:{mail}:cancelled   sorted set: place and id, by expiry
//	midge:{mail}:dead        sorted set: place and id, by time of death
//	midge:{mail}:cursors     sorted set: id of a schedule, by the moment when it is handed out
//	midge:{mail}:side        hash: data that few tasks have, under a letter, ":" and the id: history h,
//	                         stack s, result r, progress p, checkpoint c, a payload over 4 KiB b;
//	                         for each line of a kind, under l, ":" and its name: when a claim last
//	                         named the kind, the number of its tasks without suspects, and "+" and
//	                         the number of suspects if there are any; under "l:": the line behind
//	                         which the search for tasks declined for too long goes on;
//	                         under "t:": where the walk through the records goes on; under "l:p":
//	                         the line of a partition behind which the search for damage goes on;
//	                         "q:operator" and "q:declared": the limits of the queue as texts, and
//	                         "q:starts": the costs of the starts that count for its rate; "q:owned"
//	                         if partitions may have limits of their own, or turns that go on; under
//	                         k, ":" and the key of a partition that has more than tasks: its pause,
//	                         its rest, how many of its tasks run, how many are left of its turn, its
//	                         own limit, and its starts (ring.lua)
//	midge:{mail}:unique      hash: unique key -> "L" and the id of its holder, or for a window "W",
//	                         its end and the id
//	midge:{mail}:windows     sorted set: unique key, by the end of its window
//	midge:{mail}:damaged     hash: id -> record that could not be read; or member of a set or of the
//	                         line that has no record, or a place that its record has not -> ""
//	midge:{mail}:lanes       hash: lane -> number and outcome of its last call, "D" for a call that
//	                         was divided (divide.lua); "" -> the opening time up to which lanes were
//	                         forgotten
//	midge:{mail}:opened      sorted set: lane, by the time when it was opened
//	midge:{mail}:idle        sorted set: process that waits for work, by when a claim of it last left none
//	midge:{mail}:probe       empty key: the write that WAIT waits for (wait.lua)
//	midge:{mail}:wake        channel, heard by all processes: "c" for a cancel or settings, "n" for
//	                         other news
//	midge:{mail}:wake:9f…    channel, heard by one process: "w" for work
//
// These keys belong to no queue:
//
//	midge:{*}:queues         sorted set: names of the queues
//	midge:{*}:seen           hash: queue -> when it was last used
//	midge:{*}:runners        hash: runner -> its last heartbeat; with " s" -> its schedules; with
//	                         " v" -> its vitals; "" -> the clock at the last heartbeat of any runner,
//	                         and since when no heartbeat expires after a jump, or 0
//	midge:{*}:alive          sorted set: runner, by the time until which it counts as alive
//	midge:{*}:lanes, opened  the lanes of all queues, if Redis is no Cluster
//	midge:{*}:layout         hash: the layout of the data, and the least layout that a process has to
//	                         support to read them (layout.go)
//	midge:{*}:probe, wake    empty key and channel: the writes of a permission check (probe.lua)
//
// The hash meta has these fields:
//
//	mark      version of the last step (Steps, below)
//	clock     the server's clock at the last step while the mark is ahead of it, else 0
//	jumped    since when timed work waits after a jump of the clock, or 0
//	tail      number of the last entry of the line
//	turn      counter that grows: places at the tail of waiting, and in sets sorted by a moment
//	head      counter that falls: places at the head of waiting
//	void      how many entries of the line are void
//	soon, due, odd   when a claim may go the short way (Steps, below)
//	paused    end of the pause, -1 for a pause without end, 0 for none
//	rest      until when the tasks without a partition rest, because one was throttled, or 0
//	cancels   how many pending tasks are asked to be cancelled
//	touched   when the queue was last used, to the minute
//	lines     the mark when the line of a kind last began; -1 while the queue has a limit, a partition
//	          or a rest
//	own       the turn of the tasks without a partition in the ring
//	looks     when a claim next searches for tasks that were declined for too long, or 0
//	reindex   when a claim next searches for records without a place, and reindexed when it last found one
//	enqueued, requeued, completed, dead, cancelled, deleted, failed, crashed,
//	evicted   totals
//
// The state of a task is the set that contains it, or pending if the hash pending has its lease; a
// task in none of them waits in the line. So a claim need not write the record. No key has a TTL.
//
// A place is a number of 7 bytes that grows. Among tasks of the same moment, the task that a step put
// there first has the lowest place and comes first. The record has the place too, so that a task is
// found in its set by its id. After a promotion, and after a change that puts a task at the tail,
// the record has a moment in these bytes instead: since when the task waits.
//
// A Claim that meets a record that it cannot read sets it apart, into damaged. It meets the record
// when the task falls due, is to be taken or is to be recovered, or when an ended task is trimmed: at
// its expiry, or as one dead task too many. A step that buries other tasks trims too. Until then the
// sizes count the task, listings leave it out, its id is taken, and a change or a delete finds no such
// task unless it is pending. A member of the set lines that stands for no task is set apart by a
// Claim that meets it, or by a Claim that searches for tasks of unknown kinds. So is a member of the set of
// a state with another place than its task's record, whose record stays as it is.
//
// Once a minute a claim examines 100 lines of partitions. It puts a line that the ring lacks, or that
// waits there for no moment although it has no pause, at its place in the ring, and sets apart members
// that no claim reads. A Claim removes members of the ring that have no tasks and nothing else.
//
// # The line
//
// Most tasks have priority 0 and join the tail of the line. The line is a list, which costs half as
// much as a sorted set. The set waiting has the other tasks: tasks of another priority, and tasks of
// priority 0 that were claimed and went back to the head. So claims first take the tasks of waiting
// that come before the line (scores up to BEHIND in scripts.go), then the line, then the rest of
// waiting.
//
// The entries of the line are numbered. The last entry has the number tail in meta, and each push adds
// one to it, so that the number of any other entry follows from its index. The cursors of pages name
// entries by their numbers.
//
// No step removes an entry from the middle of the list. A task that leaves out of turn (it is
// cancelled, changed or deleted) leaves its entry behind, which is then void: voids has the id and the
// number tail of that moment. An entry is void if voids has its id with the entry's number or a
// later one; so a task can join the line again under the same id. meta counts the void entries, so
// that sizes are exact. A claim drops the void entries that it meets, a few hundred a call, and
// reports whether its caller has to ask again. A step in which tasks leave out of turn sweeps the head
// of the line if more than 500 entries, and more than half of all, are void: it drops void entries,
// and moves tasks to waiting, where their numbers are their scores.
//
// # A torn append-only file
//
// A crash can leave the append-only file with only the first bytes of the writes of a step, which stand
// between MULTI and EXEC. If these end within a command and aof-load-truncated is on, as it is by
// default, Redis cuts that command off at its next start, and leaves MULTI and the commands before it in
// the file (7.0 does; Valkey corrected it in August 2026, with pull request 4342). Nothing of them happens
// at this start. But the next steps are appended behind them, and the start after that executes them
// together with the first of these steps: the first writes of a step that never happened.
//
// Nearly all writes can be executed twice, or before the steps that followed, and change nothing. The three
// that cannot are RPUSH, LTRIM and ZREMRANGEBYRANK. Pushes are the last writes of a step, so that a push is
// torn off too, unless the tear is in EXEC or in the push of another queue. A claim that promotes tasks
// pushes them before it takes some: a tear behind that push leaves it in the file, and the entries stand in
// the line twice. The other two take their entries from tasks that wait at the head: the records stand, but
// are in no set and not in the line. Until it is found, such a task counts as damaged, and a read shows it
// as waiting. A member that such a step added to the set of a state, with a place that its task's record
// does not have, is set apart when its moment comes: the task is elsewhere.
//
// Once a minute a claim compares the number of records with the sizes of the sets (reindex.lua). If there
// are more records, claims walk through them, 200 a step, and each task without a place waits again, before
// all others of its priority. A record that has the place of a scheduled, retried, declined or ended task
// does not show in which of these states the task was, and is set apart. Describe warns for a day after
// that. No command of Redis reports whether a start found a torn file.
//
// # Steps
//
// Every verb is one script call (scripts/*.lua, each with its own header), and Redis runs nothing else
// meanwhile. A script reads, decides and only then writes, because Redis does not roll back: whatever
// can fail has failed before the first write. Scripts take all names of keys from KEYS. They make
// moments from TIME, and compare them with TIME. They take versions from the mark of the queue, which
// each step moves to TIME, or by one if TIME is not later.
//
// The Lua of Redis hashes each byte of each text that it holds. So a claim returns no payload of more than
// 4 KiB, but the client reads these in a second round trip (aside.go), and a claim ends after 4 MiB of them.
//
// A server's clock can be ahead for a moment. A step that finds the clock more than storage.JumpAfter
// past the clock of the last step notes this as jumped (jump.lua). Until the clock has gone on for
// storage.JumpWait from there, claims promote, recover, tick and sweep nothing in that queue. A step
// reads the clock of the last step from the mark, unless the clock was ahead before and is right
// again: then the mark stays ahead, and the field clock has it. In both situations the short ways
// (below) leave their calls to the general ways. The heartbeats of runners note the clock, and its
// jumps, for themselves.
//
// The general way of a verb handles all of its calls. Redis executes a script from its beginning at
// every call, and the setup of a general way costs as much as forty small commands. So each hot verb
// also has a short way for its most frequent calls: plain inserts into one queue (shortinsert.lua),
// plain completions (shortcomplete.lua), and claims of plain tasks from queues in which nothing is due
// (shortclaim.lua). A short way that meets anything else writes nothing, and the general way follows:
// for a claim in the same script, for inserts and completions in a second call, of apply.lua. A test can
// switch the short ways off.
//
// Two numbers in meta, which each step maintains, decide when a claim may go the short way. The number
// soon is a lower bound of all moments of the queue: when a task falls due, a lease ends, a task or a
// window expires, a cursor ticks. It is 0 if no bound is known, and while the queue is paused or
// waits after a jump. A general claim that finds soon in the past maintains the queue, in a step of its
// own before it takes tasks, and computes soon anew. The number odd grows with each suspect that joins
// the queue. Once it has grown, a claim that asks for suspects finds the place of the first of them, and goes
// the short way if enough other tasks come before it. The number due goes with soon: it is the moment of the
// next task or cursor only, which a claim returns to its caller. Scheduled, retried, kept and dead tasks
// cost the short way nothing. A claim that finds no declined task of its kinds remembers the number lines,
// and for a second does not search again before that number changes (lines.go). The short claim leaves each
// queue with a limit, a partition or a rest to the general way, because no claim remembers a number lines
// below 0. The general claim after the last of them puts the number right (limit.lua). The Concurrency
// counts the leases. So only claims, Configure and Stats read the limit of a queue. The limit of a partition
// counts the leases that name the partition. Each end of such a lease goes the general way, and is counted
// in one place (unlease in entry.lua). The first moment from which a partition may be ready goes into the
// number due too.
//
// # Wake-ups
//
// A claim that leaves nothing of a queue, for a caller who could take tasks, marks its process in idle.
// A step after which more tasks wait takes the oldest mark and publishes a wake-up on the channel of
// that process only (wake.lua); a claim that leaves tasks does so with two marks. If no process is
// marked, nothing is published. The process wakes one of its callers (package wakeup). If nobody waits
// there, or no claim follows, the process has the next mark taken (pass.lua).
//
// A process that has ended receives nothing, so that the step takes the next mark, up to eight times. On a
// Cluster the step cannot detect that, and such a wake-up is lost: the slow scan of the runners finds the
// task within a second. A mark older than three seconds counts for nothing, because idle runners claim
// each second. An earlier due moment, a decline, a suspect, a task that is claimed only to start at once,
// and the first step of a new queue are news for all processes.
//
// Apply sends Txs in script calls of up to 40 operations, or 250 that are all plain inserts, or 500
// that are all plain completions. Calls that arrive while others are under way share the next flush; up
// to four flushes are under way at the same time. Inserts do not share a script call with operations
// that a full Redis has to accept. Redis refuses a script at its first write if that write may take
// memory; so scripts that claim, extend, settle, cancel or delete begin with a write that frees some.
//
// # Costs
//
// The table shows the commands that a client sends for n tasks of a queue of N. The script calls of one
// Apply go out in one pipeline, and those of one Extend at the same time. Those of one Claim or one
// Stats go out one after the other, except that a Claim on a Cluster first asks all slots at the same
// time.
//
//	verb         round trips   commands           complexity
//	Apply        1 a flush     n/250 or n/40      O(n log N); 1 and 1 more for the first call to
//	                                              a queue, and each minute; 1 and 1 more too
//	                                              if a short way leaves the call; 2 more
//	                                              a pipeline with WaitReplicas
//	Claim        1 a command   1 per 64 queues    O(n log N), and at most 100 of maintenance
//	  Cluster    1 or more     1 or 2 per slot    and 64 queues
//	Extend       2             n/200 and 1        O(n log N); the second is the heartbeat
//	Wait         0             0                  one connection listens for all queues
//	Task         1             1                  O(log N)
//	Tasks        1             1                  O(log N) for a page
//	Queues       1             1                  O(log N) for a page
//	Partitions   1             1                  O(log N) for each partition of a page
//	Stats        1 a command   1 per 16 queues    O(1) a queue; O(log N) for its Oldest if
//	                           of a slot          the line begins with 500 void entries or more
//	Runners      1             1                  O(runners)
//	Configure    1 or 2        1 or 2             O(1); to remove a queue O(damaged records)
//
// The script of one insert keeps a processor of the server busy for about 15 µs, that of one
// completion or of a claim of one task for 20 µs, and that of a claim that finds nothing for 12 µs. A
// claim from twenty queues takes 100 µs more, and 300 µs if something is due. The network takes
// about as much again if calls do not come in pipelines. Eight tasks together take 6 µs each to
// claim and 4 µs each to complete. In batches of 250 each inserted task takes 2 to 3 µs, and each task
// that is claimed and completed 3 to 4 µs. A task that falls due takes 3 µs more; a task that fails,
// snoozes, is kept or expires takes 10 to 20 µs. See BenchmarkWhole and BenchmarkCalls.
//
// A waiting task with a payload of 64 bytes takes 235 bytes of memory, keys and indexes included, and
// a pending task 345. Redis also keeps the outcome of the last call on each lane of the last ten
// minutes; the outcome of a claim has the ids of its tasks, with a comma behind each.
//
// # Cluster
//
// A queue is in the slot of its name. A Tx whose queues are in different slots is refused with
// storage.ErrSpan; see Storage.Spans. A Claim asks all slots at the same time for a share each, and
// then the slots that have more for the tasks that are still missing: the order across slots is best
// effort. Each queue remembers lanes of its own. If a master crashes or hangs and its replica takes
// over, calls find the new master within ten seconds after it begins to serve.
//
// # Limits
//
// The tasks of a queue are one hash, so that moving its slot to another node blocks both nodes for as
// long as the hash takes to copy: about a second per million tasks. A Tx of 1,000 operations, which is
// never split, can hold the server for more than five milliseconds.
//
// A script call of a claim passes over at most storage.MaxTurns partitions of a queue, and over twice as many
// of all its queues, but at least over a hundred of each. It takes at most 200 tasks of queues with
// partitions, about 15 µs each, and reports that there is more.
//
// Bounds keep a claim of declined tasks below that time, with one exception. One script call of a claim
// reads at most 500 declined tasks of each queue, and the lines of 128 kinds, shared among its queues, but
// at least four lines of each queue. If partitions do not admit these tasks, it reads 500 more, and 500
// suspects if the claim asks for one, but at least four of each line. So a call for 24 queues, each with a
// thousand declined tasks of partitions that are paused or at their limit, takes up to 28 ms. If more lines
// hold tasks of its kinds, it reports that there is more, and the next call reads other lines. A claim that
// names many kinds asks for its queues in several calls, one after the other: with 100 kinds 20 queues share
// a call.
package redis
