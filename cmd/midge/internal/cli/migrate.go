package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

func (a *app) migrate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Create or update the tables of PostgreSQL or SQLite",
		Long: "migrate creates the tables of PostgreSQL or SQLite, or updates them for this\n" +
			"version of midge. Programs with other versions continue during the migration\n" +
			"and after it. Redis needs no migration.\n\n" +
			"Each program that opens an SQLite file updates its tables. For SQLite, --check\n" +
			"therefore only checks whether the file exists, and does not read its version.",
		Example: "  midge migrate --check || midge migrate\n  midge migrate --print-sql > midge.sql",
		Args:    noArguments,
	}
	check := cmd.Flags().Bool("check", false,
		"change nothing; exit with 1 if PostgreSQL needs a migration, or the SQLite file does not exist")
	text := cmd.Flags().Bool("print-sql", false,
		"change nothing; print the statements of the migration (PostgreSQL only)")
	cmd.MarkFlagsMutuallyExclusive("check", "print-sql")
	cmd.RunE = a.long(func(ctx context.Context, _ []string) error {
		if err := a.choose(); err != nil {
			return err
		}
		if cfg, ok := a.target.Postgres(); ok {
			return a.migratePostgres(ctx, cfg, *check, *text)
		}
		if *text {
			return badInput("--print-sql is for PostgreSQL, and the storage is %s", a.target.Address())
		}
		if path, ok := a.target.SQLite(); ok {
			return a.migrateSQLite(ctx, path, *check)
		}
		a.notef("%s needs no migration", a.target)
		return nil
	})
	return cmd
}

func (a *app) migratePostgres(ctx context.Context, cfg postgres.Config, check, text bool) error {
	sql, err := postgres.MigrationSQL(ctx, cfg)
	switch {
	case err != nil:
		return err
	case text:
		_, err = a.std.Out.Write([]byte(sql))
		return err
	case sql == "":
		a.notef("%s is up to date", a.target)
		return nil
	case check:
		return &exitError{code: Failed, text: a.target.String() + " needs a migration", next: "midge migrate"}
	}
	a.write("midge migrate --check")
	if err := postgres.Migrate(ctx, cfg); err != nil {
		return err
	}
	a.notef("migrated")
	return nil
}

// migrateSQLite opens the file, because opening it migrates it.
func (a *app) migrateSQLite(ctx context.Context, path string, check bool) error {
	_, err := os.Stat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if check {
		if missing {
			return &exitError{code: Failed, text: path + " is not there", next: "midge migrate"}
		}
		a.notef("%s is brought up to date by whoever opens it", a.target)
		return nil
	}
	a.write("midge migrate --check")
	store, err := modernc.Open(ctx, path)
	if err != nil {
		return err
	}
	a.notef("migrated")
	return store.Close()
}
