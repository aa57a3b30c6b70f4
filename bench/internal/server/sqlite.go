package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/midgehq/midge/bench/internal/system"
)

// sqlite is a database file in a folder of its own.
type sqlite struct{ folder string }

func startSQLite() (*sqlite, error) {
	folder, err := os.MkdirTemp("", "midge-bench")
	return &sqlite{folder}, err
}

func (s *sqlite) path() string { return filepath.Join(s.folder, "jobs.db") }

// Place returns the path of the file.
func (s *sqlite) Place() system.Place { return system.Place{Storage: system.SQLite, Addr: s.path()} }

// Pid returns 0: the database runs in each process.
func (s *sqlite) Pid() int { return 0 }

// Reset deletes the file.
func (s *sqlite) Reset(context.Context) error {
	return errors.Join(os.RemoveAll(s.folder), os.Mkdir(s.folder, 0o700))
}

// Memory returns the bytes of the pages in use, including those in the write-ahead log.
func (s *sqlite) Memory(ctx context.Context) (int64, error) { return system.SQLiteSize(ctx, s.path()) }

// Describe returns the version and the settings that matter.
func (s *sqlite) Describe(ctx context.Context) (string, error) {
	return system.SQLiteVersion(ctx)
}

// Close deletes the folder.
func (s *sqlite) Close() error { return os.RemoveAll(s.folder) }
