package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/room"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// Storage keeps tasks in a file. It is safe for concurrent use.
type Storage struct {
	cfg    Config
	prefix string
	limits storage.Limits
	db     *sql.DB
	own    bool   // the storage has opened the database
	path   string // of the file
	file   identity
	index  atomic.Pointer[identity] // of the log; nil before it is noted
	server string                   // the version of SQLite

	// writer holds the connection that writes, or nil if it has to be made anew. Whoever receives
	// it may write.
	writer    chan *writer
	combiner  *combine.Combiner[*call]
	events    wakeup.Stream
	rings     rings
	lock      lock
	room      room.Room
	damage    atomic.Pointer[FileError] // the first that was found
	truncated atomic.Bool               // the log was truncated while it was in use
	mark      atomic.Int64              // the latest that was read under the write lock
	swept     atomic.Int64              // when this process last swept the whole file
	visited   atomic.Int64              // the number of the queue that it last inspected
	// looks holds the places from which this process goes on to search for tasks that waited too
	// long, in lines of kinds that it has not searched to their ends: an engine.Place by the number
	// of the line.
	looks sync.Map
	idle  sync.Map // by the lane's id: its last call, if that was a claim that changed nothing

	background context.Context         //nolint:containedctx // of what no caller's context ends
	stop       context.CancelCauseFunc // ends background
	watching   sync.WaitGroup          // the goroutine that watches the file; it ends with background
	closed     atomic.Bool
}

var (
	_ storage.Storage = (*Storage)(nil)
	_ storage.Located = (*Storage)(nil)
)

// writer is a connection with the statements that are prepared on it.
type writer struct {
	conn    *sql.Conn
	stmts   map[string]*sql.Stmt
	log     identity
	logSize int64    // when it was last read
	logFile *os.File // nil before it is read
	relaxed bool     // its commits wait for no fsync
	seen    int64    // data_version when the commits of others were last read
}

// Open opens a file of the storage's own, which it makes if there is none, or the application's
// database, in which Migrate has made the tables. Its errors are a *storage.InvalidError for a bad
// Config, a *FileError for a file that cannot serve, a *SchemaError for tables that cannot, and
// storage.ErrUnavailable if others hold the file. ctx bounds only the opening.
func Open(ctx context.Context, cfg Config) (*Storage, error) {
	s, err := open(ctx, cfg, false)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open: %w", err)
	}
	if err := s.watch(); err != nil { //nolint:contextcheck // the watch outlives the opening
		_ = s.Close()
		return nil, fmt.Errorf("sqlite: open: watch %s: %w", s.path, err)
	}
	return s, nil
}

// open opens a storage that does not watch the file yet.
func open(ctx context.Context, cfg Config, migrate bool) (*Storage, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	db, own, err := cfg.connect()
	if err != nil {
		return nil, err
	}
	s := &Storage{
		cfg: cfg, prefix: cfg.Prefix, limits: cfg.Limits.WithDefaults(), db: db, own: own, path: cfg.Path,
		writer: make(chan *writer, 1), room: room.Room{Of: "SQLite", Remedy: remedy},
	}
	whole := own && unlogged(cfg.Path)
	s.writer <- nil
	s.background, s.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	s.combiner = combine.New(combine.Config[*call]{
		Flush: s.flush, Apart: s.flushApart, Context: s.background,
		Keep:  func(c *call) { c.keep() },
		Calls: flushCalls, Ops: flushOps, Bytes: flushBytes, Beside: 1,
	})
	err = s.insist(ctx, func() error { return s.install(ctx, migrate || own) })
	if err == nil && whole {
		err = s.look(ctx, func(w *work) { w.readAll() })
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// install checks the file; with migrate it makes or migrates the tables.
func (s *Storage) install(ctx context.Context, migrate bool) error {
	wr, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	ok := false
	defer func() { s.release(wr, ok) }()
	plain := context.WithoutCancel(ctx)
	w := s.newWork(plain, wr.conn, wr.stmts)
	var mode, name string
	var seq int
	w.one("SELECT sqlite_version()", nil, &s.server)
	w.one("PRAGMA database_list", nil, &seq, &name, &s.path)
	if w.err == nil && !s.own {
		w.err = checkLinks(s.path)
	}
	if w.err == nil && !s.indexHolds() {
		w.err = indexMoved(s.path)
	}
	w.one("PRAGMA journal_mode", nil, &mode)
	if mode != "wal" && migrate {
		if found := w.installed(); w.err == nil && s.own && found.Found == 0 {
			w.err = s.examine(w, false)                                            // a foreign file is left as it is
			if refused, none := w.err.(*SchemaError); none && refused.Found == 0 { //nolint:errorlint // made here
				w.err = nil
			}
		}
		w.one("PRAGMA journal_mode = WAL", nil, &mode)
	}
	if w.err == nil && (mode != "wal" || s.path == "") {
		w.err = &FileError{
			Path: cmp.Or(s.path, ":memory:"), Problem: NoWAL,
			Remedy: "use a file on a disk, and call sqlite.Migrate",
		}
	}
	if w.err != nil {
		return w.err
	}
	if err := s.begin(ctx, wr.conn); err != nil {
		return err
	}
	if err := s.examine(w, migrate); err != nil {
		_, _ = wr.conn.ExecContext(plain, "ROLLBACK")
		return err
	}
	_, err = wr.conn.ExecContext(plain, "COMMIT")
	s.file.note(s.path)
	s.noteIndex()
	ok = err == nil
	return err
}

// acquire takes the connection that writes. It fails if ctx ends first.
func (s *Storage) acquire(ctx context.Context) (*writer, error) {
	select {
	case wr := <-s.writer:
		if wr != nil {
			return wr, nil
		}
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", storage.ErrUnavailable, context.Cause(ctx))
	}
	wr, err := s.dial(context.WithoutCancel(ctx))
	if err != nil {
		s.writer <- nil
	}
	return wr, err
}

// dial makes a connection that writes.
func (s *Storage) dial(ctx context.Context) (*writer, error) {
	if s.closed.Load() {
		return nil, storage.ErrClosed
	}
	if err := s.checkMoved(nil); err != nil { // SQLite would make a new file
		return nil, err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	wr := &writer{conn: conn, stmts: make(map[string]*sql.Stmt)}
	checkpoints := 1000 // pages, as SQLite's own default is
	if s.cfg.NoCheckpoints {
		checkpoints = 0
	}
	_, err = conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = 0; PRAGMA wal_autocheckpoint = %d; "+
		"PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16000; PRAGMA secure_delete = ON", checkpoints))
	if err == nil {
		wr.relaxed = !s.cfg.Relaxed
		err = wr.relax(ctx, s.cfg.Relaxed)
	}
	if err != nil {
		wr.close()
		return nil, err
	}
	return wr, nil
}

// relax sets whether the commits that follow wait for an fsync.
func (wr *writer) relax(ctx context.Context, relaxed bool) error {
	if wr.relaxed == relaxed {
		return nil
	}
	level := "FULL"
	if relaxed {
		level = "NORMAL"
	}
	_, err := wr.conn.ExecContext(ctx, "PRAGMA synchronous = "+level)
	wr.relaxed = relaxed
	return err
}

// close ends the connection. It does not go back to the application's pool, as it has the storage's
// settings.
func (wr *writer) close() {
	if wr.logFile != nil {
		_ = wr.logFile.Close()
	}
	for _, st := range wr.stmts {
		_ = st.Close()
	}
	_ = wr.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// release puts the connection back, or closes it if it failed. See mayClose.
func (s *Storage) release(wr *writer, ok bool) {
	if !ok && s.mayClose() {
		wr.close()
		wr = nil
	}
	s.writer <- wr
}

// Location names the file, and the prefix of its tables if that is not the default.
func (s *Storage) Location() string {
	if s.prefix == defaultPrefix {
		return "sqlite " + s.path
	}
	return fmt.Sprintf("sqlite %s, prefix %s", s.path, s.prefix)
}

// Describe reports the file and the guarantee of an acknowledgement, and warns of problems.
func (s *Storage) Describe(ctx context.Context) (storage.Description, error) {
	d := storage.Description{Storage: "sqlite " + s.server, Limits: s.limits}
	d.Durability = "an acknowledged task is on the disk: it survives a power cut (synchronous=FULL)"
	if s.cfg.Relaxed {
		d.Durability = "an acknowledged task survives its process; a power cut loses those of the last moments " +
			"(synchronous=NORMAL)"
	}
	err := s.look(ctx, func(w *work) {
		w.begin()
		d.Now = engine.Time(w.step.Now)
		d.Warnings = append(storage.ClockWarnings(d.Now, engine.Time(w.meta.mark), engine.Time(w.step.Jumped)),
			s.lock.warnings()...)
		d.Warnings = append(d.Warnings, w.damages()...)
	})
	if err == nil {
		s.findRoom(ctx)
	}
	s.room.Tell(&d)
	return d, wrap("describe", err)
}

// Close ends every Wait and the background work. Calls under way may fail with an ErrUnknown.
func (s *Storage) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.stop(storage.ErrClosed)
	s.events.Close()
	s.combiner.Close()
	s.watching.Wait()
	if wr := <-s.writer; wr != nil && (!s.own || s.mayClose()) {
		wr.close()
	}
	s.writer <- nil
	if s.own && s.mayClose() {
		return s.db.Close()
	}
	return nil
}

// enter refuses a call of a closed storage.
func (s *Storage) enter() error {
	if s.closed.Load() {
		return storage.ErrClosed
	}
	return nil
}
