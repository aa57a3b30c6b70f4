package system

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver
)

// openSQLite opens a file on one connection, with midge's durability: each commit waits for its
// fsync.
func openSQLite(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", path+"?_txlock=immediate&_pragma=busy_timeout(10000)"+
		"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// SQLiteSize returns how many bytes the used pages of a file take.
func SQLiteSize(ctx context.Context, path string) (used int64, err error) {
	db, err := openSQLite(path)
	if err != nil {
		return 0, err
	}
	err = db.QueryRowContext(ctx, `SELECT (p.page_count - f.freelist_count) * s.page_size
		FROM pragma_page_count p, pragma_freelist_count f, pragma_page_size s`).Scan(&used)
	return used, errors.Join(err, db.Close())
}

// SQLiteVersion returns the version of SQLite and the settings of its systems.
func SQLiteVersion(ctx context.Context) (version string, err error) {
	db, err := openSQLite(":memory:")
	if err != nil {
		return "", err
	}
	err = db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	return fmt.Sprintf("SQLite %s, journal_mode WAL, synchronous FULL", version), errors.Join(err, db.Close())
}

// onBareSQLite has a table of jobs, each with the moment from which it may be claimed, and a table that
// counts the settled jobs. All is done on one connection.
type onBareSQLite struct {
	db   *sql.DB
	wake chan struct{} // wakes the worker of this process

	mu       sync.Mutex // guards prepared
	prepared map[string]*sql.Stmt
}

const bareSQLiteTables = `
CREATE TABLE IF NOT EXISTS bare (
	id INTEGER PRIMARY KEY, queue TEXT NOT NULL, after INTEGER NOT NULL, pending INTEGER NOT NULL DEFAULT 0,
	body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS bare_after ON bare (queue, after);
CREATE TABLE IF NOT EXISTS bare_completed (queue TEXT PRIMARY KEY, jobs INTEGER NOT NULL) WITHOUT ROWID`

func openBareSQLite(ctx context.Context, at Place) (*onBareSQLite, error) {
	db, err := openSQLite(at.Addr)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, bareSQLiteTables); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &onBareSQLite{db: db, wake: make(chan struct{}, 1), prepared: make(map[string]*sql.Stmt)}, nil
}

// statement returns a prepared statement, which it prepares only once.
func (s *onBareSQLite) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.prepared[text]; st != nil {
		return st, nil
	}
	st, err := s.db.PrepareContext(ctx, text) //nolint:sqlclosecheck // it stays prepared
	s.prepared[text] = st
	return st, err
}

// in calls action in a transaction, with a prepared statement.
func (s *onBareSQLite) in(ctx context.Context, text string, action func(*sql.Tx, *sql.Stmt) error) error {
	st, err := s.statement(ctx, text)
	if err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := action(tx, tx.StmtContext(ctx, st)); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (s *onBareSQLite) insert(ctx context.Context, queue string, due time.Time, bodies [][]byte) error {
	after := time.Now().UnixMicro()
	if !due.IsZero() {
		after = due.UnixMicro()
	}
	const text = "INSERT INTO bare (queue, after, body) VALUES (?, ?, ?)"
	err := s.in(ctx, text, func(_ *sql.Tx, st *sql.Stmt) error {
		for _, body := range bodies {
			if _, err := st.ExecContext(ctx, queue, after, body); err != nil {
				return err
			}
		}
		return nil
	})
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return err
}

func (s *onBareSQLite) claim(
	ctx context.Context, queue string, most int,
) (jobs []bareJob, next time.Time, err error) {
	now := time.Now()
	err = s.in(ctx, `UPDATE bare SET after = ?, pending = 1
		WHERE id IN (SELECT id FROM bare WHERE queue = ? AND after <= ? ORDER BY after LIMIT ?) RETURNING id, body`,
		func(_ *sql.Tx, st *sql.Stmt) error {
			rows, err := st.QueryContext(ctx, now.Add(bareLease).UnixMicro(), queue, now.UnixMicro(), most)
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var job bareJob
				if err := rows.Scan(&job.row, &job.body); err != nil {
					return err
				}
				jobs = append(jobs, job)
			}
			return rows.Err()
		})
	if err != nil || len(jobs) > 0 {
		return jobs, next, err
	}
	var after int64
	err = s.db.QueryRowContext(ctx,
		"SELECT after FROM bare WHERE queue = ? AND NOT pending ORDER BY after LIMIT 1", queue).Scan(&after)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, next, nil
	}
	return nil, time.UnixMicro(after), err
}

func (s *onBareSQLite) settle(ctx context.Context, queue string, jobs []bareJob) error {
	return s.in(ctx, "DELETE FROM bare WHERE id = ?", func(tx *sql.Tx, st *sql.Stmt) error {
		for i := range jobs {
			if _, err := st.ExecContext(ctx, jobs[i].row); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO bare_completed VALUES (?, ?)
			ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs`, queue, len(jobs))
		return err
	})
}

// wait waits for an insert of this process, or for at most bareLook, after which the worker
// checks for inserts of other processes.
func (s *onBareSQLite) wait(ctx context.Context, _ string, most time.Duration) error {
	select {
	case <-s.wake:
	case <-time.After(min(most, bareLook)):
	case <-ctx.Done():
	}
	return nil
}

// bareLook is how often the worker checks for jobs that other processes have inserted.
const bareLook = 5 * time.Millisecond

func (s *onBareSQLite) totals(ctx context.Context, queue string) (t Totals, err error) {
	now := time.Now().UnixMicro()
	err = s.db.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE NOT pending AND after <= ?),
			count(*) FILTER (WHERE pending), count(*) FILTER (WHERE NOT pending AND after > ?),
			(SELECT coalesce(sum(jobs), 0) FROM bare_completed WHERE queue = ?)
		FROM bare WHERE queue = ?`, now, now, queue, queue).Scan(&t.Waiting, &t.Pending, &t.Later, &t.Completed)
	return t, err
}

func (s *onBareSQLite) close() error { return s.db.Close() }
