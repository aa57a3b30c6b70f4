// Package modernc opens the storage on SQLite with the driver modernc.org/sqlite, which needs no C compiler.
// It is a module of its own, so that applications without SQLite do not download it.
//
//	store, err := modernc.Open(ctx, "jobs.db")
package modernc

import (
	"context"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/midgehq/midge/storage/sqlite"
)

// Driver is the name of the driver in database/sql.
const Driver = "sqlite"

// Open opens a file of tasks, made where there is none. For anything else there is sqlite.Open, with
// this package imported for its Driver.
func Open(ctx context.Context, path string) (*sqlite.Storage, error) {
	return sqlite.Open(ctx, sqlite.Config{Path: path, Driver: Driver})
}
