package server

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/bench/internal/system"
	"github.com/midgehq/midge/internal/testserver"
)

// database is the name of the database that the systems share.
const database = "bench"

// Postgres is a private PostgreSQL in its safest configuration: fsync and
// synchronous_commit are on.
type Postgres struct {
	server *testserver.PostgresServer
	place  string // URL of the database
}

func startPostgres() (*Postgres, error) {
	server, err := testserver.StartPostgres(testserver.PostgresOptions{})
	if err != nil {
		return nil, err
	}
	place, err := url.Parse(server.URL())
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	place.Path = "/" + database
	return &Postgres{server: server, place: place.String()}, nil
}

// Place returns the URL of the database.
func (p *Postgres) Place() system.Place {
	return system.Place{Storage: system.Postgres, Addr: p.place}
}

// Pid returns the id of the process that starts all other processes of the server.
func (p *Postgres) Pid() int { return p.server.Pid() }

// Reset creates a fresh database, and writes out the changes of the last one.
func (p *Postgres) Reset(ctx context.Context) error {
	for _, sql := range []string{
		"DROP DATABASE IF EXISTS " + database + " WITH (FORCE)", "CREATE DATABASE " + database, "CHECKPOINT",
	} {
		if err := p.server.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Memory returns the size of the tables and their indexes.
func (p *Postgres) Memory(ctx context.Context) (used int64, err error) {
	return used, ask(ctx, p.place, `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'S') AND n.nspname NOT IN ('pg_catalog', 'information_schema')`, &used)
}

// settings are the settings that the heading of the results states.
var settings = []string{
	"fsync", "synchronous_commit", "full_page_writes", "wal_level", "shared_buffers", "max_wal_size",
	"max_connections", "autovacuum",
}

// Describe returns the version and the settings that matter.
func (p *Postgres) Describe(ctx context.Context) (string, error) {
	const version = "server_version"
	values := make([]string, 1+len(settings))
	for i, name := range append([]string{version}, settings...) {
		if err := ask(ctx, p.server.URL(), "SELECT current_setting('"+name+"')", &values[i]); err != nil {
			return "", err
		}
		if name != version {
			values[i] = name + " " + values[i]
		}
	}
	return "PostgreSQL " + strings.Join(values, ", "), nil
}

// Close stops the server and deletes its data.
func (p *Postgres) Close() error { return p.server.Close() }

// ask reads one value with a query, over a connection of its own.
func ask(ctx context.Context, at, sql string, value any) error {
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return err
	}
	err = conn.QueryRow(ctx, sql).Scan(value)
	if err != nil {
		err = fmt.Errorf("ask PostgreSQL: %w", err)
	}
	return errors.Join(err, conn.Close(ctx))
}
