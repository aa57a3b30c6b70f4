package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/midgehq/midge/storage/internal/engine"
)

// checkPath refuses a path that cannot be that of the storage's own file.
func checkPath(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return &FileError{Path: path, Problem: Foreign, Remedy: "it is a folder: name a file in it"}
	}
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return &FileError{Path: path, Problem: NoFolder, Remedy: "make the folder " + filepath.Dir(path)}
	}
	return cmp.Or(checkFileSystem(path), checkLinks(path), checkLog(path))
}

// checkLog refuses a log without its file, or with an empty one: SQLite would begin with an empty file, and
// remove the log with the tasks in it. It makes the file before the log.
//
// checkLog also refuses a file that has its index of the log, -shm, and no log. SQLite makes the log before
// the index and removes it after, so the log was removed. A process that still has the file open goes on with
// the index, with which a process that opens it now would read a log that is empty.
func checkLog(path string) error {
	if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 && (missing(path) || empty(path)) {
		return &FileError{
			Path: path, Problem: Moved,
			Remedy: "put it back beside its log, " + filepath.Base(path) + "-wal; or remove the log to begin with " +
				"an empty file: the tasks in both are lost then",
		}
	}
	if !missing(path+"-wal") || missing(path+"-shm") || !missing(path+"-wal") { // made in between
		return nil
	}
	return logMoved(path)
}

func logMoved(path string) error {
	return &FileError{
		Path: path + "-wal", Problem: Moved,
		Remedy: "put it back under its name; or stop all processes that have the database open, remove " +
			filepath.Base(path) + "-shm, and restart them: the tasks of the last moments are lost then",
	}
}

func indexMoved(path string) error {
	return &FileError{
		Path: path + "-shm", Problem: Moved,
		Remedy: "restart all processes that have " + path + " open; nothing that was acknowledged is lost",
	}
}

func missing(name string) bool {
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist)
}

func empty(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Size() == 0
}

// headless reports whether a log that is not empty has zeros in place of its header: it was truncated while
// it was in use, and a commit was written behind the hole. SQLite locks no part of the log, so that a process
// may open and close it; it locks the file and the index, and loses these locks if either is closed.
func headless(log string) bool {
	f, err := os.Open(log)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return zeros(f)
}

// zeros reports whether a file begins with zeros.
func zeros(f *os.File) bool {
	var magic [4]byte
	n, _ := f.ReadAt(magic[:], 0)
	return n == len(magic) && magic == [4]byte{}
}

// headless is headless of the log, which stays open for as long as the connection.
func (wr *writer) headless(log string) bool {
	if wr.logFile == nil {
		wr.logFile, _ = os.Open(log)
	}
	return wr.logFile != nil && zeros(wr.logFile)
}

// readAllMost is the size of the largest file that Open reads as a whole, which takes about a second.
const readAllMost = 32 << 20

// unlogged reports whether a file of up to readAllMost has no log with commits. Its last process closed it
// then, or it is a copy that was made without the log, or the log was removed or truncated: only a check
// of all pages shows which.
func unlogged(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() <= readAllMost &&
		(missing(path+"-wal") || empty(path+"-wal") || headless(path+"-wal"))
}

// readAll reads all pages. It fails with a *FileError if a page is malformed, or an index does not fit its
// table.
func (w *work) readAll() {
	var found string
	w.one("PRAGMA integrity_check(1)", nil, &found)
	if w.err == nil && found != "ok" {
		w.fail(w.store.broken(errors.New(strings.ReplaceAll(found, "\n", " "))))
	}
}

// identity is the file for which a name stood when it was noted; nil if the system did not report it.
type identity struct{ os.FileInfo }

func (i *identity) note(name string) { i.FileInfo, _ = os.Stat(name) }

// holds reports whether a name still stands for that file. If the system does not report it, holds
// reports true.
func (i *identity) holds(name string) bool {
	if i.FileInfo == nil {
		return true
	}
	info, err := os.Stat(name)
	return err == nil && os.SameFile(i.FileInfo, info) || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// checkMoved refuses a file that no longer has its name, or whose log or index of the log has not. Writes to
// the file or the log are lost when the last process closes it. Processes with different indexes do not see
// each other's locks and commits, and overwrite them. log is nil for a connection that is not the storage's
// own.
func (s *Storage) checkMoved(log *identity) error {
	if !s.file.holds(s.path) {
		return &FileError{
			Path: s.path, Problem: Moved,
			Remedy: "put it back under its name, or restart the processes that have it open: they go on with the " +
				"file that is there then",
		}
	}
	if s.file.FileInfo != nil && empty(s.path) { // SQLite would remove the log
		return s.broken(errors.New("it is empty"))
	}
	if !s.indexHolds() {
		return indexMoved(s.path)
	}
	if log == nil {
		return nil
	}
	s.noteIndex()
	if log.FileInfo == nil {
		log.note(s.path + "-wal")
	}
	if !log.holds(s.path + "-wal") {
		return logMoved(s.path)
	}
	return nil
}

// beginStep begins each step that writes, in a transaction that has the write lock of the connection. It
// refuses a step whose file was moved or truncated: refused is that error, which w has too, and the
// connection is sound.
func (s *Storage) beginStep(ctx context.Context, wr *writer, w *work) (refused error) {
	refused = s.checkMoved(&wr.log)
	w.fail(refused)
	s.noteLogSize(ctx, wr)
	w.begin()
	if cut := s.checkTruncated(w, wr.headless(s.path+"-wal")); refused == nil && cut != nil {
		refused, w.err = cut, cut
	}
	if w.err == nil {
		s.mark.Store(w.meta.mark)
	}
	return refused
}

// beginJoined is beginStep in a transaction of the application's, which may have no write lock yet. It keeps
// no mark, because the transaction may be rolled back.
func (s *Storage) beginJoined(w *work) {
	log := s.path + "-wal"
	if empty(log) { // see noteLogSize
		w.exec("PRAGMA shrink_memory")
	}
	w.exec("UPDATE {p}meta SET mark = mark") // takes the write lock: nobody writes in between
	w.begin()
	if cut := s.checkTruncated(w, headless(log)); cut != nil {
		w.err = cut
	}
}

// noteLogSize drops the pages in memory if the log is empty, or shorter than before, so that the step
// reads the mark again. The log is so after a checkpoint that truncates it, or because somebody truncated it
// while it was in use.
func (s *Storage) noteLogSize(ctx context.Context, wr *writer) {
	info, err := os.Stat(s.path + "-wal")
	if err != nil { // checkMoved reports it
		return
	}
	if info.Size() == 0 || info.Size() < wr.logSize {
		_, _ = wr.conn.ExecContext(ctx, "PRAGMA shrink_memory")
	}
	wr.logSize = info.Size()
}

// checkTruncated refuses a step after the log was truncated while it was in use: commits would be written
// behind a hole, and a checkpoint would copy the hole into the file. If SQLite has begun the log anew, the
// mark is older than a mark that was committed. The caller holds the write lock; headless is whether the log
// is headless.
func (s *Storage) checkTruncated(w *work, headless bool) error {
	switch {
	case s.truncated.Load(), headless, s.cfg.Code(w.err) == codeShortRead:
	case w.err != nil:
		return nil //nolint:nilerr // another error, which the step returns
	case w.meta.mark >= s.mark.Load() || w.meta.mark == 0: // 0 stands for a damaged one, too
		return nil
	}
	return s.cutShort(w.err)
}

// cutShort makes the error of a log that was truncated. From then on the storage refuses all steps.
func (s *Storage) cutShort(err error) error {
	s.truncated.Store(true)
	return &FileError{
		Path: s.path + "-wal", Problem: Broken, Err: err,
		Remedy: "it was truncated, or the file went back, while it was in use: restart all processes that have " +
			s.path + " open; the tasks of the last moments are lost",
	}
}

// mayClose reports whether SQLite may copy the log into the file, as it does when the last connection is
// closed. With an index that is not that of all processes it would remove the commits of others, and from a
// log that was truncated it would copy zeros.
func (s *Storage) mayClose() bool {
	if s.db.Stats().OpenConnections == 0 {
		return true
	}
	return s.indexHolds() && !s.truncated.Load() && !headless(s.path+"-wal")
}

// noteIndex notes the index of the log, which all connections of a process share. One is open.
func (s *Storage) noteIndex() {
	if s.index.Load() == nil {
		noted := new(identity)
		noted.note(s.path + "-shm")
		s.index.CompareAndSwap(nil, noted)
	}
}

// lost holds, by their paths, the files whose index was moved or removed while this process had them
// open. SQLite goes on with that index for as long as the process has a connection, also in a storage
// that is opened later.
var lost sync.Map

// opened is a file with the index that this process has of its log.
type opened struct{ file, index identity }

// indexHolds reports whether the index of the log is still that of this process. If the storage has no
// connection, the next one opens the index that is there then.
func (s *Storage) indexHolds() bool {
	noted := s.index.Load()
	if noted == nil {
		was, _ := lost.Load(s.path)
		o, found := was.(opened)
		return !found || !o.file.holds(s.path) || o.index.holds(s.path+"-shm")
	}
	if noted.holds(s.path+"-shm") || s.db.Stats().OpenConnections == 0 && s.index.CompareAndSwap(noted, nil) {
		return true
	}
	lost.Store(s.path, opened{s.file, *noted})
	return false
}

// made are the tables and indexes of this version: their kinds and names.
var made = regexp.MustCompile(`CREATE (?:UNIQUE )?(TABLE|INDEX) \{p\}(\w+)`).FindAllStringSubmatch(tables, -1)

// ends read the first row of each table and index, and in the other direction the last: % stands for
// the direction. The statements of tables name all columns.
var ends = []string{
	"SELECT mark, clock, jumped FROM {p}meta ORDER BY one %",
	"SELECT name, paused, paused_until, touched, operator, declared, starts, rest, rings, alerts, counts FROM " +
		"{p}queues ORDER BY queue %",
	"SELECT " + columns + ", t.retries FROM {p}tasks t ORDER BY task %",
	"SELECT id FROM {p}tasks ORDER BY queue %, id %",
	"SELECT turn FROM {p}tasks ORDER BY line %, sort %, turn %",
	"SELECT attempts, stack, result, progress, checkpoint FROM {p}sides ORDER BY task %",
	"SELECT queue, state, name, tasks, sort, turn, kept FROM {p}lines ORDER BY line %",
	"SELECT id, until FROM {p}keys ORDER BY queue %, key %",
	"SELECT opened, seq, verb, outcome FROM {p}lanes ORDER BY lane %",
	"SELECT until, info FROM {p}runners ORDER BY id %",
}

// checkTables returns a *FileError if a table, an index or a column is missing, or the first or
// the last page of one is malformed. It reads a few pages, however large the file is.
func (w *work) checkTables() error {
	found, name := make(map[string]bool), ""
	w.each("SELECT name FROM sqlite_schema WHERE type IN ('table', 'index')", nil, func() bool {
		found[name] = true
		return true
	}, &name)
	if w.err != nil {
		return w.err
	}
	for _, m := range made {
		if name := w.store.prefix + m[2]; !found[name] {
			return w.store.broken(fmt.Errorf("its %s %s is missing", strings.ToLower(m[1]), name))
		}
	}
	for _, text := range ends {
		for _, way := range [...]string{"", "DESC"} {
			w.touch(strings.ReplaceAll(text, "%", way) + " LIMIT 1")
		}
		const wrong = 1 // SQLite's code for a statement that does not fit the tables
		if w.err != nil && w.store.primary(w.err) == wrong {
			_, table, _ := strings.Cut(text, "FROM {p}")
			table, _, _ = strings.Cut(table, " ")
			return w.store.broken(fmt.Errorf("its table %s%s is not midge's: %w", w.store.prefix, table, w.err))
		}
	}
	return w.store.translate(w.err, false)
}

// touch reads the first row that a statement returns.
func (w *work) touch(text string) {
	rows, err := w.link.QueryContext(w.ctx, w.store.in(text))
	if err != nil {
		w.fail(err)
		return
	}
	defer func() { _ = rows.Close() }()
	rows.Next()
	w.fail(rows.Err())
}

// broken makes the error of a damaged file, and keeps the first one for Describe.
func (s *Storage) broken(err error) *FileError {
	e := &FileError{
		Path: s.path, Problem: Broken, Err: err,
		Remedy: "put a backup in its place, or save what can be read with sqlite3's .recover; a copy of a file " +
			"in use is made with VACUUM INTO",
	}
	s.damage.CompareAndSwap(nil, e)
	return e
}

// damages returns warnings of damage: for Describe it is a warning, not an error.
func (w *work) damages() (warnings []string) {
	s := w.store
	if w.err != nil {
		return nil
	}
	if w.err = w.checkTables(); w.err == nil {
		warnings = append(w.setAside(), w.strays()...)
	}
	var problem *FileError
	if errors.As(s.translate(w.err, false), &problem) && problem.Problem == Broken {
		w.err = nil
	}
	if found := s.damage.Load(); found != nil {
		warnings = append(warnings, found.Error())
	}
	return warnings
}

// damagedNamed is how many damaged tasks a warning names, and damagedMost how many all warnings
// count.
const (
	damagedNamed = 3
	damagedMost  = 100
)

// setAside warns of tasks that were set apart, by queue.
func (w *work) setAside() []string {
	return w.named("queue %s has %d damaged %s, set apart: %s", "SELECT q.name, t.id FROM {p}queues q "+
		"CROSS JOIN {p}tasks t ON t.line = q.queue * 16 + "+strconv.Itoa(int(engine.Damaged))+
		" ORDER BY q.queue LIMIT ?")
}

// strays warns of tasks in lines that belong to no queue, no kind and no partition, where nothing finds them.
func (w *work) strays() []string {
	return w.named("in a line that does not exist (%s) %d damaged %s are left alone: %s",
		"WITH RECURSIVE l(n) AS (SELECT min(line) FROM {p}tasks UNION ALL "+
			"SELECT (SELECT min(line) FROM {p}tasks WHERE line > n) FROM l WHERE n IS NOT NULL LIMIT 10000) "+
			"SELECT 'queue number ' || (n >> 4) || ', state ' || (n & 15), t.id FROM l CROSS JOIN {p}tasks t "+
			"ON t.line = n WHERE CASE "+
			"WHEN n & 15 IN ("+numbers(engine.State.HasSubs)+") THEN n >> 4 NOT IN (SELECT line FROM {p}lines) "+
			"WHEN n & 15 IN ("+numbers(hasLine)+") THEN n >> 4 NOT IN (SELECT queue FROM {p}queues) "+
			"ELSE 1 END ORDER BY n LIMIT ?")
}

// named makes a warning for each place that a statement returns, with the ids of the tasks there.
func (w *work) named(warning, text string) (warnings []string) {
	var at, id, last string
	var ids []string
	tell := func() {
		if n := len(ids); n > 0 {
			noun := "tasks"
			if n == 1 {
				noun = "task"
			}
			names := strings.Join(ids[:min(n, damagedNamed)], ", ")
			if n > damagedNamed {
				names += ", ..."
			}
			warnings = append(warnings, fmt.Sprintf(warning, last, n, noun, names))
		}
		last, ids = at, nil
	}
	w.each(text, []any{damagedMost}, func() bool {
		if at != last {
			tell()
		}
		ids = append(ids, id)
		return true
	}, &at, &id)
	tell()
	return warnings
}
