package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// SchemaError reports that a schema does not serve this client, and names the remedy.
type SchemaError struct {
	Schema string
	// Want is the version of this client. Found are the versions that the schema serves, in order.
	// Found is empty if there is no schema, and if it was made before the first release.
	Want  int
	Found []int
	// Oldest is the oldest version that the schema can serve, 0 if Found is empty.
	Oldest int
	// Unnumbered is true if the schema was made before the first release.
	Unnumbered bool
}

// Error names the versions found, the version wanted, and the remedy.
func (e *SchemaError) Error() string {
	switch {
	case e.Unnumbered:
		return fmt.Sprintf("postgres: schema %s was made before the first release, this client has version %d: "+
			"drop the schema or name another, then call postgres.Migrate", e.Schema, e.Want)
	case len(e.Found) == 0:
		return fmt.Sprintf("postgres: schema %s has no tables, this client needs those of version %d: "+
			"call postgres.Migrate", e.Schema, e.Want)
	case e.Want < e.Oldest:
		return fmt.Sprintf("postgres: schema %s serves versions %v and none before %d, "+
			"this client has version %d: update the client", e.Schema, e.Found, e.Oldest, e.Want)
	}
	return fmt.Sprintf("postgres: schema %s serves versions %v, this client has version %d: "+
		"call postgres.Migrate", e.Schema, e.Found, e.Want)
}

// Is makes errors.Is(err, storage.ErrRefused) hold.
func (e *SchemaError) Is(target error) bool { return target == storage.ErrRefused }

// Migrate makes a schema serve this version: it makes or changes the tables, adds the functions of
// this version, and drops the functions of versions that the tables no longer serve, all in one
// transaction. Clients of the other versions go on meanwhile and afterwards. If there is nothing
// to do, Migrate takes no lock. Any number of processes may call it at once as they start: one works,
// and the others wait for it. Migrate returns a *SchemaError for a schema that can no longer serve
// this version.
func Migrate(ctx context.Context, cfg Config) error {
	return migrating(ctx, cfg, "migrate", migrate)
}

// migrating carries out an action in a schema on a connection of its own.
func migrating(
	ctx context.Context, cfg Config, action string, do func(_ context.Context, _ *pgx.Conn, schema string) error,
) error {
	if err := cfg.check(); err != nil {
		return wrap(action, err)
	}
	settings, err := cfg.settings()
	if err != nil {
		return wrap(action, err)
	}
	// Nothing is prepared: behind a proxy that pools transactions a prepared statement would not be
	// found again.
	settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := dial(ctx, settings)
	if err != nil {
		return wrap(action, translate(err))
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return wrap(action, do(ctx, conn, cfg.Schema))
}

// MigrationSQL returns the statements that Migrate would carry out now, in one transaction, for people
// who review them or apply them with a tool of their own; "" if there is nothing to do. It changes
// nothing. Its errors are those of Migrate.
func MigrationSQL(ctx context.Context, cfg Config) (string, error) {
	var text string
	write := func(ctx context.Context, conn *pgx.Conn, schema string) (err error) {
		text, err = migrationText(ctx, conn, schema)
		return err
	}
	err := migrating(ctx, cfg, "write the migration", write)
	return text, err
}

// migrationText writes down the statements of migrateIn.
func migrationText(ctx context.Context, conn *pgx.Conn, schema string) (string, error) {
	found, err := installedIn(ctx, conn, schema)
	switch {
	case err != nil:
		return "", translate(err)
	case found.current():
		return "", nil
	case found.unnumbered || version < found.oldest:
		return "", found.refusal(schema)
	}
	var text strings.Builder
	m := &migration{reads: conn, schema: schema, quoted: pgx.Identifier{schema}.Sanitize()}
	m.exec = func(_ context.Context, sql string) error {
		text.WriteString(strings.TrimRight(strings.TrimSpace(sql), ";") + ";\n")
		return nil
	}
	text.WriteString("BEGIN;\nSELECT pg_advisory_xact_lock(hashtext('midge.migrate." + schema + "'));\n" +
		lockTime + ";\n")
	if err := install(ctx, m, found); err != nil {
		return "", translate(err)
	}
	return text.String() + "COMMIT;\n", nil
}

func migrate(ctx context.Context, conn *pgx.Conn, schema string) error {
	found, err := installedIn(ctx, conn, schema)
	if err != nil {
		return translate(err)
	}
	if found.current() {
		return nil
	}
	for try := 1; ; try++ {
		err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return migrateIn(ctx, tx, schema)
		})
		if code(err) != "55P03" || try == again || !sleep.For(ctx, lockPause) {
			break
		}
	}
	if _, ok := errors.AsType[*SchemaError](err); ok {
		return err
	}
	return translate(err)
}

// A change of a table waits for every transaction that uses the table, and later transactions wait
// for the change. After lockTime the change lets them go first, and tries again after lockPause.
const (
	lockTime  = "SET LOCAL lock_timeout = '1s'"
	lockPause = time.Second
)

func migrateIn(ctx context.Context, tx pgx.Tx, schema string) error {
	// The lock ends with the transaction, even if a proxy pools connections.
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", "midge.migrate."+schema)
	if err != nil {
		return err
	}
	found, err := installedIn(ctx, tx, schema)
	if err != nil || found.current() {
		return err
	}
	if found.unnumbered || version < found.oldest {
		return found.refusal(schema)
	}
	if _, err = tx.Exec(ctx, lockTime); err != nil {
		return err
	}
	m := &migration{reads: tx, schema: schema, quoted: pgx.Identifier{schema}.Sanitize()}
	m.exec = func(ctx context.Context, sql string) error { // several at once need the simple protocol
		_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
		return err
	}
	return install(ctx, m, found)
}

// installed is the contents of a schema.
type installed struct {
	tables     int   // the number of the last migration, 0 if there are no tables
	versions   []int // of the functions, in order
	oldest     int   // the oldest version that the tables serve
	unnumbered bool  // its tables were made before the first release
}

// installedIn reads the contents of a schema.
func installedIn(ctx context.Context, conn rower, schema string) (found installed, err error) {
	var tables, functions bool
	// A query and not to_regclass, whose answer may be from before the lock.
	err = conn.QueryRow(ctx, "SELECT coalesce(bool_or(c.relname = 'migrations'), false), "+
		"count(*) FILTER (WHERE c.relname IN ('functions', 'lines')) = 2 FROM pg_catalog.pg_class c "+
		"JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1", schema,
	).Scan(&tables, &functions)
	if err != nil || !functions {
		return installed{unnumbered: tables}, err
	}
	in := pgx.Identifier{schema}.Sanitize()
	err = conn.QueryRow(ctx, "SELECT (SELECT coalesce(max(version), 0) FROM "+in+".migrations), "+
		"coalesce(array_agg(version ORDER BY version), '{}'), coalesce(max(oldest), 0) FROM "+in+".functions",
	).Scan(&found.tables, &found.versions, &found.oldest)
	return found, err
}

// rower asks for one row.
type rower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// current reports whether a client of this version works here. With its functions, the tables that
// they need are there too: a migration drops functions that do not work correctly on its tables.
func (i *installed) current() bool { return slices.Contains(i.versions, version) }

// refusal returns the error of a client that the schema does not serve.
func (i *installed) refusal(schema string) *SchemaError {
	return &SchemaError{
		Schema: schema, Want: version, Found: i.versions, Oldest: i.oldest, Unnumbered: i.unnumbered,
	}
}
