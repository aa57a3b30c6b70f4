package postgres

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/storage"
)

// Config configures [Open] and [Migrate]. It needs a URL or a Pool, and nothing else.
type Config struct {
	// URL of the database, or a connection string of libpq. A password in it is never printed. Of
	// several hosts the storage uses the host that takes writes. Without sslmode=verify-full a remote
	// server may be an impostor, and Describe warns of that. Without connect_timeout, a host
	// may take 5 s to answer and, if it is the only one, 30 s to begin a session.
	//
	//	postgres://user:password@host:5432/database?sslmode=verify-full
	//	postgres://user:password@one,two/database
	//	host=/run/postgresql dbname=database user=user
	URL string
	// Pool is the application's own pool, used instead of a URL as a description of the server:
	// address, credentials, TLS, hooks. The storage dials connections of its own with these settings,
	// so that jobs which hold every connection of the pool starve neither claims nor heartbeats.
	// Close does not close the pool.
	Pool *pgxpool.Pool
	// Schema holds the tables; default "midge". Storages in different schemas share nothing with each
	// other. 1 to 40 lower-case letters, digits and '_', not beginning with a digit or "pg_".
	Schema string
	// Connections bounds the connections for claims, inserts, reads and large calls; default 4. Up to
	// two more serve only leases and settles, and one serves the listener. Connections are made when
	// they are needed; only a runner needs those for leases, settles and the listener. An idle client
	// keeps two, and none after a minute or two. Servers show connections under the application_name
	// of the URL, or as "midge". If Connections is 0, the parameter pool_max_conns of the URL sets it.
	Connections int
	// ListenURL is the server to which the listener connects; default that of all other connections. It must
	// lead to the same database. The listener needs a session of its own: behind a proxy that pools
	// transactions, name the server itself. If it cannot be reached, the storage works as with
	// NoListener, and Describe warns of it.
	ListenURL string
	// NoListener turns the listener off: the callers' slow scan finds new work.
	NoListener bool
	// Limits bounds payloads and the dead tasks that are kept; see storage.Limits for the defaults.
	Limits storage.Limits
}

const (
	defaultSchema      = "midge"
	defaultConnections = 4
	reserveConnections = 2
	idleTime           = time.Minute
)

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// check fills in defaults, and returns an *InvalidError for a bad value.
func (c *Config) check() error {
	if c.Schema == "" {
		c.Schema = defaultSchema
	}
	c.Connections = cmp.Or(c.Connections, c.connections(), defaultConnections)
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

// connections returns the parameter pool_max_conns of the URL, 0 for none. The function settings reports a
// URL that cannot be parsed.
func (c *Config) connections() int {
	if c.URL == "" {
		return 0
	}
	plain, err := pgx.ParseConfig(c.URL)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(plain.RuntimeParams["pool_max_conns"])
	return n
}

// urlParameters is the part of an error that describes the parameters of a URL.
const urlParameters = "parameters such as sslmode=verify-full with names and values that libpq knows"

// settings returns the settings for a pool of the storage's own.
func (c *Config) settings() (*pgxpool.Config, error) {
	if c.Pool != nil {
		return own(c.Pool.Config()), nil
	}
	cfg, err := pgxpool.ParseConfig(c.URL)
	if err != nil { // the error's text may show the password
		return nil, storage.Invalid("Config.URL", "***", "a URL such as postgres://localhost/database, "+
			"special characters of a password percent-encoded, and "+urlParameters)
	}
	return own(cfg), nil
}

// own adapts the settings of a pool to the storage.
func own(cfg *pgxpool.Config) *pgxpool.Config {
	cfg.ConnConfig = introduced(cfg.ConnConfig)
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	cfg.MaxConnIdleTime = idleTime
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // see acquire
	boundDials(cfg.ConnConfig)
	validate := cfg.ConnConfig.ValidateConnect
	if validate == nil { // to find the host that takes writes, also after a failover
		validate = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	cfg.ConnConfig.ValidateConnect = calmly(validate)
	return cfg
}

// calmly returns a check of a new connection, nil for none, that returns an error if the given check panics.
// The checks of pgconn panic if the server's answer has no row, and a pool connects in a goroutine of its
// own: the panic would end the process.
func calmly(validate pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	if validate == nil {
		return nil
	}
	return func(ctx context.Context, conn *pgconn.PgConn) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the server's answer to a new connection cannot be read: %v", p)
			}
		}()
		return validate(ctx, conn)
	}
}

// introduced makes the server show connections as midge's, unless the application chose another name.
func introduced(cfg *pgx.ConnConfig) *pgx.ConnConfig {
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "midge"
	}
	return cfg
}

// connect makes the two pools; they do not dial yet.
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

// dial makes a connection outside of a pool, with the pool's settings and hooks.
func dial(ctx context.Context, cfg *pgxpool.Config) (*pgx.Conn, error) {
	conn := cfg.ConnConfig.Copy()
	if cfg.BeforeConnect != nil { // the hook may fetch a password
		if err := cfg.BeforeConnect(ctx, conn); err != nil {
			return nil, err
		}
	}
	made, err := pgx.ConnectConfig(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsent, err)
	}
	if cfg.AfterConnect != nil { // the hook may set a role
		if err := cfg.AfterConnect(ctx, made); err != nil {
			hangUp(ctx, made)
			return nil, fmt.Errorf("%w: %w", errUnsent, err)
		}
	}
	return made, nil
}

// listen returns the function that dials the listener's connection, nil if no listener is wanted.
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
		return nil, storage.Invalid("Config.ListenURL", "***",
			"a URL such as postgres://localhost/database, "+urlParameters)
	}
	cfg = introduced(cfg)
	cfg.ValidateConnect = calmly(cfg.ValidateConnect)
	boundDials(cfg)
	return func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, cfg) }, nil
}
