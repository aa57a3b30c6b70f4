// Package open opens a storage by a URL, as programs have it from their configuration.
//
//	store, err := open.Open(ctx, os.Getenv("MIDGE_URL"))
//
// A storage in which transactions of database/sql can be joined, on PostgreSQL or SQLite, has a method
// for that, to be asked for by an interface:
//
//	joins, ok := store.(interface{ WithinSQL(tx *sql.Tx) storage.Joined })
//
// It depends on the storages memory, Redis and PostgreSQL. SQLite is a module of its own, which
// brings a [Driver]: open.Open(ctx, "sqlite:jobs.db", modernc.URL{}). What a URL cannot say, such
// as limits, says the Config of a storage to its own Open.
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
	// Scheme is what stands before the colon of the URLs that it opens.
	Scheme() string
	// Open opens the storage at a URL of the scheme. ctx bounds the opening alone.
	Open(ctx context.Context, url string) (storage.Storage, error)
}

// Open opens the storage at a URL; the caller closes it. ctx bounds the opening alone.
//
//	memory:                                                   in this process alone
//	redis://user:password@host:6379/0                         see redis.Config, also for rediss,
//	redis+sentinel://host:26379,host:26379/master             unix and the same over TLS
//	redis+cluster://host:7000,host:7001
//	postgres://user:password@host/database?sslmode=verify-full   see postgres.Config
//
// A URL of another scheme is opened by the driver of more that has the scheme. Errors are those of
// the storage's own Open, and a *storage.InvalidError for a URL whose scheme nobody has. No error
// shows a password.
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

// opened gives no storage that is a nil pointer.
func opened[S storage.Storage](store S, err error) (storage.Storage, error) {
	if err != nil {
		return nil, err
	}
	return store, nil
}

// shown is a URL without what may be secret in it: a text without a scheme may be a
// password, or have one, as "host=db password=x:y" has.
func shown(text, scheme string) string {
	if u, err := url.Parse(scheme + ":"); text == scheme || err != nil || u.Scheme == "" {
		return "without a scheme"
	}
	return scheme + ":***"
}
