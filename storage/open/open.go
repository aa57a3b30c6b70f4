// Package open opens a storage by a URL that a program has from its configuration.
//
//	store, err := open.Open(ctx, os.Getenv("MIDGE_URL"))
//
// The storages on PostgreSQL and SQLite can write within a transaction of database/sql. An interface
// assertion shows whether a storage has the method for that:
//
//	joins, ok := store.(interface{ WithinSQL(tx *sql.Tx) storage.Joined })
//
// The package depends on the storages memory, Redis and PostgreSQL. SQLite is a module of its own,
// which brings a [Driver]: open.Open(ctx, "sqlite:jobs.db", modernc.URL{}). For options that a URL
// cannot express, such as limits, call the Open of the storage's own package with its Config.
package open

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
)

// Driver opens the storages of one scheme. The modules of other storages export theirs.
type Driver interface {
	// Scheme is the scheme of the URLs that the driver opens, without the colon.
	Scheme() string
	// Open opens the storage at a URL of the scheme. ctx bounds only the opening.
	Open(ctx context.Context, url string) (storage.Storage, error)
}

// Open opens the storage at a URL; the caller closes it. ctx bounds only the opening.
//
//	memory:                                                   only in this process
//	redis://user:password@host:6379/0                         see redis.Config, also for rediss,
//	redis+sentinel://host:26379,host:26379/master             unix and the same over TLS
//	redis+cluster://host:7000,host:7001
//	postgres://user:password@host/database?sslmode=verify-full   see postgres.Config
//
// The drivers in more open URLs of their own schemes, and come before the storages above. Open returns
// the errors of the storage's own Open, and a *storage.InvalidError for a URL of an unknown scheme. No
// error holds a password.
func Open(ctx context.Context, url string, more ...Driver) (storage.Storage, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	for _, d := range more {
		if d != nil && d.Scheme() == scheme {
			return d.Open(ctx, url)
		}
	}
	switch scheme {
	case "memory":
		if strings.Trim(rest, "/") != "" {
			return nil, fmt.Errorf("open: %w", storage.Invalid("URL", "memory:***", "memory: alone"))
		}
		return opened(memory.Open(memory.Config{}))
	case "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		return opened(redis.Open(ctx, redis.Config{URL: url}))
	case "postgres", "postgresql":
		return opened(postgres.Open(ctx, postgres.Config{URL: url}))
	}
	known := []string{"memory", "redis", "rediss", "unix", "redis+sentinel", "redis+cluster", "postgres"}
	for _, d := range more {
		if d != nil {
			known = append(known, d.Scheme())
		}
	}
	return nil, fmt.Errorf("open: %w", storage.Invalid("URL", shown(url, scheme),
		"one that begins with %s and a colon", strings.Join(slices.Compact(known), ", ")))
}

// opened returns a nil interface with an error, never an interface that holds a nil pointer.
func opened[S storage.Storage](store S, err error) (storage.Storage, error) {
	if err != nil {
		return nil, err
	}
	return store, nil
}

// shown returns a URL without its secrets, for an error. It shows at most the scheme: a text without
// one may be a password or contain one, such as "host=db password=x:y".
func shown(text, scheme string) string {
	if u, err := url.Parse(scheme + ":"); text == scheme || err != nil || u.Scheme == "" {
		return "without a scheme"
	}
	return scheme + ":***"
}
