// Package postgres is the storage for applications that have a PostgreSQL: version 13 or
// later, one server or a primary with standbys, with or without a proxy that pools
// connections. A task can be enqueued or settled in the very transaction that writes the
// application's rows; see [Storage.Within].
//
//	cfg := postgres.Config{URL: "postgres://localhost/shop"} // or Pool: a *pgxpool.Pool
//	err := postgres.Migrate(ctx, cfg)                        // once per deploy
//	store, err := postgres.Open(ctx, cfg)
//
// # Configuration
//
// A [Config] needs a URL or a Pool, and nothing else. Every process of an application has the same
// Config.Schema; applications that share a database have one each.
//
//	postgres://user:password@host:5432/database?sslmode=verify-full
//	postgres://user:password@one,two/database       the host that takes writes
//	host=/run/postgresql dbname=database user=user  a socket
//
// # Permissions
//
// The role that calls Migrate needs CREATE on the database, or on the schema where that exists, and
// owns the tables then. Processes may use the same role. One that may do less:
//
//	GRANT USAGE ON SCHEMA midge TO worker;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA midge TO worker;
//	GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA midge TO worker;
//	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA midge TO worker;
//
// Grant that again after each Migrate, as it may bring tables and functions, or let the role that
// migrates say ALTER DEFAULT PRIVILEGES once. To vacuum takes the owner of the tables: under
// another role the server's autovacuum has to do. A role with pg_read_all_stats is warned of the
// transactions of others that hold vacuum back. To read the view jobs takes USAGE on the schema
// and SELECT on the view.
//
// # Connections
//
// A process has up to Config.Connections for claims, inserts, reads and what carries more than
// 64 KiB, two more for leases and settles, one that listens, and one for vacuums. They are the
// storage's own even where Config.Pool is given, so that jobs which hold every connection of
// that pool starve nothing. The first steps of a connection take twenty times as long as later
// ones.
//
// A connection may be dead without a sign of it. Each call waits for some seconds, whatever
// its context says, and then its outcome is unknown and its connection given up (reply.go).
//
// A proxy may pool transactions, as PgBouncer does with pool_mode = transaction: no step
// leaves anything in a session, and prepared statements are used until one is not where it
// was made, unnamed ones from then on. Name the proxy in Config.URL and the server itself
// in Config.ListenURL, as the listener alone needs a session; or set Config.NoListener, and
// tasks are found within a second or so. Nothing else is to be configured where one schema is
// used. A connection of the server keeps about a megabyte of plans for each schema that it has
// served, and looks through all of them whenever a table or function is created: behind a proxy
// that serves hundreds of schemas, let its connections live for minutes (server_lifetime).
//
// # Upgrades
//
// Functions carry a version in their names (claim_1), and each client calls those of its own
// version, so that two versions work side by side on the same tables. To upgrade, call Migrate
// of the new version, by itself or as its first process starts; then replace the processes, in
// any order. To go back, start the old version again: its functions are still there, and its
// Migrate changes nothing. A migration of the tables only adds to them.
//
// Migrate drops functions alone that do no right on its tables: those before the oldest version
// that its release notes name. A client of such a version, running or new, is refused then. No
// client tells that it is there, so an operator stops them first; SELECT version FROM
// midge.functions lists the versions that a schema serves. Functions that nobody calls cost
// nothing.
//
// What follows is how the storage works, for those who look into its tables or work on midge.
//
// # Tables
//
// All are in one schema (Config.Schema); schema/tables tells every column.
//
//	queues      a row a queue: its number, pause, sizes and totals
//	tasks       every task that has not ended, and the cursors
//	kinds       the lines in which declined tasks wait, one for each kind of a queue
//	ended       completed, cancelled and dead tasks that are kept
//	sides       what few tasks have: history, stack, result, progress, checkpoint
//	keys        unique keys that are held
//	lanes       the last call of each lane, and its outcome
//	deltas      what steps changed of sizes and totals, until it is folded into queues
//	runners     heartbeats
//	mark        a sequence: the mark, one for all queues
//	jumped      a sequence: when a wait began because the clock had jumped ahead
//	clock       a sequence: the clock of the last steps, where the mark is ahead of it
//	migrations  the migrations of these tables that were applied
//	functions   the versions of functions that are here
//	jobs        a view of the tasks for people with psql; see schema/jobs.sql for its cost
//
// tasks has two indexes: its key (queue, id), and (line, sort), in which a line is a queue
// and a state. That one order serves claims, promotions, recoveries and listings, so that
// every arrow between states is one update. A declined task stands in the line of its kind,
// a number below 0; a claim looks at kinds once for each queue that it names, and inserts and
// completions never do. A large payload stands apart by TOAST. What
// has ended is out of tasks, and most tasks are deleted when they complete.
//
// # Steps
//
// Every verb is one transaction. What a busy queue sees all day is a function in the
// database (schema/functions): claim, plain inserts (enqueue, and add for a lone one),
// completions (finish). A hundred plain inserts and more are copied into the table (bulk.go).
// Everything else is decided by the client: a step loads and locks what it names, carries
// its Txs out in memory, one after the other (work.go), and writes what changed over
// arrays (save.go). A plain step that does not go as expected has done nothing and is
// done again that way.
//
//	verb         round trips
//	Apply        1 for plain inserts and completions, 3 for a hundred inserts and more,
//	             else 2; 3 where it has to look for the holder of a key
//	Claim        1; 3 more, and at most 5, where the engine chooses; 4 more for each queue in
//	             which a lease has expired
//	Extend       2
//	Wait         0
//	Configure    3
//	reads        1
//	Within       2 (database/sql: one a statement, about 6)
//
// A lone Apply goes out in the goroutine of its caller, and one that arrives while it is
// under way with the next: concurrent calls share transactions (flush.go). Plain inserts,
// completions and the rest are flushed side by side, and so are two large calls of inserts.
//
// A claim promotes what is due in its queues, and then takes what waits. Where one of them has
// tasks that only some claims may take, the engine chooses (choose.go): it reads candidates
// without a lock and without payloads, and locks exactly the chosen ones.
//
// # Locks
//
// Nothing serialises the fleet. Claims skip what others have locked. A step locks the
// tasks that it writes or relies on, in the order of queue and id, then the lines of kinds that
// they join, then unique keys; what an insert finds there already it only reads. It waits for no lock
// of another transaction but that of a unique key, an id or a line of a kind that is being inserted,
// for 50 ms: then it is rolled back, the calls that shared it
// are carried out one by one, and one that is still held up is handed back as an ErrUnknown,
// for its caller to repeat. In a transaction of the application's it waits, and so does every
// commit with a notification for those of others: PostgreSQL lets one at a time. Extend, cancel and
// recovery pass over a task that is locked, as one is that the application settles in a
// transaction of its own. A step of which nothing is heard for two seconds is rolled back by the
// server; one that stopped in the middle of its rows, which no setting bounds, is ended by
// another client's sweep after twenty.
// Sizes and totals are appended as rows, and one client at a time folds them.
// A serialization failure, a deadlock or a lost race is done again with jitter.
//
// Steps are READ COMMITTED whatever the role's or URL's default is: what it is Open reads, and
// where it is another each step says so itself. In a transaction of the application's that
// keeps its first snapshot an id or key that was taken since is a failure to serialize.
//
// # Plans
//
// A planner that knows nothing of a table filled a second ago would ruin claims. Each
// function that clients call turns off sequential scans and keeps one generic plan; the
// two indexes of tasks have no column in common by which one could do the other's work; a
// set of tasks is looked up one by one in a subquery that cannot be turned inside out, and
// written by the places found; what completes is deleted along the key, by comparisons
// that no other plan can use. A claim starts where the last one ended (hint.go), because
// what was claimed leaves dead entries in the index until a vacuum.
//
// # Time
//
// Moments are those of clock_timestamp(), in microseconds. Versions and places among what waits
// come from the mark, a sequence that stands a little ahead of what was given, so that few
// steps move it: a step takes the time by the clock, and where the clock is more than 20 ms
// behind the mark the next number. It relies on a clock that runs: two steps within a
// microsecond of it may have the same versions, and one after the clock was set back by less
// than 20 ms smaller ones than the step before it; those of each task always grow.
//
// A step that finds the clock more than storage.JumpAfter past that of the last step keeps the time
// in a second sequence. For storage.JumpWait from there nothing is promoted, recovered, ticked,
// expired or swept. The mark tells the clock of the last step, or a third sequence where the mark
// is that of a clock which was ahead. The sequences belong to no transaction: a step that is rolled
// back has moved them too.
//
// # Wake-ups
//
// One channel a schema, midge_ and its name. A wake-up goes with the commit that causes
// it, at most one a queue in 5 ms, the rest of which follow together at their end: a
// notification takes a lock of the whole server. In transactions of the application's each
// goes with the commit. One connection listens for all queues; without it
// (Config.NoListener) the callers' slow scan finds what is new.
//
// # Vacuum
//
// Each task leaves two dead rows, and the server vacuums a table once a minute at most. So
// a storage counts what it leaves, and vacuums where that is a third of what lives (vacuum.go);
// that takes the owner of the tables. A transaction that stays open, whosever it is, keeps
// every vacuum from removing what died since: claims know where they need not look
// (hint.go), a session changes its lanes, and Describe warns. A role with pg_read_all_stats
// sees the transactions of others too.
package postgres
