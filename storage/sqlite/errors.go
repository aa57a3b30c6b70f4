package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/joined"
)

// Problem is a fault of a file.
type Problem string

// The problems of files.
const (
	Foreign  Problem = "is not a file of midge's"
	Broken   Problem = "is damaged"
	Network  Problem = "is on a network file system, where SQLite's locks do not hold"
	ReadOnly Problem = "cannot be written, or its folder cannot"
	NoWAL    Problem = "has no write-ahead log"
	NoFolder Problem = "has no folder"
	Moved    Problem = "was moved, removed or replaced while it was open"
	Linked   Problem = "has several names (hard links), each of which would have a write-ahead log of its own"
)

// FileError is the error for a file that cannot serve. It is a storage.ErrRefused.
type FileError struct {
	Path    string
	Problem Problem
	Remedy  string // the way to mend it
	Err     error  // of the driver, or nil
}

// Error names the problem and its remedy.
func (e *FileError) Error() string {
	text := fmt.Sprintf("the file %s %s: %s", e.Path, e.Problem, e.Remedy)
	if e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	return text
}

// Unwrap returns the error of the driver.
func (e *FileError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, storage.ErrRefused) hold.
func (e *FileError) Is(target error) bool { return target == storage.ErrRefused }

// DeferredError means that a transaction of the application's began as a reader and can no longer
// write, because another transaction wrote after it had read. Nothing of the call happened, and no
// repeat in this transaction helps.
type DeferredError struct{ Err error }

// Error names the remedy.
func (e *DeferredError) Error() string {
	return "the transaction began deferred, and another one wrote after it had read: roll it back and repeat " +
		"it whole, and have transactions begin as writers that wait for each other, with " +
		"_txlock=immediate&_pragma=busy_timeout(20000) in the name of the database (" + e.Err.Error() + ")"
}

// Unwrap returns the error of the driver.
func (e *DeferredError) Unwrap() error { return e.Err }

var errLocked = errors.New("another process or a transaction of the application's holds the write lock")

// The result codes of SQLite that translate distinguishes. The low byte is the primary code.
const (
	codeError    = 1
	codePerm     = 3
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeIO       = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
	codeSnapshot = 5 | 2<<8

	codeShortRead = 10 | 2<<8
)

// remedy names the ways to make room in a full database. On a full disk SQLite can write nothing, a delete
// neither.
const remedy = "free space on the disk, which deletes need too; " +
	"if PRAGMA max_page_count is reached, delete tasks"

// codeOf returns the result code of an error with a method Code, 0 for any other.
func codeOf(err error) int {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return 0
}

// primary returns the primary result code of an error.
func (s *Storage) primary(err error) int { return s.cfg.Code(err) & 0xff }

// isBusy reports whether another connection is in the way.
func (s *Storage) isBusy(err error) bool {
	code := s.primary(err)
	return code == codeBusy || code == codeLocked
}

// translate returns the meaning of an error of the driver for a caller: every such error passes
// through it, once. A step that did not reach its commit did not happen; committing means that this
// step did reach it.
func (s *Storage) translate(err error, committing bool) error {
	if err == nil || translated(err) {
		return err
	}
	if errors.Is(err, sql.ErrTxDone) {
		return joined.Over(err)
	}
	if s.cfg.Code(err) == codeShortRead || s.primary(err) == codeNotADB && headless(s.path+"-wal") {
		return s.cutShort(err)
	}
	switch s.primary(err) {
	case codeBusy, codeLocked:
		if s.cfg.Code(err) == codeSnapshot {
			return &DeferredError{Err: err}
		}
		return fmt.Errorf("%w: %w: %w", storage.ErrUnavailable, errLocked, err)
	case codeFull:
		return fmt.Errorf("%w: %s: %w", storage.ErrFull, remedy, err)
	case codeReadOnly, codeCantOpen, codePerm:
		return &FileError{
			Path: s.path, Problem: ReadOnly, Err: err,
			Remedy: "let this process write the file, and make files beside it in the folder",
		}
	case codeNotADB:
		return &FileError{
			Path: s.path, Problem: Foreign, Err: err,
			Remedy: "it is no SQLite database: name another path, or put a backup in its place if it was one",
		}
	case codeCorrupt:
		return s.broken(err)
	}
	if committing {
		return fmt.Errorf("%w: %w", storage.ErrUnknown, err)
	}
	if s.cfg.Code(err) != 0 && s.primary(err) != codeIO {
		return err // the statement is wrong, or its tables
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
}

// translated reports whether an error already has its meaning for a caller.
func translated(err error) bool {
	for _, known := range []error{
		storage.ErrUnknown, storage.ErrUnavailable, storage.ErrClosed, storage.ErrNotFound, storage.ErrNotEmpty,
		storage.ErrDamaged, storage.ErrRefused, storage.ErrFull, storage.ErrTransactionOver,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	var deferred *DeferredError
	return errors.As(err, &deferred)
}

// wrap names the action in an error.
func wrap(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqlite: %s: %w", action, err)
}
