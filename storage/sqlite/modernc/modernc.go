// Package modernc opens the storage on SQLite with the driver modernc.org/sqlite, which needs no C compiler.
// It is a module of its own, so that applications without SQLite do not download it.
//
//	store, err := modernc.Open(ctx, "jobs.db")
package modernc

import (
	"context"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
)

// Driver is the name of the driver in database/sql.
const Driver = "sqlite"

// URL opens files of tasks by a URL, sqlite: and a path, for open.Open of package storage/open.
type URL struct{}

// Scheme is that of the URLs.
func (URL) Scheme() string { return "sqlite" }

// Open opens the file at the path behind "sqlite:", or behind "sqlite://".
func (URL) Open(ctx context.Context, url string) (storage.Storage, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(url, "sqlite:"), "//")
	store, err := Open(ctx, path)
	if err != nil {
		return nil, err
	}
	return store, nil
}

// Open opens a file of tasks, made where there is none. For anything else there is sqlite.Open, with
// this package imported for its Driver.
func Open(ctx context.Context, path string) (*sqlite.Storage, error) {
	return sqlite.Open(ctx, sqlite.Config{Path: path, Driver: Driver})
}
