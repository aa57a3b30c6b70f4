package postgres

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/states"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// scripts make the contents of a schema. The migrations of tables are applied in order; a released
// one is never changed. They only add, so that clients of the version before go on: a column has a
// default, and nothing is renamed. Each function is a file; a released function is changed only
// together with the version (version.go). The view is for people.
//
//go:embed schema
var scripts embed.FS

// texts reads the scripts that match a pattern, in order of their names.
func texts(pattern string) (names, texts []string, err error) {
	files, err := fs.Glob(scripts, "schema/"+pattern)
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		text, err := scripts.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		names = append(names, strings.TrimSuffix(path.Base(file), ".sql"))
		texts = append(texts, constants.Replace(string(text)))
	}
	return names, texts, nil
}

// constants are the constants that scripts share with the client; times are in microseconds.
var constants = strings.NewReplacer(append(stateConstants(),
	"{newer}", strconv.Itoa(int(record.Newer)),
	"{jumpafter}", inMicros(storage.JumpAfter), "{setback}", strconv.FormatInt(engine.SetBack, 10),
	"{jumpwait}", inMicros(storage.JumpWait),
	"{lanelife}", inMicros(storage.LaneLife),
	"{tickhide}", inMicros(storage.TickHide), "{maxclaimbytes}", strconv.Itoa(storage.MaxClaimBytes),
	"{markfor}", inMicros(markFor), "{joined}", senderJoined,
	"{maxpriority}", strconv.Itoa(storage.MaxPriority),
	"{halfband}", strconv.FormatInt((engine.Band(0)-engine.Band(1))/2, 10),
	"{maxnone}", strconv.Itoa(storage.MaxNone),
	"{maxkinds}", strconv.Itoa(storage.MaxKinds),
	"{maxlimit}", strconv.Itoa(storage.MaxLimitConcurrency),
	"{maxturns}", strconv.Itoa(storage.MaxTurns), "{maxrest}", strconv.Itoa(storage.MaxRest),
	"{mostaged}", strconv.Itoa(engine.MostAged),
	"{maxstatskinds}", strconv.Itoa(storage.MaxStatsKinds),
	"{counters}", strconv.Itoa(engine.Counters-1),
	"{total.enqueued}", strconv.Itoa(engine.CountEnqueued),
	"{total.completed}", strconv.Itoa(engine.CountCompleted),
	"{total.evicted}", strconv.Itoa(engine.CountEvicted),
	"{total.deleted}", strconv.Itoa(engine.CountDeleted),
)...)

// stateConstants returns the constants of states: {state.dead} is the number of a state, {states.ended} are
// the numbers of several, {lines.ended} are the lines of these states in the queue q, and {states.names} are
// the names of all numbers from 1 on.
func stateConstants() []string {
	pairs := []string{"{state.none}", strconv.Itoa(int(states.None))}
	names := slices.Repeat([]string{"NULL"}, int(states.Count)-1)
	lists := make(map[string][]string)
	for _, s := range states.All() {
		number := strconv.Itoa(int(s.Number))
		pairs = append(pairs, "{state."+s.SQL+"}", number)
		if s.Number != states.Cursor { // cursors are no tasks
			names[s.Number-1] = "'" + cmp.Or(s.Name, s.SQL) + "'"
		}
		for list, in := range map[string]bool{
			"waiting": s.Name == "waiting" && !engine.State(s.Number).HasSubs(),
			"pending": s.Name == "pending", "due": s.Timed && s.Live, "ended": s.Ended,
		} {
			if in {
				lists[list] = append(lists[list], number)
			}
		}
	}
	for list, numbers := range lists {
		pairs = append(pairs, "{states."+list+"}", strings.Join(numbers, ", "),
			"{lines."+list+"}", "{schema}.line(q, "+strings.Join(numbers, "), {schema}.line(q, ")+")")
	}
	return append(pairs, "{states.names}", strings.Join(names, ", "))
}

func inMicros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// migration is a migration under way.
type migration struct {
	reads  rower
	exec   func(ctx context.Context, sql string) error // carries out statements, one after the other
	schema string
	quoted string
}

// install makes a schema serve this version.
func install(ctx context.Context, m *migration, found installed) error {
	if err := m.tables(ctx, found.tables); err != nil {
		return err
	}
	if err := m.functions(ctx); err != nil {
		return err
	}
	for _, other := range found.versions {
		if other > version {
			return nil // the newer version has made the view, and has dropped what it does not serve
		}
	}
	if err := m.view(ctx); err != nil {
		return err
	}
	if len(found.versions) == 0 {
		return nil
	}
	return m.drop(ctx)
}

// tables applies the migrations after the number last.
func (m *migration) tables(ctx context.Context, last int) error {
	_, all, err := texts("tables/*.sql")
	if err != nil {
		return err
	}
	all = append(all, laterTables()...)
	if last == 0 {
		if err := m.namespace(ctx); err != nil {
			return err
		}
	}
	for i := last; i < len(all); i++ {
		number := strconv.Itoa(i + 1)
		err := m.run(ctx, all[i]+";INSERT INTO {schema}.migrations (version) VALUES ("+number+")")
		if err != nil {
			return fmt.Errorf("tables %s: %w", number, err)
		}
	}
	return nil
}

// namespace creates the schema if it does not exist. PostgreSQL refuses even CREATE SCHEMA IF NOT
// EXISTS to a role without CREATE on the database, even if the schema exists and the role may
// create tables in it.
func (m *migration) namespace(ctx context.Context) error {
	var exists bool
	err := m.reads.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)",
		m.schema).Scan(&exists)
	if err != nil || exists {
		return err
	}
	return m.run(ctx, "CREATE SCHEMA IF NOT EXISTS {schema}")
}

// functions adds the functions of this version. They call each other, so that their bodies are
// checked only when they are first called.
func (m *migration) functions(ctx context.Context) error {
	names, all, err := texts("functions/*.sql")
	if err != nil {
		return err
	}
	decoders, more, err := texts("view/*.sql")
	if err != nil {
		return err
	}
	names, all = append(names, decoders...), append(all, more...)
	all = append([]string{"SET LOCAL check_function_bodies = off;"}, all...)
	if err := m.run(ctx, strings.Join(all, "\n")); err != nil {
		return fmt.Errorf("functions: %w", err)
	}
	return m.run(ctx, fmt.Sprintf(
		"INSERT INTO {schema}.functions (version, oldest, names) VALUES (%d, %d, '{%s}')",
		version, oldest, strings.Join(names, ",")))
}

// view makes the view jobs, or makes it call the functions of this version.
func (m *migration) view(ctx context.Context) error {
	_, text, err := texts("jobs.sql")
	if err != nil {
		return err
	}
	return m.run(ctx, strings.Join(text, "\n"))
}

// drop drops the functions of versions that the tables no longer serve.
func (m *migration) drop(ctx context.Context) error {
	var dropped []string
	// A regprocedure leaves out a schema of the search_path, and another connection may run the statement.
	err := m.reads.QueryRow(ctx, "SELECT coalesce(array_agg("+
		"format('%I.%I(%s)', n.nspname, p.proname, oidvectortypes(p.proargtypes))), '{}') "+
		"FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "+
		"WHERE n.nspname = $1 AND p.proname IN (SELECT name || '_' || f.version FROM "+m.quoted+".functions f, "+
		"unnest(f.names) AS name WHERE f.version < $2)", m.schema, oldest).Scan(&dropped)
	if err != nil || len(dropped) == 0 {
		return err
	}
	if err := m.run(ctx, "DROP FUNCTION "+strings.Join(dropped, ", ")); err != nil {
		return err
	}
	return m.run(ctx, "DELETE FROM {schema}.functions WHERE version < "+strconv.Itoa(oldest))
}

// run carries out statements.
func (m *migration) run(ctx context.Context, text string) error {
	return m.exec(ctx, inSchema(text, m.quoted))
}
