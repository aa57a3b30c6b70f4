// Package modernc opens the storage on SQLite with the driver modernc.org/sqlite, which needs no C compiler.
// It is a module of its own, so that applications without SQLite do not download it.
//
//	store, err := modernc.Open(ctx, "jobs.db")
//
// For tasks in the transactions of the application, in its own database:
//
//	db, err := modernc.OpenDB("shop.db")
//	err = sqlite.Migrate(ctx, sqlite.Config{DB: db})
//	store, err := sqlite.Open(ctx, sqlite.Config{DB: db})
package modernc

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/midgehq/midge/internal/private"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
)

// Driver is the name of the driver in database/sql.
const Driver = "sqlite"

// URL opens files of tasks by a URL, "sqlite:" and a path, for open.Open of package storage/open.
type URL struct{}

// Scheme returns the scheme of these URLs.
func (URL) Scheme() string { return "sqlite" }

// Open opens the file at the path behind "sqlite:", or behind "sqlite://".
func (URL) Open(ctx context.Context, url string) (storage.Storage, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(url, "sqlite:"), "//")
	if path == "" {
		return nil, fmt.Errorf("sqlite: open: %w",
			storage.Invalid("URL", url, "one with the path of a file, such as sqlite:jobs.db"))
	}
	store, err := Open(ctx, path)
	if err != nil {
		return nil, err
	}
	return store, nil
}

// OpenDB returns the application's own database in a file. If there is no file, OpenDB makes a file that
// only its user may read, because tasks have the parameters of jobs. The settings of the database let the
// transactions of the application and of the storage work together: the file has a write-ahead log; a
// transaction begins as a writer, so that it never fails because another transaction wrote after it had
// read; and it waits up to 20 seconds while another connection writes. Each commit waits for its fsync.
// Transactions that only read should set sql.TxOptions.ReadOnly: they wait for nobody.
//
// The caller closes the database, after the storage. OpenDB returns an *InvalidError if path is
// not that of a file; errors of the file come with the first use.
func OpenDB(path string) (*sql.DB, error) {
	if path == "" || path == ":memory:" || strings.HasPrefix(path, "file:") {
		return nil, storage.Invalid("path", path, "the path of a file, such as shop.db")
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, storage.Invalid("path", path, "a path: %v", err)
	}
	private.Make(full) // SQLite would let others read the file
	// A file may have a name such as a?b.db. Escaped, its ? begins no query in the URI.
	return sql.Open(Driver, "file:"+(&url.URL{Path: filepath.ToSlash(full)}).EscapedPath()+
		"?_txlock=immediate&_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
}

// Open opens a file of tasks, which it makes if there is none. For any other configuration call
// sqlite.Open, and import this package for its Driver.
func Open(ctx context.Context, path string) (*sqlite.Storage, error) {
	return sqlite.Open(ctx, sqlite.Config{Path: path, Driver: Driver})
}
