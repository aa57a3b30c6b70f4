// Package postgres is midge's storage in PostgreSQL, version 13 or later: one server or a primary
// with standbys, with or without a proxy that pools connections. A task can be enqueued or settled in
// the same transaction that writes the application's rows; see [Storage.Within].
//
//	cfg := postgres.Config{URL: "postgres://localhost/shop"} // or Pool: a *pgxpool.Pool
//	err := postgres.Migrate(ctx, cfg)                        // once per deploy
//	store, err := postgres.Open(ctx, cfg)
//
// # Configuration
//
// A [Config] needs a URL or a Pool, and nothing else. Every process of an application uses the same
// Config.Schema. Applications that share a database use one schema each.
//
//	postgres://user:password@host:5432/database?sslmode=verify-full
//	postgres://user:password@one,two/database       the host that takes writes
//	host=/run/postgresql dbname=database user=user  a socket
//
// # Permissions
//
// The role that calls Migrate needs CREATE on the database, or on the schema if the schema exists
// already. This role then owns the tables. Processes may use the same role, or one with fewer
// privileges:
//
//	GRANT USAGE ON SCHEMA midge TO worker;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA midge TO worker;
//	GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA midge TO worker;
//	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA midge TO worker;
//
// Grant these privileges again after each Migrate, which may add tables and functions, or let the
// role that migrates run ALTER DEFAULT PRIVILEGES once. Only the owner of the tables can vacuum them;
// under another role the server's autovacuum has to suffice. With a role that has pg_read_all_stats,
// Describe also warns of the transactions of other roles that hold vacuum back. To read the view jobs
// a role needs USAGE on the schema and SELECT on the view.
//
// # Connections
//
// A process uses up to Config.Connections connections for claims, inserts, reads and calls that carry
// more than 64 KiB, two more for leases and settles, one for the listener, and one for vacuums. The
// storage dials connections of its own even if Config.Pool is set, so that jobs which hold every
// connection of that pool starve nothing. The first steps on a connection take twenty times as long
// as later ones.
//
// A connection may be dead without a sign of it. Each call waits for some seconds, whatever its context
// is; then its outcome is unknown, and the storage abandons its connection (reply.go). A dial goes on
// for the calls that follow: a busy server may take 30 s to begin a session (dials.go).
//
// A proxy may pool transactions, as PgBouncer does with pool_mode = transaction: no step leaves
// anything in a session. The storage uses prepared statements until one of them is missing, and
// unnamed statements from then on. Name the proxy in Config.URL, and the server itself in
// Config.ListenURL, because the listener needs a session; or set Config.NoListener, and new tasks are
// found within a second or so. If one schema is used, nothing else has to be configured. A
// connection of the server keeps about a megabyte of plans for each schema that it has served, and
// searches all of them whenever a table or function is created. Behind a proxy that serves hundreds
// of schemas, let the proxy's connections to the server live for minutes (server_lifetime).
//
// # Upgrades
//
// Functions carry a version in their names (claim_2), and each client calls the functions of its own
// version, so that two versions work side by side on the same tables. To upgrade, call Migrate of the
// new version, separately or as its first process starts; then replace the processes in any order. To
// go back, start the old version again: its functions are still there, and its Migrate changes
// nothing. A migration only adds to the tables.
//
// Migrate drops functions only if they do not work correctly on its tables: those of versions
// before the oldest version that its release notes name. Clients of such a version, running or new,
// are refused from then on. Clients do not register anywhere, so an operator stops the old ones
// first; SELECT version FROM midge.functions lists the versions that a schema serves. Functions that
// nobody calls cost nothing.
//
// The following sections describe how the storage works, for readers who read its tables or work
// on midge.
//
// # Tables
//
// All tables are in one schema (Config.Schema); schema/tables describes every column.
//
//	queues      one row per queue: its number, pause, sizes and totals
//	limits      the limits of queues, and the turns of queues with partitions
//	tasks       every task that has not ended, and the cursors
//	lines       the lines with a name: those of kinds, for declined tasks, and those of partitions
//	ended       completed, cancelled and dead tasks that are kept
//	sides       parts that few tasks have: history, stack, result, progress, checkpoint
//	keys        unique keys that are held
//	lanes       the last call of each lane, and its outcome
//	deltas      changes of sizes and totals that are not folded into queues yet
//	idle        processes that wait for work; a crash of the server empties it
//	runners     heartbeats
//	mark        a sequence: the mark, one for all queues
//	jumped      a sequence: when a wait began because the clock had jumped ahead
//	clock       a sequence: the clock of the last steps, while the mark is ahead of it
//	migrations  the migrations of these tables that were applied
//	functions   the versions whose functions the schema holds
//	jobs        a view of the tasks for people with psql; see schema/jobs.sql for its cost
//
// The table tasks has two indexes that all tasks enter: its key (queue, id), and (line, sort, turn), where a
// line is a queue and a state. This one order serves claims, promotions, recoveries and listings, so that
// every transition between states is one update. A declined task stands in the line of its kind, and any
// other waiting task with a partition in the line of that; the numbers of these lines are below 0. A row of
// lines is also the place of a partition in the ring of its queue, which has an index of its own. It has the
// pause and the rest of the partition, each by itself, and the starts that count for the rate of the limit of
// partitions; the row with the empty key has the rest of the tasks without a partition. No row counts the
// running tasks of a partition: a task that counts has a flag while it is pending, and a third, partial index
// of tasks finds these by their partition. So every end of a task frees its place, whoever ends it, and
// nothing can drift. A claim reads the table lines once for each queue that it names; plain inserts and
// completions never do. TOAST stores a large payload apart from its row. A task that ends leaves the table
// tasks, and most tasks are deleted when they complete.
//
// # Steps
//
// Every verb is one transaction. The operations that a busy queue sees all day are functions in the
// database (schema/functions): claim, plain inserts (enqueue, and add for a lone one), and
// completions (finish). A hundred or more plain inserts are copied into the table (bulk.go). The
// client decides everything else, which is called the general way: a step loads and locks the records
// that it names, carries out its Txs in memory, one after the other (work.go), and writes the changes
// as arrays (save.go), or copies a hundred new tasks and more. A plain step that does not go as expected
// has done nothing, and is repeated the general way.
//
//	verb         round trips
//	Apply        1 for plain inserts and completions, 3 for a hundred inserts and more,
//	             otherwise 2, or 3 if it has to search for the holder of a key; 2 more if
//	             it makes a hundred tasks and more
//	Claim        1; 3 more, and at most 5, if the engine chooses; 4 more for each queue in
//	             which a lease has expired
//	Extend       2
//	Wait         0
//	Configure    3
//	reads        1
//	Within       2 (database/sql: one for each statement, about 6), 1 more if tasks join lines with a name
//
// A lone Apply goes out in the goroutine of its caller. Calls that arrive while it is under way share
// the next transaction (flush.go). Plain inserts, completions and other calls are flushed side by
// side, and so are two large calls of inserts.
//
// A claim promotes the due tasks of its queues, and then takes waiting tasks. If a queue has tasks that only
// some claims may take, a limit or ready partitions, the engine chooses (choose.go): it reads candidates
// without locks and without payloads, and locks exactly the tasks that it chooses. Of partitions it reads the
// first of the ring, as many as it may serve, and passes over partitions at their Concurrency. Of the
// line of a kind it reads the first tasks whose partition neither is paused nor rests; if it cannot fill the
// claim because partitions of these are at their Concurrency or Rate, it reads on without the tasks of these
// partitions, five times at most. It writes their places, how much is left of their turns, and their starts
// with the tasks that it takes. A partition without waiting tasks stands apart from the ready ones while
// tasks of it run or its starts count. The step of the end, a claim after the moment, or the sweep removes
// its row.
//
// # Locks
//
// No lock serialises the fleet. Claims from a queue that has a limit or partitions go one after the
// other: each locks a row of the table limits first, in the order of queues, and counts the tasks that
// are pending then, or serves the partitions by the turns that it finds then. If that takes 200 ms, it
// goes on as if the limit admitted no task, and asks its caller to claim again soon. Claims skip tasks
// that other transactions have locked. A step locks the tasks that it writes or relies on, in the
// order of queue and id, then the lines with a name that its tasks join, then unique keys. The lock on
// such a line is shared, and keeps only the line from being removed. Whoever takes the last task of a
// partition removes its line in the same step, unless somebody is about to join it; otherwise the
// sweep does. A task that an insert finds under its id is only read, without a lock. A step waits for
// another transaction only if that is inserting the same unique key, id or line with a name, and
// for 50 ms at most. Then it is rolled back, and the calls that shared it are carried out one by one.
// A call that is still held up returns an ErrUnknown, for its caller to repeat.
//
// In a transaction of the application's a step does wait for locks. Every commit with a notification waits
// for other commits with a notification: PostgreSQL lets one of them through at a time. Recovery passes
// over a task that is locked. Extend and cancel try again for a while, because steps lock tasks for some
// milliseconds. A cancel does so in classes of calls of its own, for longer than the server lets a step
// hang, and its last try waits for each lock for 100 ms, for half as long after each that it did not get,
// and for a second or so in all. Then an Extend passes over the task, which the application may settle in a
// transaction of its own, and the Tx of the cancel is refused with a DependencyError that names the task
// as pending. The server rolls back a step from which it hears nothing for two seconds. No
// setting bounds a step that stops while it copies its rows; the sweep of another client ends it after
// twenty seconds. Steps append changes of sizes and totals as rows, and one client at a time folds these
// rows. After a serialization failure, a deadlock or a lost race a step is repeated, with jitter.
//
// Steps run at READ COMMITTED, whatever the default of the role or of the URL is: Open reads the
// default, and if it is another level, each step names READ COMMITTED itself. In a transaction of
// the application's that keeps its first snapshot, an id or key that was taken since is a failure to
// serialize.
//
// # Plans
//
// A planner without statistics of a table filled a second ago would ruin claims. So each function
// that clients call turns off sequential scans and keeps one generic plan. The two indexes of tasks
// have no column in common, so that neither can do the other's work. A set of tasks is read one
// by one, in a subquery that the planner cannot flatten, and is written by the places found.
// Completed tasks are deleted along the key, by comparisons that no other plan can use. A claim
// starts where the last one ended (hint.go), because claimed tasks leave dead entries in the index
// until a vacuum.
//
// # Time
//
// Moments are those of clock_timestamp(), in microseconds. Versions, and the places of waiting tasks,
// come from the mark: a sequence that stands a little ahead of the versions in use, so that few
// steps move it. A step counts from the time of the clock; if the clock is more than 20 ms behind the
// mark, it takes the next numbers of the sequence. This relies on a clock that runs: two steps within
// one microsecond of it may have the same versions, and after the clock was set back by less than 20
// ms a step may have smaller versions than the step before it. The versions of each task always grow.
//
// A step that finds the clock more than storage.JumpAfter past the clock of the last step keeps the
// time in a second sequence. For storage.JumpWait from that time nothing is promoted, recovered,
// ticked, expired or swept. The mark shows the clock of the last step; if the mark comes from a
// clock that was ahead, a third sequence shows it. The sequences belong to no transaction: a step
// that is rolled back has moved them too.
//
// # Wake-ups
//
// Each schema has one channel, named midge_ and the schema's name, which all processes hear, and each
// process has one of its own, named midge_ and a number. A claim that leaves nothing marks its process
// as idle, in the table idle, and a step that makes work takes the newest mark and notifies that
// process alone. A claim that leaves tasks behind does the same for two processes, and a process in
// which nobody waits for another. If no process is marked, all of them hear of the work, as they do
// of due moments, cancels and settings. So a claim that does not see a task, and whose mark the step
// of the task does not see, loses no wake-up. The mark of a process that has ended can lose one, for
// ten seconds; then the slow scan of another process finds the task. A step may take the mark of its own
// process. If no claim of that process searches for the work within 10 ms, the process notifies another one.
//
// PostgreSQL before version 19 signals each connection that listens, whatever its channel, which
// costs about 30 µs each. A notification takes a lock of the whole server. So a wake-up goes with the
// commit that causes it at most once per queue in 5 ms, and the rest of these 5 ms follow together at
// their end. In transactions of the application's each wake-up goes with the commit, to all
// processes. One connection listens for all queues; without it (Config.NoListener) the callers' slow
// scan finds new work.
//
// # Vacuum
//
// Each task leaves two dead rows, and the server vacuums a table once a minute at most. So a storage
// counts the dead rows that it leaves, and vacuums when they are a third of the live rows
// (vacuum.go); only the owner of the tables can do that. A transaction that stays open, whoever
// opened it, keeps every vacuum from removing rows that died after its beginning. Meanwhile claims
// skip the places that they need not read (hint.go), a session changes its lanes, and Describe
// warns. A role with pg_read_all_stats can read the transactions of other roles too.
package postgres
