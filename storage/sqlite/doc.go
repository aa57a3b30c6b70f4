// Package sqlite keeps tasks in a file, by SQLite: durable, without a server, and open to several processes
// of one machine at once. It imports no driver; package storage/sqlite/modernc, a module of its own, brings
// one:
//
//	store, err := modernc.Open(ctx, "jobs.db")
//
// # Configuration
//
// A [Config] names a file of the storage's own by Path and Driver, or the application's database by DB:
//
//	cfg := sqlite.Config{Path: "jobs.db", Driver: modernc.Driver, Relaxed: true}
//	store, err := sqlite.Open(ctx, cfg)
//
//	db, err := modernc.OpenDB("shop.db")
//	err = sqlite.Migrate(ctx, sqlite.Config{DB: db}) // once per deploy
//	store, err := sqlite.Open(ctx, sqlite.Config{DB: db})
//
// Every process that opens the file has the same Config.Prefix.
//
// # Permissions
//
// The file is on a disk of the machine, not on a network. A process needs the right to read and write it, and
// to make files in its folder, where SQLite puts two more, jobs.db-wal and jobs.db-shm, with the rights of
// jobs.db. All processes open the file by one name, because these two are found by it: processes with
// different names overwrite each other's tasks. Open refuses a file with hard links; into a container mount
// the folder, not the file.
//
// The file holds the parameters of all tasks: whoever may read it may read those. Open makes a file
// that its user alone may write. For processes of several users, who share a group, make it before:
//
//	install -d -m 2770 -g jobs /var/lib/jobs
//	install -m 660 -g jobs /dev/null /var/lib/jobs/jobs.db
//
// # Durability
//
// The file has a write-ahead log, and a commit waits for its fsync: an acknowledged task survives a power
// cut. Config.Relaxed gives that up for speed. Claims and extensions of leases alone never wait for an
// fsync: where a power cut takes them, nobody is left who relies on them, and the log is written in its
// order. Checkpoints are SQLite's own, PASSIVE ones of 1,000 pages; Config.NoCheckpoints leaves them to
// others, such as Litestream. VACUUM INTO makes a copy of the file while it is in use.
//
// # Several processes
//
// SQLite has one writer at a time. Each step begins as one (BEGIN IMMEDIATE) and waits up to five seconds
// for another to end, then it is a storage.ErrUnavailable. A process that is frozen while it writes, and a
// transaction of the application's that is left open, stop all others, their heartbeats too. Therefore a
// lease lasts at least Config.MinLease; and after steps could not be written for longer than a third of that,
// because the lock was held or the disk was full, nothing is recovered for as long, so that the runners that
// live extend their leases first. Describe warns of such times.
//
// # Damage
//
// The file must stay where it is while a process has it open. Once it, or its log, was moved, removed or
// replaced, each call is refused with a *FileError (Moved): what such a process wrote would be lost with it.
// Put the file back, or restart the processes.
//
// Open refuses a file in which a table or an index is missing, or whose first or last pages are malformed;
// PRAGMA quick_check reads all of them. Describe warns of damage that a step met later. A task that cannot be
// read is set apart by the claim that meets it: it stops no other task, Stats.Damaged counts it, and
// Describe names it.
//
// # The application's transactions
//
// Storage.Within joins a transaction on the same database: what it enqueues or completes commits with it.
// Open the database with modernc.OpenDB, or with a name such as
//
//	file:shop.db?_txlock=immediate&_pragma=busy_timeout(20000)
//
// _txlock=immediate has a transaction begin as a writer; one that began deferred fails with a *DeferredError
// where another wrote after it had read. With busy_timeout its Begin waits up to 20 seconds while another
// connection writes, the storage's own among them; without it Begin fails at once with "database is locked".
//
// # Wake-ups
//
// Commits of this process wake at once. For those of others, and of the application's transactions, the
// storage watches the folder of the file, and compares numbers that queues keep (rings, alerts) at most every
// 5 ms. Where the system tells nothing, or late, it looks once a second.
//
// # How it works
//
// The rules are those of storage/internal/engine, which the memory storage and PostgreSQL share; this
// package finds records and keeps them. The tables are described in schema.go. Each call is a few statements
// in one transaction, and concurrent calls share that, and its fsync (storage/internal/combine).
//
// # For people
//
// The view midge_jobs shows all tasks in words:
//
//	sqlite3 jobs.db "SELECT id, kind, state, last_error FROM midge_jobs WHERE queue = 'mail'"
package sqlite
