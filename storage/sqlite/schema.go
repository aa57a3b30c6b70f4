package sqlite

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// version is the version of the tables that this version of midge makes, and works with.
const version = 1

// applicationID marks a file of the storage's own: it is "midg" in the file's header.
const applicationID = 0x6d696467

// tables is the first migration. {p} stands for the prefix. Times are microseconds since the Unix epoch.
//
//	meta    one row: the version of the tables and the least version that a process needs to use them;
//	        the mark and the clock of the last step, and when a wait after a jump of the clock began
//	queues  their settings, sizes and totals (counts, record.go: JSON), and two numbers that grow when they
//	        ring (rings, alerts), from the mark of the step that made the queue on.
//	        operator and declared: the limits of an operator and of a program, '' for none, as the engine's
//	        Limit.Texts writes them, and starts: the starts that count for the rate. rest: until when the
//	        tasks without a partition rest
//	tasks   line: the line in which a task stands: 16 times the number of its queue, or for a declined
//	        task of the line of its kind, and in a partition of that of the partition, plus its state (the
//	        registry of the engine).
//	        sort and turn: its place there. lease: token and runner while it is pending.
//	        ended: when it ended or, while it is pending, when it was claimed if its version is not that
//	        moment. past and record: storage/internal/record. retries is also in past; the column is for
//	        people
//	sides   parts that few tasks have: their history, results, progress and checkpoints
//	lines   the lines of declined tasks, one for each kind of a queue, and the partitions of queues (lines.go):
//	        name is a kind or a key. sort and turn are the place of a partition in the ring, and for a kind
//	        the engine's moments Look and Named. kept: the other data of a partition, as the engine's
//	        Line.Pack packs it
//	keys    unique keys that are held: for a task's life (until = 0), or until a moment
//	lanes   the last call of each lane and its outcome (lane.go)
//	runners their last heartbeats
const tables = `
CREATE TABLE {p}meta (
	one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, least INTEGER NOT NULL,
	mark INTEGER NOT NULL, clock INTEGER NOT NULL, jumped INTEGER NOT NULL
);
CREATE TABLE {p}queues (
	queue INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
	paused INTEGER NOT NULL DEFAULT 0, paused_until INTEGER NOT NULL DEFAULT 0, touched INTEGER NOT NULL,
	operator TEXT NOT NULL DEFAULT '', declared TEXT NOT NULL DEFAULT '', starts BLOB NOT NULL DEFAULT x'',
	rest INTEGER NOT NULL DEFAULT 0,
	rings INTEGER NOT NULL DEFAULT 0, alerts INTEGER NOT NULL DEFAULT 0, counts TEXT NOT NULL DEFAULT ''
);
CREATE TABLE {p}tasks (
	task INTEGER PRIMARY KEY, queue INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
	line INTEGER NOT NULL, sort INTEGER NOT NULL, turn INTEGER NOT NULL, version INTEGER NOT NULL,
	flags INTEGER NOT NULL, priority INTEGER NOT NULL, retries INTEGER NOT NULL, created INTEGER NOT NULL,
	ended INTEGER NOT NULL, lease BLOB NOT NULL, past BLOB NOT NULL, record BLOB NOT NULL
);
CREATE UNIQUE INDEX {p}tasks_id ON {p}tasks (queue, id);
CREATE INDEX {p}tasks_line ON {p}tasks (line, sort, turn);
CREATE TABLE {p}sides (
	task INTEGER PRIMARY KEY, attempts TEXT, stack TEXT, result BLOB, progress BLOB, checkpoint BLOB
);
CREATE TABLE {p}lines (
	line INTEGER PRIMARY KEY AUTOINCREMENT, queue INTEGER NOT NULL, state INTEGER NOT NULL, name TEXT NOT NULL,
	tasks INTEGER NOT NULL, sort INTEGER NOT NULL, turn INTEGER NOT NULL, kept BLOB NOT NULL DEFAULT x'',
	UNIQUE (queue, state, name)
);
CREATE INDEX {p}lines_place ON {p}lines (queue, state, sort, turn);
CREATE TABLE {p}keys (
	queue INTEGER NOT NULL, key TEXT NOT NULL, id TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX {p}keys_until ON {p}keys (until) WHERE until > 0;
CREATE TABLE {p}lanes (
	lane BLOB PRIMARY KEY, opened INTEGER NOT NULL, seq INTEGER NOT NULL, verb TEXT NOT NULL,
	outcome BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX {p}lanes_opened ON {p}lanes (opened);
CREATE TABLE {p}runners (
	id TEXT PRIMARY KEY, until INTEGER NOT NULL, info TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO {p}meta VALUES (1, 1, 1, 0, 0, 0);
`

// jobs is a view for people with a tool for SQLite, and only for them: no code depends on it.
var jobs = strings.NewReplacer(
	"{states}", listed(" ", "WHEN %[1]d THEN '%[2]s'", isNamed), "{due}", numbers(isDue),
	"{pending}", numbers(engine.State.IsPending), "{cursor}", strconv.Itoa(int(engine.Cursor)),
).Replace(`
DROP VIEW IF EXISTS {p}jobs;
CREATE VIEW {p}jobs (
	queue, id, kind, state, priority, run_at, retries, created_at, lease_until, last_error
) AS
SELECT q.name, t.id, t.kind,
	CASE t.line & 15 {states} ELSE 'damaged' END, t.priority,
	CASE WHEN t.line & 15 IN ({due}) THEN strftime('%Y-%m-%d %H:%M:%f', t.sort / 1e6, 'unixepoch') END,
	t.retries, strftime('%Y-%m-%d %H:%M:%f', t.created / 1e6, 'unixepoch'),
	CASE WHEN t.line & 15 IN ({pending}) THEN strftime('%Y-%m-%d %H:%M:%f', t.sort / 1e6, 'unixepoch') END,
	(SELECT json_extract(s.attempts, '$[#-1].Error') FROM {p}sides s WHERE s.task = t.task)
FROM {p}tasks t JOIN {p}queues q ON q.queue = t.queue
WHERE t.line & 15 <> {cursor}; -- cursors are no tasks
`)

// listed lists states in a format that takes their numbers and names.
func listed(separator, format string, is func(engine.State) bool) string {
	states := engine.StatesWhere(is)
	all := make([]string, len(states))
	for i, s := range states {
		all[i] = fmt.Sprintf(format, int(s), s.Public())
	}
	return strings.Join(all, separator)
}

// numbers lists the numbers of states.
func numbers(is func(engine.State) bool) string { return listed(", ", "%[1]d", is) }

func isNamed(s engine.State) bool { return s.Public() != "" }

func isDue(s engine.State) bool { return s.IsTimed() && s != engine.Cursor }

func hasLine(s engine.State) bool { return !s.HasSubs() }

// migrations lead from one version of the tables to the next.
var migrations = [version]string{tables + jobs}

// SchemaError means that the tables do not serve this version of midge.
type SchemaError struct {
	Found int // the version of the tables, 0 if there are none
	Least int // the least version that can use them
}

// Error names the remedy.
func (e *SchemaError) Error() string {
	if e.Found == 0 {
		return "no tables of midge are in this database: call sqlite.Migrate"
	}
	if e.Found < version {
		return fmt.Sprintf("the tables are of version %d, and this midge needs %d: call sqlite.Migrate",
			e.Found, version)
	}
	return fmt.Sprintf("the tables are of version %d, for processes of version %d and later, and this midge "+
		"is of version %d: update it", e.Found, e.Least, version)
}

// Is makes errors.Is(err, storage.ErrRefused) hold.
func (e *SchemaError) Is(target error) bool { return target == storage.ErrRefused }

// Migrate makes the tables of a storage in the application's database (Config.DB), or brings them up to
// this version. It sets journal_mode=WAL, which stays with the file. Processes of the version before go
// on beside processes of a new version.
func Migrate(ctx context.Context, cfg Config) error {
	s, err := open(ctx, cfg, true)
	if err != nil {
		return fmt.Errorf("sqlite: migrate: %w", err)
	}
	return s.Close()
}

// installed reads the version of the tables, and the least version that can use them; both are 0
// if there are none. A table meta that midge has not written is a *FileError.
func (w *work) installed() (found SchemaError) {
	const columns = "'version', 'least', 'mark', 'clock', 'jumped'"
	name := w.store.prefix + "meta"
	var tables, known, first int
	w.one("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?", []any{name}, &tables)
	if w.err != nil || tables == 0 {
		return found
	}
	w.one("SELECT count(*), coalesce(sum(name IN ('version', 'least')), 0) FROM pragma_table_info(?) "+
		"WHERE name IN ("+columns+")", []any{name}, &known, &first)
	ok := first == 2 && w.one("SELECT version, least FROM {p}meta WHERE typeof(version) = 'integer' "+
		"AND typeof(least) = 'integer' AND version > 0 AND least > 0", nil, &found.Found, &found.Least)
	if w.err == nil && (!ok || known < 5 && found.Least <= version) { // a later version may have other columns
		w.err = &FileError{
			Path: w.store.path, Problem: Broken,
			Remedy: "its table " + name + " does not say the version of midge's tables: put a backup in its " +
				"place, or set Config.Prefix where the table belongs to another program",
		}
	}
	return found
}

// examine checks the tables; with migrate it makes or migrates them.
func (s *Storage) examine(w *work, migrate bool) error {
	var file, others int
	if s.own {
		w.one("PRAGMA application_id", nil, &file)
		w.one("SELECT count(*) FROM sqlite_schema", nil, &others)
	}
	if w.err != nil {
		return w.err
	}
	if s.own && file != applicationID && (file != 0 || others > 0) {
		return &FileError{
			Path: s.path, Problem: Foreign,
			Remedy: "name another path, or open the database as Config.DB to have midge's tables in it",
		}
	}
	found := w.installed()
	if w.err != nil {
		return w.err
	}
	switch {
	case found.Least > version, found.Found < version && !migrate:
		return &found
	case found.Found >= version: // a write shows that the file can be written, which BEGIN does not show
		w.exec("UPDATE {p}meta SET version = version")
		if w.err != nil {
			return w.err
		}
		return w.checkTables()
	}
	for v := found.Found; v < version; v++ {
		w.exec(migrations[v])
	}
	w.exec("UPDATE {p}meta SET version = ?", version)
	if s.own {
		w.exec(fmt.Sprintf("PRAGMA application_id = %d", applicationID))
	}
	return w.err
}

// in puts the prefix into a statement.
func (s *Storage) in(text string) string { return strings.ReplaceAll(text, "{p}", s.prefix) }
