package postgres

import (
	"context"
	"fmt"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/storage"
)

// Config says which PostgreSQL to use and how. It needs a URL or a Pool, and nothing
// else.
type Config struct {
	// URL of the database, or a connection string of libpq. A password in it is never
	// printed. With several hosts the one that takes writes is used. Without
	// sslmode=verify-full a server elsewhere may be an impostor: Describe warns.
	//
	//	postgres://user:password@host:5432/database?sslmode=verify-full
	//	postgres://user:password@one,two/database
	//	host=/run/postgresql dbname=database user=user
	URL string
	// Pool is the application's own, used instead of a URL for what it says of the
	// server: address, credentials, TLS, hooks. The storage dials connections of its own
	// with that, so that jobs which hold every connection of the pool starve neither
	// claims nor heartbeats, and Close does not close it.
	Pool *pgxpool.Pool
	// Schema holds the tables; default "midge". Storages in other schemas know nothing of
	// each other. 1 to 40 lower-case letters, digits and '_', not beginning with a digit
	// or "pg_".
	Schema string
	// Connections bounds those for claims, inserts, reads and what carries much; default 4. There
	// are up to two more for leases and settles alone, and the listener's. They are made when they
	// are needed, those of leases, settles and the listener by a runner alone. A client that is idle
	// keeps two, and none after a minute or two. Servers show them under the application_name of the URL,
	// or as "midge".
	Connections int
	// ListenURL is where the listener connects, default where all else does: to the same
	// database. It needs a session of its own: behind a proxy that pools transactions, name
	// the server itself. One that cannot be reached stops nothing, see NoListener, but
	// Describe warns of it.
	ListenURL string
	// NoListener does without the listener: new work is found by the callers' slow scan.
	NoListener bool
	// Limits bounds payloads and what is kept of dead tasks; see storage.Limits for
	// the defaults.
	Limits storage.Limits
}

const (
	defaultSchema      = "midge"
	defaultConnections = 4
	reserveConnections = 2
	dialTimeout        = 5 * time.Second
	idleTime           = time.Minute
)

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// check fills what is empty, or gives an *InvalidError.
func (c *Config) check() error {
	if c.Schema == "" {
		c.Schema = defaultSchema
	}
	if c.Connections == 0 {
		c.Connections = defaultConnections
	}
	if !schemaName.MatchString(c.Schema) || len(c.Schema) > 2 && c.Schema[:3] == "pg_" {
		return storage.Invalid("Config.Schema", c.Schema,
			"1 to 40 lower-case letters, digits and '_', not beginning with a digit or pg_")
	}
	if c.Connections < 1 || c.Connections > 1000 {
		return storage.Invalid("Config.Connections", c.Connections, "1 to 1000")
	}
	if (c.URL == "") == (c.Pool == nil) {
		return storage.Invalid("postgres.Config", "with URL and Pool both set or both empty", "one of them")
	}
	if c.ListenURL != "" && c.NoListener {
		return storage.Invalid("postgres.Config", "with ListenURL and NoListener both set", "one of them")
	}
	return c.Limits.Check()
}

// settings gives those of a pool of the storage's own.
func (c *Config) settings() (*pgxpool.Config, error) {
	if c.Pool != nil {
		return own(c.Pool.Config()), nil
	}
	cfg, err := pgxpool.ParseConfig(c.URL)
	if err != nil { // its text may show the password
		return nil, storage.Invalid("Config.URL", "***", "a URL such as postgres://localhost/database, "+
			"special characters of a password percent-encoded")
	}
	return own(cfg), nil
}

// own makes a pool's settings those of the storage.
func own(cfg *pgxpool.Config) *pgxpool.Config {
	cfg.ConnConfig = introduced(cfg.ConnConfig)
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	cfg.MaxConnIdleTime = idleTime
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // see acquire
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = dialTimeout
	}
	if cfg.ConnConfig.ValidateConnect == nil { // one of several hosts, and after a failover
		cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return cfg
}

// introduced has the server show connections under midge's name, unless the application chose another.
func introduced(cfg *pgx.ConnConfig) *pgx.ConnConfig {
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "midge"
	}
	return cfg
}

// connect makes the pools; they do not dial yet.
func (c *Config) connect(
	ctx context.Context, unnamed *atomic.Bool,
) (pool, reserve *pgxpool.Pool, err error) {
	cfg, err := c.settings()
	if err != nil {
		return nil, nil, err
	}
	before := cfg.BeforeConnect
	cfg.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		if unnamed.Load() {
			conn.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		if before == nil {
			return nil
		}
		return before(ctx, conn)
	}
	cfg.MaxConns = int32(c.Connections)
	if pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, nil, fmt.Errorf("make pool: %w", err)
	}
	cfg = cfg.Copy()
	cfg.MaxConns = reserveConnections
	if reserve, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		pool.Close()
		return nil, nil, fmt.Errorf("make pool: %w", err)
	}
	return pool, reserve, nil
}

// dial makes one connection that is not of a pool, with the pool's settings and hook.
func dial(ctx context.Context, cfg *pgxpool.Config) (*pgx.Conn, error) {
	conn := cfg.ConnConfig.Copy()
	if cfg.BeforeConnect != nil { // it may fetch a password
		if err := cfg.BeforeConnect(ctx, conn); err != nil {
			return nil, err
		}
	}
	made, err := pgx.ConnectConfig(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsent, err)
	}
	return made, nil
}

// listen gives what makes the listener's connection, or nil for none.
func (c *Config) listen(pool *pgxpool.Pool) (func(context.Context) (*pgx.Conn, error), error) {
	switch {
	case c.NoListener:
		return nil, nil //nolint:nilnil // no listener is wanted
	case c.ListenURL == "":
		cfg := pool.Config()
		return func(ctx context.Context) (*pgx.Conn, error) { return dial(ctx, cfg) }, nil
	}
	cfg, err := pgx.ParseConfig(c.ListenURL)
	if err != nil {
		return nil, storage.Invalid("Config.ListenURL", "***", "a URL such as postgres://localhost/database")
	}
	cfg = introduced(cfg)
	return func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, cfg) }, nil
}
