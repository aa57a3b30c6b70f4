// Package redis is the storage for fleets: Redis 6.2 or later, alone, behind Sentinel
// or as a Cluster.
//
//	store, err := redis.Open(ctx, redis.Config{URL: "redis://localhost:6379"})
//
// # Configuration
//
// A [Config] needs a URL, or a Client of go-redis that the application has, and nothing else:
//
//	redis://user:password@host:6379/0                               one Redis
//	rediss://user:password@host:6379/0                              the same over TLS
//	unix://user:password@/path/to/redis.sock?db=0                   a socket
//	redis+sentinel://user:password@host:26379,host:26379/master     behind Sentinel
//	redis+cluster://user:password@host:7000,host:7001               a Cluster
//
// rediss+sentinel and rediss+cluster are those two over TLS. Every process of an application has
// the same Config.Prefix; applications that share a Redis have one each.
//
// Open refuses a replica, a node of a Cluster under another scheme, a version before 6.2, and
// a Redis that evicts keys when it is full: with maxmemory set, maxmemory-policy has to be
// noeviction. It warns where appendonly is off, because tasks are lost then when Redis stops.
// So redis.conf has these lines; with appendfsync always a power cut loses nothing, and with
// replicas min-replicas-to-write 1 keeps a master that is cut off from taking tasks.
//
//	appendonly yes
//	appendfsync everysec
//	maxmemory-policy noeviction
//
// # Permissions
//
// A user of its own needs this and no more, with the default prefix and one Redis:
//
//	ACL SETUSER midge on >password resetkeys ~midge:* resetchannels &midge:* -@all
//	  +hello +auth +ping +eval +evalsha +time +publish +subscribe +unsubscribe +exists +type +del
//	  +unlink +hget +hmget +hset +hsetnx +hdel +hlen +zadd +zcard +zcount +zrange +zrangebyscore
//	  +zrevrangebyscore +zrangebylex +zlexcount +zscore +zmscore +zrem +zremrangebyrank +llen
//	  +lrange +rpush +ltrim +info +config|get +client|setname
//
// That is one line. On a Cluster the user needs these too, and +select for a database other than 0:
//
//	+cluster|slots +command
//
// +info and +config|get are for the checks at Open, which warns where it may not ask, and
// +client|setname has the server's list of clients show the storage as "midge".
// Categories such as +@connection or +@write hold what can harm others: CLIENT KILL, FLUSHALL,
// MIGRATE. Redis 6.2 lets a new user listen to all channels, so that resetchannels stands
// before the &.
//
// What follows is how the storage works, for those who look into Redis or work on midge.
//
// # Keys
//
// A queue named mail has these keys; its name is their hash tag, so that all are in
// one slot of a Cluster. Times are microseconds of the server's clock.
//
//	midge:{mail}:meta        hash: mark of the last step, ends of the order, pause, totals,
//	                         soon, due and odd: when a short claim may be taken, see below,
//	                         jumped: since when what is timed waits, or 0, clock: that of the
//	                         last step where the mark is ahead of it, or 0, and
//	                         awaited: a claim has looked since the last wake-up,
//	                         lines: the mark when the line of a kind last began, and
//	                         looks: when the lines are looked at for tasks to end
//	midge:{mail}:tasks       hash: id -> record (record.go), in whatever state
//	midge:{mail}:line        list: id of a task of priority 0, in its turn, or a void entry
//	midge:{mail}:voids       sorted set: id by the number up to which its entries are void
//	midge:{mail}:waiting     sorted set: id by priority and turn, of those not in the line
//	midge:{mail}:suspects    sorted set: the same, of tasks one crash short of their limit
//	midge:{mail}:declined    sorted set, all scores 0: kind, NUL, priority, place, moment and id;
//	                         suspects stand behind the other tasks of their kind
//	midge:{mail}:scheduled   sorted set: place and id by due time
//	midge:{mail}:retry       sorted set: place and id by due time
//	midge:{mail}:leases      sorted set: id of a pending task by the end of its lease, or
//	                         ! and the fence of a claim for all tasks still in its group
//	midge:{mail}:pending     hash: id -> fence, flags and runner of the lease; one long
//	                         field keeps Redis from packing it
//	midge:{mail}:claims      hash: fence -> ids of a group, # and fence -> how many are left
//	midge:{mail}:completed   sorted set: place and id by expiry
//	midge:{mail}:cancelled   sorted set: place and id by expiry
//	midge:{mail}:dead        sorted set: place and id by time of death
//	midge:{mail}:cursors     sorted set: id of a schedule by when it is handed out
//	midge:{mail}:side        hash: what few tasks have: history, stack, result, progress,
//	                         checkpoint, a payload over 4 KiB; and for each kind of
//	                         declined tasks when a claim last named it, and their number,
//	                         that of the suspects behind a +
//	midge:{mail}:unique      hash: unique key -> holder, and the end of a window
//	midge:{mail}:windows     sorted set: unique key by the end of its window
//	midge:{mail}:damaged     hash: id -> record that could not be read, or member of a set
//	                         or of the line that has no record -> ""
//	midge:{mail}:lanes       hash: lane -> number and outcome of its last call
//	midge:{mail}:opened      sorted set: lane by when it was opened
//	midge:{mail}:wake        channel: wake-ups ("w" work, "c" a cancel or settings)
//
//	midge:{*}:queues, seen     sorted set of queue names; hash: when each was last used
//	midge:{*}:runners, alive   hash of heartbeats, and the mark of the last one;
//	                           sorted set: until when each counts
//	midge:{*}:lanes, opened    the lanes of all queues, where Redis is no Cluster
//
// The state of a task is the set in which it stands; a claim does not touch its record. What
// stands in none waits in the line. No key has a TTL.
//
// A place is a number that grows, in 7 bytes: of the tasks of one moment that comes first which
// a step put there first. The record says it too, so that a task is found in its set by its id.
// After a promotion, and where a change puts a task at the tail, the record has the moment there
// instead: since when the task waits.
//
// A record that cannot be read is set apart, into damaged, by the Claim that meets it: where its
// task falls due, is to be taken or recovered, or, for one that ended, is trimmed at its expiry or
// as one dead task too many; a step that buries others trims too. Until then a set that counts
// the task has it, listings leave it out, its id is taken, and a change or a delete of it finds no
// task unless it is pending. A member of the declined tasks that stands for none is set apart by a Claim
// that meets it, or that looks for tasks of unknown kinds.
//
// # The line
//
// Most tasks have priority 0 and join its tail. They stand in a list, which costs half of
// what a sorted set does. In waiting stand the others: those of another priority, and at
// priority 0 those that were claimed and went back to the head. So claims take what waiting
// has before the line (scores up to BEHIND in scripts.go), then the line, then the rest of waiting.
//
// The entries of the line are numbered: the last has the number tail in meta, and each push
// adds one, so that the number of any other follows from its index. Cursors of pages tell it.
//
// Nothing is taken from the middle of a list. A task that leaves out of turn (it is cancelled,
// changed or deleted) leaves an entry behind, which is void: voids has its id and the
// number tail of that moment. An entry is void where voids has its id with its number or a
// later one; under the same id a task can join the line again. meta counts the void entries,
// so that sizes are exact. A claim drops those that it meets, a few hundred a call, and says
// where it is to be asked again; and a step that leaves more than 500 void, and most of
// the line, behind sweeps the head: void entries go, and tasks move to waiting with their
// numbers, which are their places there.
//
// # Steps
//
// Every verb is one script call (scripts/*.lua, each with its own header), which Redis
// runs alone. A script reads, decides and only then writes, because Redis does not roll
// back: what can fail has failed before the first write. Scripts take their keys as
// KEYS. Moments are made from TIME and compared with it. Versions come from the mark of the
// queue, which each step moves to TIME, or by one where that is not later.
//
// A server's clock can be ahead for a moment. A step that finds it more than storage.JumpAfter
// past that of the last step notes that as jumped (jump.lua), and until the clock has gone on for
// storage.JumpWait from there claims promote, recover, tick and sweep nothing in that queue.
// The mark tells the clock of the last step, unless the clock was ahead before and is right
// again: then the mark stays ahead, and a field of its own has the clock. The short ways
// leave the calls of both times to the general ones. Runners' heartbeats keep a clock of their
// own.
//
// A script is run through from its beginning at every call: what the general ways set up costs
// Redis as much as forty small commands. So each hot verb has a short way for what most calls come
// to: plain inserts into one queue (shortinsert.lua), plain completions (shortcomplete.lua), and
// claims of plain tasks from queues in which nothing is due (shortclaim.lua). Where that meets
// anything else it has written nothing, and the general way follows: of a claim in the same script,
// of inserts and completions in a second call of apply.lua. A test can switch the short ways off.
//
// Two numbers of a queue, which each step keeps, say when a claim may go the short way. soon is a
// lower bound of all moments of the queue: when a task falls due, a lease ends, a task or a window
// expires, a cursor ticks. It is 0 where nobody knows, and while the queue is paused or waits after
// a jump. A general claim that finds it past maintains the queue, in a step of its own before it
// takes tasks, and finds out anew. odd grows with each suspect that joins the queue: once there was
// one, a claim that wants suspects looks where the first of them stands, and goes the short way if
// others come before. With soon goes due, the moment of the next task or cursor alone, which a
// claim tells its caller. Scheduled, retried, kept and dead tasks cost the short way nothing.
// A claim that finds no declined task of its kinds remembers the number lines, and does not look again
// before that changes (lines.go).
//
// What joins waiting rings on the queue's channel. Inserts by the short way ring once:
// the first after a claim does, and those after it find that awaited is 0, for whoever sleeps
// has been woken and not looked yet. A claim sets it, whether it finds anything or not.
//
// Apply sends Txs in script calls of up to 40 operations, or 250 that are all plain inserts,
// or 500 that are all plain completions. Calls that arrive while others are under way share
// the next; up to four are on their way at the same time. Inserts stay apart from what a full
// Redis has to take: Redis refuses a script at its first write that may grow, so that
// scripts which claim, extend, settle, cancel or delete begin with one that frees.
//
// # Costs
//
// For n tasks of a queue of N, by what a client sends: script calls of one Apply go out
// in one pipeline, those of one Extend at the same time.
//
//	verb         round trips   commands           complexity
//	Apply        1 a flush     n/250 or n/40      O(n log N); the first to a queue, and
//	                                              each minute, 1 and 1 more; 1 and 1 more
//	                                              too where a short way leaves it
//	Claim        1             1 per 64 queues    O(n log N), and at most 100 of maintenance
//	  Cluster    1 or 2        1 or 2 per slot    and 64 queues
//	Extend       2             n/200 and 1        O(n log N); the second is the heartbeat
//	Wait         0             0                  one connection listens for all queues
//	Task         1             1                  O(log N)
//	Tasks        1             1                  O(log N) for a page
//	Queues       1             1                  O(log N) for a page
//	Stats        1 a slot      1 per 16 queues    O(1) a queue; its Oldest passes over
//	                                              500 void entries of the line at most
//	Runners      1             1                  O(runners)
//	Configure    1 or 2        1 or 2             O(1); to remove a queue O(damaged records)
//
// Redis keeps a processor busy for about 15 µs with the script of one insert, 20 µs with
// that of one completion or a claim of one task, and 12 µs with a claim that finds nothing;
// with those from twenty queues 100 µs more, and 300 µs where something is due.
// The network takes about as much again where calls do not come in pipelines. Eight tasks at
// once take 6 µs each to claim and 4 µs to complete; in batches of 250 it is 2 to 3 µs a
// task inserted and 3 to 4 µs a task claimed and completed. One that falls due takes 3 µs more;
// what fails, snoozes, is kept or expires takes 10 to 20 µs. See BenchmarkWhole, BenchmarkCalls.
//
// A waiting task with a payload of 64 bytes takes 235 bytes of memory, keys and indexes
// included, and a pending one 345. The outcome of the last call on each lane of the last
// ten minutes is kept too: of a claim the ids of its tasks, a comma behind each.
//
// # Cluster
//
// A queue is in the slot of its name. A Tx whose queues are in different slots is
// refused with storage.ErrSpan; see Storage.Spans. A Claim asks each slot for a share at
// the same time, and for what others left in a second round: the order across slots
// is best effort. Each queue remembers lanes of its own. Where a master crashes or hangs and
// its replica takes over, calls find the new one within ten seconds after it serves.
//
// # Limits
//
// A queue is one hash, so that moving its slot to another node blocks both for as long
// as the hash takes to copy: about a second per million tasks. A Tx of 1,000
// operations, which is never split, can hold the server for more than five milliseconds.
//
// No claim of declined tasks holds it for so long, by these bounds. One script call of a claim reads at
// most 500 declined tasks of a queue, and the lines of 128 kinds, shared among its queues, but of four in
// each: where more lines hold tasks of its kinds it reads other lines the next time, and says that there is
// more. The queues of a claim that names many kinds go into several calls, one after the other: with 100
// kinds 20 queues share a call.
package redis
