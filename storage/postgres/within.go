package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/joined"
)

// Joined writes and reads within a transaction of the application's. Its writes are invisible until
// that transaction commits, and gone if it rolls back; its wake-ups go with the commit. Like the
// transaction it is for one goroutine at a time.
type Joined struct {
	store *Storage
	link  joinedLink // nil if the transaction is nil
}

// joinedLink carries out queries in a transaction of the application's.
type joinedLink interface {
	link
	rollback(ctx context.Context) error
}

var (
	_ storage.Joined  = (*Joined)(nil)
	_ storage.Located = (*Joined)(nil)
)

// Within joins a transaction of pgx, of any isolation level. A transaction at REPEATABLE READ or
// SERIALIZABLE keeps its first snapshot. In such a transaction an Apply fails to serialize (40001)
// if it inserts under an id or a unique key that somebody took since, if it writes a task that somebody
// changed since, and if it is the first to decline a task of its kind or to enqueue a task of its
// partition: the caller repeats the whole transaction.
//
// Until the transaction ends, others who enqueue under its ids or unique keys wait for it, for a few
// seconds: an Enqueue of such a key then returns an ErrUnknown, which Client.Repeat resolves. So keep
// the transaction short.
func (s *Storage) Within(tx pgx.Tx) *Joined {
	if tx == nil {
		return &Joined{store: s} // its Apply returns the error
	}
	return &Joined{store: s, link: joinedTx{tx: tx, schema: s.schema}}
}

// WithinSQL joins a transaction of database/sql, with any driver for PostgreSQL. Each statement is a
// round trip of its own there.
func (s *Storage) WithinSQL(tx *sql.Tx) storage.Joined {
	if tx == nil {
		return &Joined{store: s}
	}
	return &Joined{store: s, link: joinedSQL{tx: tx, schema: s.schema}}
}

// senderJoined begins the notifications of transactions of the application's: unlike its own, this
// storage has to hear them when they commit.
const senderJoined = "-"

// Apply carries out each Tx whole or not at all, within the application's transaction. The call has
// no identity: it must be the zero Call.
//
// A Tx that is refused (Applied.Err) has changed nothing and leaves the transaction usable. So does
// an error, also that of a context which ended: the changes of this Apply are rolled back. If that
// fails, as on a lost connection, the transaction ends. If it is over, the error is a
// storage.ErrTransactionOver; if another transaction holds a lock for five seconds, a
// storage.ErrUnavailable; and never a storage.ErrUnknown. errors.As finds the driver's error. A task
// that was settled is locked until the transaction ends, and that lock is its lease: no Extend,
// cancel or recovery waits for that end or touches the task.
func (j *Joined) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	if j.link == nil {
		return nil, joined.NoTransaction()
	}
	if err := joined.Check(j.store.limits, call, txs); err != nil {
		return nil, err
	}
	if err := j.store.enter(); err != nil {
		return nil, wrap("apply", err)
	}
	if err := ctx.Err(); err != nil || len(txs) == 0 {
		return []storage.Applied{}, wrap("apply", err) // nothing was sent
	}
	j.store.sweep.visit(true)
	p := newPart(call, txs)
	queues, err := j.numbersOf(ctx, queuesOfParts([]*part{p}))
	if err != nil {
		return nil, wrap("apply", within(err))
	}
	for begun := time.Now(); ; {
		err := j.try(ctx, p, queues)
		j.store.room.Wrote(translate(err))
		if err == nil {
			return p.applied, nil
		}
		undone := j.undo(ctx)
		lost := code(err) == "23505" || code(err) == "55P03" // a race against another step, or a long wait
		if undone != nil {
			return nil, wrap("apply", joined.Over(err))
		}
		if !lost || time.Since(begun) > joined.LockTime-tryTime || ctx.Err() != nil {
			return nil, wrap("apply", within(err))
		}
	}
}

// Location returns the location of the Storage.
func (j *Joined) Location() string { return j.store.Location() }

// Task reads one task as the transaction sees it; see [Storage.Task]. As with Apply, an error of the
// statement leaves the transaction usable.
func (j *Joined) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	return j.reading().task(ctx, ref)
}

// Tasks lists tasks as the transaction sees them; see [Storage.Tasks] and [Joined.Task].
func (j *Joined) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	return j.reading().tasks(ctx, q)
}

// Queues lists queues as the transaction sees them; see [Storage.Queues] and [Joined.Task].
func (j *Joined) Queues(ctx context.Context, q storage.QueuesQuery) (storage.QueuesPage, error) {
	return j.reading().queues(ctx, q)
}

// reading reads within the transaction, without retries.
func (j *Joined) reading() reading {
	return reading{j.store, j.ask, func(_ context.Context, step func() error) error { return step() }, within}
}

func (j *Joined) ask(ctx context.Context, q query) error {
	if j.link == nil {
		return joined.NoTransaction()
	}
	if err := ctx.Err(); err != nil {
		return err // nothing was sent
	}
	err := j.link.run(ctx, query{text: "SAVEPOINT midge"}, q, query{text: "RELEASE SAVEPOINT midge"})
	if err == nil {
		return nil
	}
	if undone := j.undo(ctx); undone != nil {
		return joined.Over(err)
	}
	return within(err)
}

// tryTime is how long a try waits for a lock of another transaction: see the functions load, make and take.
const tryTime = 2 * time.Second

// within translates an error of a statement within a transaction of the application's for the caller.
// The result is never an ErrUnknown: the transaction goes on, or it is over. An error of which the caller
// has to know more, such as a serialization failure, stays as it is.
func within(err error) error {
	switch code(err) {
	case "25P01", "25P02": // no transaction; a failed one
		return joined.Over(err)
	case "55P03":
		return fmt.Errorf("%w: other transactions hold a lock: %w", storage.ErrUnavailable, err)
	}
	switch {
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone):
		return joined.Over(err)
	case code(err) != "" && away(translate(err)):
		return err
	}
	return joined.Known(err)
}

// undo rolls a try back to its savepoint. If that fails, it ends the transaction, and returns an
// error.
func (j *Joined) undo(ctx context.Context) error {
	return joined.Undo(ctx, func(ctx context.Context, statement string) error {
		return j.link.run(ctx, query{text: statement})
	}, j.link.rollback)
}

// try carries out a part once. After an error the savepoint is still there.
func (j *Joined) try(ctx context.Context, p *part, queues map[string]int32) error {
	st := j.store.newStep(j.link, queues)
	st.wait, st.parts = true, []*part{p}
	refs, keys := named(st.parts)
	queries := []query{
		{text: "SAVEPOINT midge"},
		{text: stamping, args: []any{versions(st.parts)}, scan: one(&st.now, &st.base)},
	}
	if len(refs) > 0 {
		queries = append(queries, st.loading(refs))
	}
	if len(keys) > 0 {
		queries = append(queries, st.finding(keys))
	}
	if err := j.link.run(ctx, queries...); err != nil {
		return err
	}
	w, err := st.carryOut(ctx)
	if err != nil {
		return err
	}
	if q, some := w.opening(); some {
		j.open(ctx, q)
	}
	writes := w.save(true)
	for name, event := range w.rings {
		writes = append(writes, query{
			text: "SELECT {schema}.ring($1, $2, $3, $4)",
			args: []any{j.store.notes.channel, senderJoined, letters[event], []int32{w.ids(name)}},
		})
	}
	if err := j.link.run(ctx, append(writes, query{text: "RELEASE SAVEPOINT midge"})...); err != nil {
		return err
	}
	j.store.noteDead(w)
	return nil
}

// openTime bounds how long open takes, the wait for a connection included.
const openTime = 500 * time.Millisecond

// open makes the lines of kinds that tasks are to join. It does so outside of the transaction, so
// that no other decline waits for the transaction's end. If that fails, for example because
// transactions of the application hold all connections, the transaction makes the lines itself when
// it counts the tasks (joining).
func (j *Joined) open(ctx context.Context, q query) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	_ = j.store.ask(ctx, j.store.pool, q)
}

// numbersOf returns the numbers of queues. The transaction reads numbers that are not known. If it
// does not see a queue either, the storage uses a connection of its own.
func (j *Joined) numbersOf(ctx context.Context, names []string) (map[string]int32, error) {
	if known, missing := j.store.numbers.of(names); len(missing) > 0 {
		if err := j.ask(ctx, j.store.readingNumbers(known, missing)); err != nil {
			return nil, err
		}
	}
	return j.store.numbersOf(ctx, names)
}

// joinedTx sends queries in a transaction of pgx, all in one round trip.
type joinedTx struct {
	tx     pgx.Tx
	schema *schema
}

func (l joinedTx) run(ctx context.Context, queries ...query) error {
	return send(ctx, l.tx, l.schema, queries)
}

func (l joinedTx) rollback(ctx context.Context) error { return l.tx.Rollback(ctx) }

// joinedSQL sends queries in a transaction of database/sql.
type joinedSQL struct {
	tx     *sql.Tx
	schema *schema
}

func (l joinedSQL) run(ctx context.Context, queries ...query) error {
	for i := range queries {
		if err := l.one(ctx, &queries[i]); err != nil {
			return err
		}
	}
	return nil
}

func (l joinedSQL) rollback(context.Context) error { return l.tx.Rollback() }

func (l joinedSQL) one(ctx context.Context, q *query) (err error) {
	args := make([]any, len(q.args))
	for i, arg := range q.args {
		args[i] = literal(arg)
	}
	if q.scan == nil {
		_, err := l.tx.ExecContext(ctx, l.schema.in(q.text), args...)
		return err
	}
	found, err := l.tx.QueryContext(ctx, l.schema.in(q.text), args...)
	if err != nil {
		return err
	}
	defer func() {
		if closed := found.Close(); err == nil {
			err = closed
		}
	}()
	if err := q.scan(found); err != nil {
		return err
	}
	return found.Err()
}

// literal writes an array in PostgreSQL's text form, which every driver can send, and returns any
// other argument as it is.
func literal(arg any) any {
	var items []string
	switch list := arg.(type) {
	case []int16:
		for _, n := range list {
			items = append(items, strconv.FormatInt(int64(n), 10))
		}
	case []int32:
		for _, n := range list {
			items = append(items, strconv.FormatInt(int64(n), 10))
		}
	case []int64:
		for _, n := range list {
			items = append(items, strconv.FormatInt(n, 10))
		}
	case []bool:
		for _, is := range list {
			items = append(items, strconv.FormatBool(is))
		}
	case []string:
		for _, text := range list {
			items = append(items, quoted(text))
		}
	case blobs:
		return literal([][]byte(list))
	case [][]byte:
		for _, b := range list {
			if b == nil {
				items = append(items, "NULL")
				continue
			}
			items = append(items, quoted(`\x`+hex.EncodeToString(b)))
		}
	default:
		return arg
	}
	return "{" + strings.Join(items, ",") + "}"
}

// quoted writes a text as an element of an array.
func quoted(text string) string {
	return fmt.Sprintf(`"%s"`, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text))
}
