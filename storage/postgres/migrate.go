package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/storage"
)

// migrations are the files schema/001_tables.sql and on, applied in order. One that was
// released is never changed: what is new is a new file.
//
//go:embed schema/*.sql
var migrations embed.FS

// SchemaError says that the tables in the database are not those of this version.
type SchemaError struct {
	Schema string
	// Have is the version of the tables, 0 where there are none; Want is this client's.
	Have, Want int
}

// Error says what to do.
func (e *SchemaError) Error() string {
	if e.Have > e.Want {
		return fmt.Sprintf("postgres: schema %s has version %d, this client knows %d: update the client",
			e.Schema, e.Have, e.Want)
	}
	return fmt.Sprintf("postgres: schema %s has version %d, this client needs %d: call postgres.Migrate",
		e.Schema, e.Have, e.Want)
}

// Is makes errors.Is(err, storage.ErrRefused) hold.
func (e *SchemaError) Is(target error) bool { return target == storage.ErrRefused }

// Migrate brings the tables in the database to this version, all in one transaction.
// Any number of starters may call it at once: one works, the others wait for it. Where
// there is nothing to do it takes no lock. A newer schema is a *SchemaError.
func Migrate(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return fmt.Errorf("postgres: migrate: %w", err)
	}
	settings, err := cfg.settings()
	if err != nil {
		return fmt.Errorf("postgres: migrate: %w", err)
	}
	// Nothing is prepared: what pools transactions would not find it again.
	settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := dial(ctx, settings)
	if err != nil {
		return wrap("migrate", translate(err))
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return wrap("migrate", migrate(ctx, conn, cfg.Schema))
}

func migrate(ctx context.Context, conn *pgx.Conn, schema string) error {
	files, err := steps()
	if err != nil {
		return err
	}
	have, err := version(ctx, conn, schema)
	if err != nil {
		return translate(err)
	}
	if have == len(files) {
		return nil
	}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		// The lock ends with the transaction, whatever pools connections in between.
		_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", "midge.migrate."+schema)
		if err != nil {
			return err
		}
		if have, err = version(ctx, tx, schema); err != nil {
			return err
		}
		if have > len(files) {
			return &SchemaError{Schema: schema, Have: have, Want: len(files)}
		}
		return advance(ctx, tx, schema, files[have:], have)
	})
	var known *SchemaError
	if errors.As(err, &known) {
		return err
	}
	return translate(err)
}

// advance applies the files that come after version have.
func advance(ctx context.Context, tx pgx.Tx, schema string, files []string, have int) error {
	quoted := pgx.Identifier{schema}.Sanitize()
	for i, text := range files {
		if have+i == 0 {
			text = "CREATE SCHEMA IF NOT EXISTS {schema};" +
				"CREATE TABLE {schema}.migrations (" +
				"version int4 PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now());" + text
		}
		text += ";INSERT INTO {schema}.migrations (version) VALUES (" + strconv.Itoa(have+i+1) + ");"
		// Several statements at once go by the simple protocol alone.
		_, err := tx.Conn().PgConn().Exec(ctx, strings.ReplaceAll(text, "{schema}", quoted)).ReadAll()
		if err != nil {
			return fmt.Errorf("version %d: %w", have+i+1, err)
		}
	}
	return nil
}

// steps gives the text of each migration, in order.
func steps() ([]string, error) {
	names, err := fs.Glob(migrations, "schema/*.sql")
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(names))
	for i, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts[i] = constants.Replace(string(text))
	}
	return texts, nil
}

// constants are the contract's, in microseconds.
var constants = strings.NewReplacer(
	"{jumpafter}", inMicros(storage.JumpAfter),
	"{jumpwait}", inMicros(storage.JumpWait),
	"{lanelife}", inMicros(storage.LaneLife),
)

func inMicros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// rower asks for one row.
type rower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// version reads the version of the tables, 0 where there are none.
func version(ctx context.Context, conn rower, schema string) (have int, err error) {
	var there bool
	// A query and not to_regclass, which may know what was there before the lock.
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c "+
		"JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "+
		"WHERE n.nspname = $1 AND c.relname = 'migrations')", schema).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	err = conn.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM "+
		pgx.Identifier{schema}.Sanitize()+".migrations").Scan(&have)
	return have, err
}
