package postgres

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// query is one statement of a step, with the function that reads its rows.
type query struct {
	text string // {schema} stands for the schema's name, see inSchema
	args []any
	scan func(rows) error // nil if there are no rows to read
	copy *packer          // the rows of a COPY, nil for any other statement
}

// rows are the rows of a query: the methods that pgx.Rows and *sql.Rows share, without Close.
type rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}

// link carries out queries of one transaction, in order.
type link interface {
	run(ctx context.Context, queries ...query) error
}

// schema knows the names of the schema and of this version's functions. All texts of queries are
// constants.
type schema struct {
	quoted string
	texts  sync.Map // the texts that the server knows, by the constants
}

// in returns the text of a query with the names that the server knows.
func (s *schema) in(text string) string {
	if known, some := s.texts.Load(text); some {
		return known.(string) //nolint:forcetypeassert // nothing else is stored
	}
	made := inSchema(text, s.quoted)
	s.texts.Store(text, made)
	return made
}

// function matches the name of a function where it is made or called. The name of a table never
// stands right before a parenthesis.
var function = regexp.MustCompile(`\{schema\}\.([a-z]+)\(`)

// inSchema puts the quoted name of a schema into a text, and appends this version to the names of
// functions.
func inSchema(text, quoted string) string {
	text = function.ReplaceAllString(text, "{schema}.${1}_"+strconv.Itoa(version)+"(")
	return strings.ReplaceAll(text, "{schema}", quoted)
}

// transaction is one of the storage's own, on a connection of a pool. Its first round trip also
// begins it, and its last one commits it. Between two round trips the server waits for idleLimit at
// most, and then rolls back: a process that froze, or whose connection is dead, would keep its tasks
// locked for hours.
type transaction struct {
	schema *schema
	conn   *pgxpool.Conn
	begun  bool
	over   bool
}

const idleLimit = "SET LOCAL idle_in_transaction_session_timeout = '2s'"

// begin takes a connection; nothing is sent yet.
func (s *Storage) begin(ctx context.Context, pool *pgxpool.Pool) (*transaction, error) {
	s.idle.used()
	conn, err := acquire(ctx, pool)
	if err != nil {
		return nil, err
	}
	return &transaction{schema: s.schema, conn: conn}, nil
}

func (t *transaction) run(ctx context.Context, queries ...query) error {
	if !t.begun {
		t.begun = true
		queries = append([]query{{text: "BEGIN ISOLATION LEVEL READ COMMITTED"}, {text: idleLimit}}, queries...)
	}
	at := slices.IndexFunc(queries, func(q query) bool { return q.copy != nil })
	if at < 0 {
		return send(ctx, t.conn.Conn(), t.schema, queries)
	}
	copies := queries[at] // it has a round trip of its own
	defer copies.copy.close()
	err := send(ctx, t.conn.Conn(), t.schema, queries[:at])
	if err == nil {
		err = t.copy(ctx, copies.text, copies.copy)
	}
	if err != nil {
		return err
	}
	return t.run(ctx, queries[at+1:]...)
}

// copy fills a table with rows in the form that COPY reads. If the server refuses the rows, the connection
// is closed. Otherwise a PgBouncer (1.21 to 1.25) that was sent the end of a copy which had failed
// keeps its connection to the server from all other clients, for as long as this connection stands
// (github.com/pgbouncer/pgbouncer/pull/1470).
func (t *transaction) copy(ctx context.Context, text string, rows io.Reader) error {
	_, err := t.conn.Conn().PgConn().CopyFrom(ctx, rows, t.schema.in(text))
	if err != nil {
		t.over = true
		_ = t.conn.Conn().Close(ctx)
		release(t.conn)
	}
	return err
}

// commit carries out the last queries, commits, and returns the connection to its pool: a caller that goes on
// may need another, and two callers that hold one each would wait for each other.
func (t *transaction) commit(ctx context.Context, queries ...query) error {
	err := t.run(ctx, append(queries, query{text: "COMMIT"})...)
	if err == nil {
		t.over = true
		release(t.conn)
	}
	return err
}

// close rolls back what was not committed, and returns the connection to its pool. The pool drops a
// connection on which the rollback fails. Closing again is harmless.
func (t *transaction) close(ctx context.Context) {
	if t.over {
		return
	}
	t.over = true
	if t.begun && !t.conn.Conn().IsClosed() {
		_, _ = t.conn.Exec(ctx, "ROLLBACK")
	}
	release(t.conn)
}

// batcher is a connection or transaction of pgx.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// send carries out queries in one round trip.
func send(ctx context.Context, conn batcher, in *schema, queries []query) (err error) {
	var batch pgx.Batch
	for i := range queries {
		batch.Queue(in.in(queries[i].text), queries[i].args...)
	}
	results := conn.SendBatch(ctx, &batch)
	defer func() {
		if closed := results.Close(); err == nil {
			err = closed
		}
	}()
	for i := range queries {
		if queries[i].scan == nil {
			if _, err := results.Exec(); err != nil {
				return err
			}
			continue
		}
		found, err := results.Query()
		if err != nil {
			return err
		}
		err = queries[i].scan(found)
		found.Close()
		if err == nil {
			err = found.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ask carries out one query on any connection of a pool, as a transaction of its own. A query whose
// prepared statement is missing has done nothing: it is sent again without a prepared statement.
func (s *Storage) ask(ctx context.Context, pool *pgxpool.Pool, q query) error {
	for try := 1; ; try++ {
		err := s.askOnce(ctx, pool, q)
		if !unprepared(err) || try == again {
			return err
		}
		s.forgetPrepared()
	}
}

// askAside is ask for background work, all of which shares one connection at a time.
func (s *Storage) askAside(ctx context.Context, q query) error { return s.askIn(ctx, q, s.aside) }

// askSoon is askAside for a notification, which waits only a while for the shared connection: the
// query that has it may wait for a lock. Then it uses another connection, so that background work has
// two at most.
func (s *Storage) askSoon(ctx context.Context, q query) error {
	const patience = 200 * time.Millisecond
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case s.aside <- struct{}{}:
		defer func() { <-s.aside }()
		return s.ask(ctx, s.pool, q)
	case <-soon.Done():
		return s.askIn(ctx, q, s.telling)
	}
}

// askIn is ask once a slot has room.
func (s *Storage) askIn(ctx context.Context, q query, slot chan struct{}) error {
	select {
	case slot <- struct{}{}:
		defer func() { <-slot }()
		return s.ask(ctx, s.pool, q)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errUnsent, ctx.Err())
	}
}

func (s *Storage) askOnce(ctx context.Context, pool *pgxpool.Pool, q query) error {
	if s.strict {
		return s.askWithin(ctx, pool, q)
	}
	s.idle.used()
	conn, err := acquire(ctx, pool)
	if err != nil {
		return err
	}
	defer release(conn)
	found, err := conn.Query(ctx, s.schema.in(q.text), q.args...)
	if err != nil {
		return err
	}
	defer found.Close()
	if q.scan != nil {
		if err := q.scan(found); err != nil {
			return err
		}
	}
	found.Close()
	return found.Err()
}

// askWithin asks in a transaction that names its isolation level, as the sessions have another
// default.
func (s *Storage) askWithin(ctx context.Context, pool *pgxpool.Pool, q query) error {
	tx, err := s.begin(ctx, pool)
	if err != nil {
		return err
	}
	defer tx.close(ctx)
	return tx.commit(ctx, q)
}

// one makes a scan of the one row of a query. It returns errReply if there is none.
func one(dest ...any) func(rows) error {
	return func(r rows) error {
		if !r.Next() {
			if err := r.Err(); err != nil {
				return err
			}
			return errReply
		}
		return r.Scan(dest...)
	}
}

// each makes a scan that calls got after every row.
func each(got func() error, dest ...any) func(rows) error {
	return func(r rows) error {
		for r.Next() {
			if err := r.Scan(dest...); err != nil {
				return err
			}
			if err := got(); err != nil {
				return err
			}
		}
		return r.Err()
	}
}
