package pgfault

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestStepsDoNotDeadlock lets callers of two processes make bulk calls of all kinds on the
// same few tasks, in any order. No call may fail, the server may find no deadlock, and the
// sizes must agree with the tasks.
func TestStepsDoNotDeadlock(t *testing.T) {
	testserver.RequirePostgres(t)
	const calls = 10_000 / share
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	cfg := fresh(t, postgres.Config{URL: server.URL()})
	store, one := opened(t, cfg)
	_, two := opened(t, cfg)
	scramble(t, calls, func(err error) bool { return err != nil }, one, two)
	if n := strings.Count(server.Log(), "deadlock detected"); n > 0 {
		t.Errorf("the server found %d deadlocks:\n%s", n, server.Log())
	}
	balanced(t, store)
	t.Logf("%d calls in bulk on the same tasks: none failed, no deadlock", calls)
}

// TestStepsOutliveRefusals makes statements fail with serialization failures and deadlocks.
// No call may return such an error.
func TestStepsOutliveRefusals(t *testing.T) {
	testserver.RequirePostgres(t)
	const refusals, every = 500 / share, 43
	cfg := fresh(t, postgres.Config{})
	store, _ := opened(t, cfg)
	other, _ := opened(t, cfg)
	// These sessions repeat nothing, so every error that the storage itself does not retry
	// surfaces.
	one, two := storage.NewSession(store, -1), storage.NewSession(other, -1)
	conn := connect(t, cfg.URL)
	_, err := conn.Exec(t.Context(), refusing(cfg.Schema, every))
	succeed(t, err)
	so := func() int64 {
		return value[int64](t, conn, fmt.Sprintf("SELECT last_value / %d FROM %s.statements", every, cfg.Schema))
	}
	for so() < refusals {
		scramble(t, 100, refused, one, two)
		if t.Failed() {
			return
		}
	}
	n := so()
	_, err = conn.Exec(t.Context(), "DROP FUNCTION "+cfg.Schema+".refuse CASCADE")
	succeed(t, err)
	balanced(t, store)
	t.Logf("%d statements refused with 40001 or 40P01: no call failed", n)
}

// refusing returns SQL that makes every n-th writing statement fail, on any table. A
// sequence counts the statements, because a rollback does not reset it.
func refusing(schema string, every int) string {
	sql := fmt.Sprintf(`CREATE SEQUENCE %[1]s.statements;
		CREATE FUNCTION %[1]s.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE n int8 := nextval('%[1]s.statements');
		BEGIN
			IF n %% %[2]d = 0 AND n / %[2]d %% 2 = 0 THEN RAISE SQLSTATE '40001'; END IF;
			IF n %% %[2]d = 0 THEN RAISE SQLSTATE '40P01'; END IF;
			RETURN NULL;
		END $$;`, schema, every)
	for _, table := range []string{"queues", "limits", "tasks", "ended", "sides", "keys", "lanes", "deltas", "runners"} {
		sql += fmt.Sprintf(`CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON %[1]s.%[2]s
			FOR EACH STATEMENT EXECUTE FUNCTION %[1]s.refuse();`, schema, table)
	}
	return sql
}

// refused reports whether an error comes from a statement that was made to fail. The error
// of a task that is locked for long is another one.
func refused(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg)
}

// scramble makes calls of all kinds from several goroutines. wrong reports which errors
// must not surface.
func scramble(t *testing.T, calls int64, wrong func(error) bool, sessions ...*storage.Session) {
	t.Helper()
	var made atomic.Int64
	var all sync.WaitGroup
	for i := range 12 {
		m := &mixer{
			T: t, session: sessions[i%len(sessions)], wrong: wrong,
			rand: rand.New(rand.NewPCG(uint64(i), uint64(calls))),
		}
		all.Go(func() {
			for made.Add(1) <= calls && !t.Failed() {
				m.call()
			}
		})
	}
	all.Wait()
}

// mixer makes calls on the tasks t0 to t29 of two queues.
type mixer struct {
	*testing.T

	session *storage.Session
	wrong   func(error) bool
	rand    *rand.Rand
	fences  []storage.Fence
}

var mixed = []string{"q", "r"}

func (m *mixer) ref() storage.Ref {
	return storage.Ref{Queue: mixed[m.rand.IntN(2)], ID: fmt.Sprint("t", m.rand.IntN(30))}
}

func (m *mixer) call() {
	switch m.rand.IntN(9) {
	case 0:
		m.enqueue(storage.Unique{})
	case 1:
		m.enqueue(storage.Unique{Key: "k", Mode: storage.UniqueLife})
	case 2:
		m.change()
	case 3:
		m.look()
	case 4:
		m.settle(storage.Settle{Outcome: storage.Complete})
	case 5:
		m.settle(
			storage.Settle{Outcome: storage.Complete}, storage.Settle{Outcome: storage.Bury},
			storage.Settle{Outcome: storage.Fail, Error: "failed"}, storage.Settle{Outcome: storage.Release},
			storage.Settle{Outcome: storage.Cancel})
	case 6:
		m.extend()
	case 7:
		m.limit()
	default:
		m.claim()
	}
}

// limit sets the limit of a queue, or clears it.
func (m *mixer) limit() {
	set := storage.OperatorLimit{On: m.rand.IntN(3) > 0}
	if set.On {
		set.Limit = storage.Limit{
			Concurrency: 5 + m.rand.IntN(30), Rate: storage.Rate{N: 1000 + m.rand.IntN(1000), Per: time.Minute},
		}
	}
	err := m.session.Configure(m.Context(), mixed[m.rand.IntN(2)], storage.Settings{Limit: &set})
	m.saw("limit", err)
}

// saw fails the test for an error that must not surface.
func (m *mixer) saw(what string, err error) {
	m.Helper()
	if m.wrong(err) {
		m.Errorf("%s: %v", what, err)
	}
}

// apply makes a call. Each Tx may be refused, because other mixers change its task too.
func (m *mixer) apply(txs ...storage.Tx) {
	m.rand.Shuffle(len(txs), func(i, j int) { txs[i], txs[j] = txs[j], txs[i] })
	if len(txs) == 0 {
		return
	}
	_, err := m.session.Apply(m.Context(), txs...)
	m.saw("apply", err)
}

func (m *mixer) enqueue(unique storage.Unique) {
	txs := make([]storage.Tx, 8)
	for i := range txs {
		ref := m.ref()
		in := insertOf(ref.Queue, ref.ID)
		if unique.Mode != "" {
			in.Unique, in.OnConflict = unique, storage.Skip
			in.Unique.Key += fmt.Sprint(m.rand.IntN(6))
		}
		if i%3 == 0 {
			in.Keep.For = time.Hour
		}
		txs[i].Inserts = []storage.Insert{in}
	}
	m.apply(txs...)
}

// change cancels, requeues, moves and deletes tasks, each in a Tx of its own.
func (m *mixer) change() {
	var txs []storage.Tx
	for range 8 {
		task, err := m.session.Storage().Task(m.Context(), m.ref())
		if err != nil {
			continue // it is gone
		}
		change := storage.Change{Ref: task.Ref, Version: task.Version, Cancel: true}
		switch m.rand.IntN(4) {
		case 0:
			change.Cancel, change.Requeue, change.Now = false, task.State.Ended(), !task.State.Ended()
		case 1:
			change.Cancel, change.Queue = false, mixed[m.rand.IntN(2)]
		case 2:
			txs = append(txs, storage.Tx{Deletes: []storage.Delete{{Ref: task.Ref, Version: task.Version}}})
			continue
		default:
			change.Version = 0
		}
		txs = append(txs, storage.Tx{Changes: []storage.Change{change}})
	}
	m.apply(txs...)
}

func (m *mixer) claim() {
	claimed, err := m.session.Claim(m.Context(), claimOf(10, mixed...))
	m.saw("claim", err)
	m.fences = append(m.fences, claimed.Fences...)
}

func (m *mixer) settle(how ...storage.Settle) {
	txs := make([]storage.Tx, 0, len(m.fences))
	for i, f := range m.fences {
		settle := how[i%len(how)]
		settle.Fence = f
		txs = append(txs, storage.Tx{Settles: []storage.Settle{settle}})
	}
	m.fences = nil
	m.apply(txs...)
}

func (m *mixer) extend() {
	req := storage.ExtendRequest{Runner: storage.RunnerInfo{ID: "runner", For: time.Minute}}
	for _, f := range m.fences {
		req.Leases = append(req.Leases, storage.Extension{Fence: f, For: time.Minute, Started: true})
	}
	_, err := m.session.Extend(m.Context(), req)
	m.saw("extend", err)
}

// look reads sizes, and pauses or removes a queue that comes and goes.
func (m *mixer) look() {
	settings := storage.Settings{Pause: &storage.Pause{On: m.rand.IntN(2) == 0}}
	if m.rand.IntN(2) == 0 {
		settings = storage.Settings{Remove: true}
	}
	gone := insertOf("s", storage.NewID())
	applied, err := m.session.ApplyOne(m.Context(), storage.Tx{Inserts: []storage.Insert{gone}})
	if err == nil {
		_, err = m.session.ApplyOne(m.Context(), storage.Tx{
			Deletes: []storage.Delete{{Ref: gone.Ref, Version: applied.Inserted[0].Version}},
		})
	}
	m.saw("insert and delete", err)
	err = m.session.Configure(m.Context(), "s", settings)
	if !errors.Is(err, storage.ErrNotEmpty) {
		m.saw("configure", err)
	}
	_, err = m.session.Storage().Stats(m.Context(), mixed...)
	m.saw("stats", err)
}

// balanced compares the number of tasks in each state with the sizes that the storage
// returns.
func balanced(t *testing.T, store storage.Storage) {
	t.Helper()
	for _, s := range must(store.Stats(t.Context(), mixed...))(t) {
		for state, said := range map[storage.State]int64{
			storage.Waiting: s.Waiting, storage.Pending: s.Pending, storage.Retry: s.Retry,
			storage.Completed: s.Completed, storage.Cancelled: s.Cancelled, storage.Dead: s.Dead,
		} {
			page := must(store.Tasks(t.Context(), storage.TasksQuery{
				Queue: s.Queue, State: state, Limit: 200,
			}))(t)
			if int64(len(page.Tasks)) != said {
				t.Errorf("%s: %d tasks are %s, and the storage counts %d", s.Queue, len(page.Tasks), state, said)
			}
		}
	}
}
