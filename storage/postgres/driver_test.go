package postgres_test

import (
	"context"
	"database/sql/driver"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/midgehq/midge/storage"
)

// plainDriver is pgx as a driver that leaves the check of arguments to database/sql, as most drivers do: it
// takes no argument but a driver.Value. It notes the statements that it carries out.
type plainDriver struct {
	driver.Connector

	mu   sync.Mutex // guards sent
	sent []string
}

func newPlainDriver(cfg *pgx.ConnConfig) *plainDriver {
	return &plainDriver{Connector: stdlib.GetConnector(*cfg)}
}

func (d *plainDriver) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := d.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return plainConn{conn.(connection), d}, nil
}

func (d *plainDriver) note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent = append(d.sent, text)
}

// connection has the methods that database/sql needs of a connection.
type connection interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type plainConn struct {
	connection

	driver *plainDriver
}

func (c plainConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.driver.note(text)
	return c.connection.ExecContext(ctx, text, args)
}

func (c plainConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.driver.note(text)
	return c.connection.QueryContext(ctx, text, args)
}

// TestWithinSQLSendsWhatEveryDriverTakes calls every function with which a step in a transaction of
// database/sql writes its work, and reads.
func TestWithinSQLSendsWhatEveryDriverTakes(t *testing.T) {
	s := newShop(t)
	insert := func(id, partition, unique string) storage.Insert {
		in := insertOf(id)
		in.Partition, in.Keep.For = partition, time.Hour
		if unique != "" {
			in.Unique = storage.Unique{Key: unique, Mode: storage.UniqueLife}
		}
		return in
	}
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insert("buried", "", ""), insert("released", "p", "")}})
	claimed := make(map[string]storage.Fence)
	for _, f := range s.claim(2).Fences {
		claimed[f.ID] = f
	}
	tx, err := s.db.BeginTx(t.Context(), nil)
	s.must(err)
	joined := s.store.WithinSQL(tx)
	inserted := s.apply(joined, storage.Tx{
		Inserts: []storage.Insert{insert("unique", "p", "k"), insertOf("plain")},
	}).Inserted
	buried := s.apply(joined, storage.Tx{Settles: []storage.Settle{
		{Fence: claimed["buried"], Outcome: storage.Bury, Error: "no", Stack: "at"},
		{Fence: claimed["released"], Outcome: storage.Release, Delay: time.Hour},
	}}).Settled[0]
	moved := s.apply(joined, storage.Tx{
		Changes: []storage.Change{{Ref: buried.Ref, Version: buried.Version, Queue: "other"}},
	}).Changed[0]
	s.apply(joined, storage.Tx{Deletes: []storage.Delete{
		{Ref: moved.Ref, Version: moved.Version}, {Ref: inserted[0].Ref, Version: inserted[0].Version},
	}})
	_, err = joined.Task(t.Context(), claimed["released"].Ref)
	s.must(err)
	for _, q := range []storage.TasksQuery{
		{Queue: "q", State: storage.Waiting}, {Queue: "q", State: storage.Dead, Newest: true},
	} {
		_, err = joined.Tasks(t.Context(), q)
		s.must(err)
	}
	_, err = joined.Queues(t.Context(), storage.QueuesQuery{})
	s.must(err)
	s.must(tx.Commit())
	s.wantSent("made", "vacate", "open") // of a copy, and of a transaction of the storage's own
}

// wantSent expects that the driver was sent each function of save.go but some.
func (s *shop) wantSent(except ...string) {
	s.Helper()
	code, err := os.ReadFile("save.go")
	s.must(err)
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	for _, f := range regexp.MustCompile(`\{schema\}\.(\w+)\(`).FindAllSubmatch(code, -1) {
		name := string(f[1])
		call := regexp.MustCompile(`\.` + name + `_\d+\(`)
		if !slices.Contains(except, name) && !slices.ContainsFunc(s.driver.sent, call.MatchString) {
			s.Errorf("the function %s was not called", name)
		}
	}
}
