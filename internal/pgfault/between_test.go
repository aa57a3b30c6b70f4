package pgfault

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestMaintenanceHeldUp stops a step of maintenance after it has found tasks and before it
// locks them. Meanwhile another call ends the tasks or delays them. The step must then
// change none of them.
func TestMaintenanceHeldUp(t *testing.T) {
	testserver.RequirePostgres(t)
	kept := storage.Keep{For: time.Hour}
	later := storage.Insert{Keep: kept, Delay: time.Hour}
	for _, c := range []struct {
		step    string
		in      storage.Insert
		before  func(*gap) // brings the tasks into the state in which the step finds them
		between func(*gap) // the call that comes between
		want    storage.State
	}{
		{"promotion, a cancel", later, (*gap).nothing, (*gap).cancel, storage.Cancelled},
		{"promotion, put off", later, (*gap).nothing, (*gap).putOff, storage.Scheduled},
		{"recovery, a completion", storage.Insert{Keep: kept}, (*gap).claim, (*gap).complete, storage.Completed},
		{"recovery, a burial", storage.Insert{}, (*gap).claim, (*gap).bury, storage.Dead},
		{"recovery, an extension", storage.Insert{}, (*gap).claim, (*gap).extend, storage.Pending},
		{"retention, a requeue", storage.Insert{Keep: kept}, (*gap).end, (*gap).requeue, storage.Waiting},
	} {
		t.Run(c.step, func(t *testing.T) {
			testserver.Parallel(t)
			const rounds, tasks = 100 / share, 10
			g := newGap(t)
			for round := range rounds {
				g.insert(round, tasks, c.in)
				c.before(g)
				g.expire("tasks", "sort")
				g.expire("ended", "expires")
				g.holdUp(func() { c.between(g) })
				for _, ref := range g.refs {
					task := must(g.by.Storage().Task(t.Context(), ref))(t)
					if task.State != c.want || task.Crashes > 0 {
						t.Fatalf("%s: got %s with %d crashes, want %s", ref, task.State, task.Crashes, c.want)
					}
				}
				if c.want == storage.Waiting {
					g.cancel() // so that the next round's claim does not find them
				}
			}
			t.Logf("%d tasks between the look and the lock: none was changed", rounds*tasks)
		})
	}
}

// TestASweepHeldUp is the same test for unique keys whose window is over: meanwhile another
// task takes the key.
func TestASweepHeldUp(t *testing.T) {
	testserver.RequirePostgres(t)
	testserver.Parallel(t)
	const rounds, keys = 100 / share, 10
	g := newGap(t)
	for round := range rounds {
		in := storage.Insert{Unique: storage.Unique{Key: "k", Mode: storage.UniqueWindow, For: time.Hour}}
		g.insert(round, keys, in)
		g.expire("keys", "until")
		g.holdUp(func() { g.insert(rounds+round, keys, in) })
		held := value[int](t, g.conn, "SELECT count(*) FROM "+g.schema+".keys WHERE id = ANY ($1)", g.ids)
		if held != keys {
			t.Fatalf("%d keys of %d are held by those who took them meanwhile", held, keys)
		}
		g.expire("keys", "until")
	}
	t.Logf("%d keys taken between the look and the lock: each was kept", rounds*keys)
}

// gap stops a storage between finding rows and locking them. The storage's user is subject
// to a row-level security policy that is evaluated for each row to be locked, and that waits
// at a gate. Another user, who is not subject to it, makes the calls that come between.
type gap struct {
	*testing.T

	schema string
	gate   int64
	conn   *pgx.Conn // shuts the gate
	late   *storage.Session
	by     *storage.Session
	refs   []storage.Ref // of this round
	ids    [][]byte
	fences []storage.Fence
}

func newGap(t *testing.T) *gap {
	t.Helper()
	cfg := fresh(t, postgres.Config{NoListener: true})
	g := &gap{T: t, schema: cfg.Schema, gate: schemas.Add(1), conn: connect(t, cfg.URL)}
	_, g.by = opened(t, cfg)
	user := cfg.Schema + "_late"
	_, err := g.conn.Exec(t.Context(), fmt.Sprintf(`
		CREATE ROLE %[2]s LOGIN;
		GRANT USAGE ON SCHEMA %[1]s TO %[2]s;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s TO %[2]s;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[2]s;
		GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA %[1]s TO %[2]s;
		CREATE FUNCTION %[1]s.pass() RETURNS bool LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM pg_advisory_lock_shared(%[3]d), pg_advisory_unlock_shared(%[3]d);
			RETURN true;
		END $$;`, g.schema, user, g.gate))
	succeed(t, err)
	for _, table := range []string{"tasks", "ended", "keys"} {
		_, err := g.conn.Exec(t.Context(), fmt.Sprintf(`
			ALTER TABLE %[1]s.%[2]s ENABLE ROW LEVEL SECURITY;
			CREATE POLICY seen ON %[1]s.%[2]s FOR SELECT USING (true);
			CREATE POLICY added ON %[1]s.%[2]s FOR INSERT WITH CHECK (true);
			CREATE POLICY deleted ON %[1]s.%[2]s FOR DELETE USING (true);
			CREATE POLICY locked ON %[1]s.%[2]s FOR UPDATE USING (%[1]s.pass()) WITH CHECK (true);`, g.schema, table))
		succeed(t, err)
	}
	cfg.URL += "&user=" + user
	_, g.late = opened(t, cfg)
	return g
}

// holdUp lets maintenance find its tasks and calls between before the maintenance continues.
func (g *gap) holdUp(between func()) {
	g.Helper()
	_, err := g.conn.Exec(g.Context(), "SELECT pg_advisory_lock($1)", g.gate)
	succeed(g, err)
	maintained := make(chan error, 1)
	go func() {
		_, err := g.late.Claim(g.Context(), claimOf(0))
		maintained <- err
	}()
	testserver.Await(g, "a step waits at the gate", func() bool {
		return value[bool](g, g.conn, `SELECT EXISTS (SELECT FROM pg_locks
			WHERE locktype = 'advisory' AND objid = $1::int8 AND NOT granted)`, g.gate)
	})
	between()
	_, err = g.conn.Exec(g.Context(), "SELECT pg_advisory_unlock($1)", g.gate)
	succeed(g, err)
	succeed(g, <-maintained)
}

// insert inserts the tasks of a round.
func (g *gap) insert(round, n int, like storage.Insert) {
	g.Helper()
	g.refs, g.ids = nil, nil
	txs := make([]storage.Tx, n)
	for i := range txs {
		in := insertOf("q", fmt.Sprintf("r%d-%d", round, i))
		in.Keep, in.Delay, in.Unique = like.Keep, like.Delay, like.Unique
		if in.Unique.Mode != "" {
			in.Unique.Key += fmt.Sprint(i)
		}
		txs[i].Inserts = []storage.Insert{in}
		g.refs, g.ids = append(g.refs, in.Ref), append(g.ids, []byte(in.Ref.ID))
	}
	g.apply(txs)
}

// apply applies Txs, none of which may be refused.
func (g *gap) apply(txs []storage.Tx) {
	g.Helper()
	for _, a := range must(g.by.Apply(g.Context(), txs...))(g) {
		succeed(g, a.Err)
	}
}

// expire sets the moment in a column of each of the tasks to a time that has passed.
func (g *gap) expire(table, column string) {
	g.Helper()
	_, err := g.conn.Exec(g.Context(), fmt.Sprintf(
		"UPDATE %[1]s.%[2]s SET %[3]s = "+clockNow+" - 1000 WHERE id = ANY ($1)", g.schema, table, column), g.ids)
	succeed(g, err)
}

func (g *gap) nothing() {}

func (g *gap) claim() {
	g.Helper()
	claimed := must(g.by.Claim(g.Context(), claimOf(len(g.refs))))(g)
	if g.fences = claimed.Fences; len(g.fences) != len(g.refs) {
		g.Fatalf("claimed %d tasks, want %d", len(g.fences), len(g.refs))
	}
}

func (g *gap) complete() { g.apply(completions(g.fences)) }

func (g *gap) end() {
	g.claim()
	g.complete()
}

func (g *gap) bury() {
	txs := completions(g.fences)
	for i := range txs {
		txs[i].Settles[0].Outcome = storage.Bury
	}
	g.apply(txs)
}

func (g *gap) extend() {
	g.Helper()
	var req storage.ExtendRequest
	for _, f := range g.fences {
		req.Leases = append(req.Leases, storage.Extension{Fence: f, For: time.Hour, Started: true})
	}
	if x := must(g.by.Extend(g.Context(), req))(g); len(x.Lost) > 0 {
		g.Fatalf("lost: %v", x.Lost)
	}
}

func (g *gap) cancel() {
	for _, ref := range g.refs {
		must(g.by.ApplyOne(g.Context(), cancelOf(ref)))(g)
	}
}

// cancelOf returns a Tx that cancels a task.
func cancelOf(ref storage.Ref) storage.Tx {
	return storage.Tx{Changes: []storage.Change{{Ref: ref, Cancel: true}}}
}

func (g *gap) requeue() {
	for _, ref := range g.refs {
		succeed(g, g.by.Requeue(g.Context(), ref))
	}
}

func (g *gap) putOff() {
	for _, ref := range g.refs {
		succeed(g, g.by.ChangeTask(g.Context(), ref, func(storage.Task) (storage.Change, error) {
			return storage.Change{Delay: time.Hour}, nil
		}))
	}
}

// TestATaskBetweenTwoLooks requeues a dead task while another step searches for it, first in
// the table of live tasks and then in the table of ended ones. A gate in a copy of the
// function load stops that step between the two.
func TestATaskBetweenTwoLooks(t *testing.T) {
	const gate = 424242
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	store, session := opened(t, cfg)
	in := insertOf("q", "a")
	must(session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}))(t)
	fence := must(session.Claim(t.Context(), claimOf(1)))(t).Fences[0]
	must(session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{{Fence: fence, Outcome: storage.Bury}}}))(t)
	conn := connect(t, cfg.URL)
	text := value[string](t, conn, "SELECT pg_get_functiondef(p.oid) FROM pg_proc p "+
		"JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1 AND p.proname ~ '^load_[0-9]+$'", cfg.Schema)
	at := strings.LastIndex(text[:strings.LastIndex(text, "RETURN QUERY")], "RETURN QUERY")
	text = text[:at] + fmt.Sprintf("PERFORM pg_advisory_lock_shared(%d), pg_advisory_unlock_shared(%d);\n", gate, gate) + text[at:]
	must(conn.Exec(t.Context(), strings.Replace(text, "lock_timeout TO '2s'", "lock_timeout TO '20s'", 1)))(t)
	must(conn.Exec(t.Context(), "SELECT pg_advisory_lock($1)", gate))(t)
	tx := must(connect(t, cfg.URL).Begin(t.Context()))(t)
	requeue := storage.Change{Ref: in.Ref, Version: must(store.Task(t.Context(), in.Ref))(t).Version, Requeue: true}
	applied := must(store.Within(tx).Apply(t.Context(), storage.Call{}, storage.Tx{Changes: []storage.Change{requeue}}))(t)
	succeed(t, applied[0].Err)
	cancelled := make(chan error, 1)
	go func() { // ends with the test
		_, err := session.ApplyOne(t.Context(), cancelOf(in.Ref))
		cancelled <- err
	}()
	testserver.Await(t, "a step waits at the gate", func() bool {
		return value[bool](t, conn, `SELECT EXISTS (
			SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = $1::int8 AND NOT granted)`, gate)
	})
	succeed(t, tx.Commit(t.Context()))
	must(conn.Exec(t.Context(), "SELECT pg_advisory_unlock($1)", gate))(t)
	if err := <-cancelled; err != nil {
		t.Errorf("cancel of a task that waits: %v", err)
	}
}
