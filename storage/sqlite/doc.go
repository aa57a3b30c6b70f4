// Package sqlite keeps tasks in a SQLite file: durable, without a server, and open to several
// processes of one machine at once. It imports no driver; package storage/sqlite/modernc, a module of
// its own, provides one:
//
//	store, err := modernc.Open(ctx, "jobs.db")
//
// # Configuration
//
// A [Config] names a file of the storage's own, by Path and Driver, or the application's database, by
// DB:
//
//	cfg := sqlite.Config{Path: "jobs.db", Driver: modernc.Driver, Relaxed: true}
//	store, err := sqlite.Open(ctx, cfg)
//
//	db, err := modernc.OpenDB("shop.db")
//	err = sqlite.Migrate(ctx, sqlite.Config{DB: db}) // once per deploy
//	store, err := sqlite.Open(ctx, sqlite.Config{DB: db})
//
// Every process that opens the file uses the same Config.Prefix.
//
// # Permissions
//
// The file is on a disk of the machine, not on a network. A process needs the rights to read and
// write it, and to make files in its folder: SQLite puts two more files there, jobs.db-wal and
// jobs.db-shm, with the rights of jobs.db. All processes open the file by one name, because SQLite
// derives the names of these two files from it: processes that use different names overwrite each
// other's tasks. Open refuses a file with hard links. To share the file with a container, mount its
// folder, not the file.
//
// The file holds the parameters of all tasks: everybody who may read the file may read them. Open and
// modernc.OpenDB make a file that only its user may read and write, whatever the umask; a file that is
// there keeps its permissions. The umask counts for copies by VACUUM INTO and by sqlite3. For processes of
// several users, who share a group, make the file before:
//
//	install -d -m 2770 -g jobs /var/lib/jobs
//	install -m 660 -g jobs /dev/null /var/lib/jobs/jobs.db
//
// The data of a deleted task are overwritten with zeros (PRAGMA secure_delete). The log has them until a
// checkpoint is over and later steps overwrite it, or the last process closes the file. What a transaction of
// the application's deletes stays in free pages, unless its connection has set secure_delete too; VACUUM
// removes it.
//
// # Durability
//
// The file has a write-ahead log, and a commit waits for its fsync: an acknowledged task survives a
// power cut. Config.Relaxed trades that for speed. Only claims, and extensions of leases without
// progress or a checkpoint, never wait for an fsync: if a power cut loses them, no process is left
// that relies on them, and the log is written in order. Checkpoints are SQLite's own, PASSIVE ones of
// 1,000 pages; Config.NoCheckpoints leaves them to other programs, such as Litestream. VACUUM INTO
// makes a copy of the file while it is in use.
//
// # Several processes
//
// SQLite has one writer at a time. Each step begins as a writer (BEGIN IMMEDIATE) and waits up to
// five seconds for another writer to end; then it fails with storage.ErrUnavailable. A process that
// is frozen while it writes, and a transaction of the application's that is left open, stop all other
// writers, their heartbeats too. Therefore a lease lasts at least Config.MinLease. After steps could
// not be written for longer than a third of that, because the lock was held or the disk was full, no
// lease is recovered for another third, so that the runners that live extend their leases first.
// Describe warns of such times.
//
// # Damage
//
// The file must stay where it is while a process has it open. Once the file, its log (-wal) or the index
// of its log (-shm) was moved, removed or replaced, each call is refused with a *FileError (Moved) that
// names the remedy. Otherwise the writes of such a process would be lost with the file, or would overwrite
// the writes of others. If the index was removed, Close then leaves the file open until the process ends,
// because SQLite would copy the log into the file with an index that is no longer right, and Open refuses
// the file in this process. Open refuses a file with an index and no log, and an empty file with a log.
//
// If the file or its log was truncated, or a backup was written over it, calls are refused with a
// *FileError (Broken), and Close leaves the file open too. A checkpoint that truncates the log does no harm.
//
// Open refuses a file in which a table or an index is missing, or has a malformed first or last page. It
// reads all pages (PRAGMA integrity_check) of a file of up to 32 MB whose log is missing, empty or
// truncated: its last process closed it, or it is a copy. A copy of a file in use is made with VACUUM INTO.
// Describe warns of damage that a step met later. A claim sets a task apart that it cannot read: such a
// task stops no other task, Stats.Damaged counts it, and Describe names it. A limit that cannot
// be read counts as none, and in Stats.Damaged. A claim mends the row of a partition or a kind whose size or
// place is wrong, or that is missing: at once if it finds no other partition, and else within a minute. It
// mends the other data of a partition too: of data that cannot be read, only the tasks that run are counted
// again.
//
// # The application's transactions
//
// Storage.Within joins a transaction on the same database: tasks that it enqueues or completes commit
// with the transaction. Open the database with modernc.OpenDB, or with a name such as
//
//	file:shop.db?_txlock=immediate&_pragma=busy_timeout(20000)
//
// With _txlock=immediate a transaction begins as a writer; a transaction that began deferred fails
// with a *DeferredError if another transaction wrote after it had read. With busy_timeout Begin
// waits up to 20 seconds while another connection writes, such as the storage's own; without it
// Begin fails at once with "database is locked".
//
// # Wake-ups
//
// Commits of this process wake those who wait at once. For commits of other processes, and of the
// application's transactions, the storage watches the folder of the file, and compares numbers that
// queues keep (rings, alerts) at most every 5 ms. If the system reports no event, or reports it
// late, the storage compares them once a second.
//
// # How it works
//
// The rules are those of storage/internal/engine, which the memory storage and PostgreSQL share; this
// package finds records and keeps them. schema.go describes the tables. Each call is a few statements
// in one transaction; concurrent calls share the transaction, and its fsync
// (storage/internal/combine).
//
// A partition has a row while it has waiting tasks, or keeps anything else (Rules of partitions in package
// storage): its size, its place in the ring of its queue, and the data that it keeps. A queue counts its
// tasks in partitions and its partitions that are not ready among its sizes, so that claims and inserts in
// a queue without partitions make no statement more.
//
// # For people
//
// The view midge_jobs shows all tasks in words:
//
//	sqlite3 jobs.db "SELECT id, kind, state, last_error FROM midge_jobs WHERE queue = 'mail'"
package sqlite
