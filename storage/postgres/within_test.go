package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// shop is an application with a table of its own beside the storage.
type shop struct {
	*testing.T

	cfg     postgres.Config
	store   *postgres.Storage
	session *storage.Session
	conn    *pgx.Conn
	driver  *plainDriver
	db      *sql.DB
}

func newShop(t *testing.T) *shop {
	t.Helper()
	testserver.RequirePostgres(t)
	s := &shop{T: t, cfg: reused(t, storage.Limits{})}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, err := statements.Exec(ctx, "DROP TABLE IF EXISTS "+s.cfg.Schema+".orders")
		s.must(err)
	})
	s.store, s.session = opened(t, s.cfg)
	conn, err := pgx.Connect(t.Context(), s.cfg.URL)
	s.must(err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	s.conn = conn
	s.driver = newPlainDriver(conn.Config())
	s.db = sql.OpenDB(s.driver)
	t.Cleanup(func() { _ = s.db.Close() })
	_, err = conn.Exec(t.Context(), "CREATE TABLE "+s.cfg.Schema+".orders (id text)")
	s.must(err)
	return s
}

// opened opens a storage, which the test closes.
func opened(t *testing.T, cfg postgres.Config) (*postgres.Storage, *storage.Session) {
	t.Helper()
	store, err := postgres.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store, storage.NewSession(store, testserver.Patience)
}

func (s *shop) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// both runs a test with pgx and with database/sql: do joins a transaction, calls action, and commits or
// rolls back.
func both(t *testing.T, test func(s *shop, do func(commit bool, action func(storage.Applier)))) {
	t.Run("pgx", func(t *testing.T) {
		s := newShop(t)
		test(s, func(commit bool, action func(storage.Applier)) {
			tx, err := s.conn.Begin(s.Context())
			s.must(err)
			action(s.store.Within(tx))
			_, err = tx.Exec(s.Context(), "INSERT INTO "+s.cfg.Schema+".orders VALUES ('still usable')")
			s.must(err)
			if commit {
				s.must(tx.Commit(s.Context()))
			} else {
				s.must(tx.Rollback(s.Context()))
			}
		})
	})
	t.Run("database sql", func(t *testing.T) {
		s := newShop(t)
		test(s, func(commit bool, action func(storage.Applier)) {
			tx, err := s.db.BeginTx(s.Context(), nil)
			s.must(err)
			action(s.store.WithinSQL(tx))
			_, err = tx.ExecContext(s.Context(), "INSERT INTO "+s.cfg.Schema+".orders VALUES ('still usable')")
			s.must(err)
			if commit {
				s.must(tx.Commit())
			} else {
				s.must(tx.Rollback())
			}
		})
	})
}

func (s *shop) apply(to storage.Applier, tx storage.Tx) storage.Applied {
	s.Helper()
	applied, err := to.Apply(s.Context(), storage.Call{}, tx)
	s.must(err)
	return applied[0]
}

// cancelOf is a Tx that cancels a task.
func cancelOf(ref storage.Ref) storage.Tx {
	return storage.Tx{Changes: []storage.Change{{Ref: ref, Cancel: true}}}
}

// state returns the state of a task, "" if there is none.
func (s *shop) state(id string) storage.State {
	s.Helper()
	t, err := s.store.Task(s.Context(), storage.Ref{Queue: "q", ID: id})
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		s.Fatal(err)
	}
	return t.State
}

func (s *shop) want(what string, got, want any) {
	s.Helper()
	if got != want {
		s.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func (s *shop) claim(n int) storage.Claimed {
	s.Helper()
	return s.claimed(claimOf(n))
}

func (s *shop) claimed(req storage.ClaimRequest) storage.Claimed {
	s.Helper()
	claimed, err := s.session.Claim(s.Context(), req)
	s.must(err)
	return claimed
}

func (s *shop) stats() storage.Stats {
	s.Helper()
	stats, err := s.store.Stats(s.Context(), "q")
	s.must(err)
	return stats[0]
}

// TestLocationTellsSchemasApart, and is the same for all storages of one schema.
func TestLocationTellsSchemasApart(t *testing.T) {
	s := newShop(t)
	same, _ := opened(t, s.cfg)
	other, _ := opened(t, fresh(t, postgres.Config{}))
	s.want("of the same schema", storage.CheckLocation(s.store, same.WithinSQL(nil)), nil)
	var invalid *storage.InvalidError
	if err := storage.CheckLocation(s.store, other.WithinSQL(nil)); !errors.As(err, &invalid) {
		t.Errorf("of another schema: got %v, want an *InvalidError", err)
	}
	if got, want := s.store.Location(), "postgres database postgres, schema "+s.cfg.Schema+", server "; !strings.HasPrefix(got, want) {
		t.Errorf("location: got %s, want %s and its number", got, want)
	}
}

// TestLocationTellsServersApart whose databases and schemas have the same names. If a role may not
// read the server's identifier, a storage opens all the same.
func TestLocationTellsServersApart(t *testing.T) {
	testserver.RequirePostgres(t)
	var stores [2]*postgres.Storage
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	cfg := postgres.Config{URL: server.URL(), Schema: "midge"}
	for i, at := range []postgres.Config{cfg, {URL: testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true, Own: true}).URL(), Schema: "midge"}} {
		if err := postgres.Migrate(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		stores[i], _ = opened(t, at)
	}
	var invalid *storage.InvalidError
	if err := storage.CheckLocation(stores[0], stores[1].WithinSQL(nil)); !errors.As(err, &invalid) {
		t.Errorf("of another server: got %v, want an *InvalidError", err)
	}
	for _, statement := range []string{
		"REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
		"CREATE ROLE plain LOGIN", "GRANT ALL ON SCHEMA midge TO plain", "GRANT ALL ON ALL TABLES IN SCHEMA midge TO plain",
		"GRANT ALL ON ALL SEQUENCES IN SCHEMA midge TO plain",
	} {
		if err := server.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	cfg.URL = strings.Replace(cfg.URL, "user=midge", "user=plain", 1)
	store, _ := opened(t, cfg)
	if got, want := store.Location(), "postgres database postgres, schema midge"; got != want {
		t.Errorf("location for a plain role: got %s, want %s", got, want)
	}
}

func TestWithinIsInvisibleUntilCommit(t *testing.T) {
	both(t, func(s *shop, do func(bool, func(storage.Applier))) {
		unique := insertOf("b")
		unique.Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife}
		for _, commit := range []bool{false, true} {
			do(commit, func(to storage.Applier) {
				a := s.apply(to, storage.Tx{Inserts: []storage.Insert{insertOf("a"), unique}})
				s.want("refused", a.Err, nil)
				s.want("before the commit", s.state("a"), storage.State(""))
				s.want("claimed before the commit", len(s.claim(5).Tasks), 0)
			})
		}
		s.want("after the commit", s.state("a"), storage.Waiting)
		s.want("enqueued", s.stats().Totals.Enqueued, int64(2))
		s.want("claimed", len(s.claim(5).Tasks), 2)
	})
}

func TestWithinCollisionLeavesTheTransactionUsable(t *testing.T) {
	both(t, func(s *shop, do func(bool, func(storage.Applier))) {
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
		other := insertOf("a")
		other.Kind = "other"
		do(true, func(to storage.Applier) {
			var dep *storage.DependencyError
			a := s.apply(to, storage.Tx{Inserts: []storage.Insert{other, insertOf("b")}})
			s.want("refused", errors.As(a.Err, &dep), true)
			s.apply(to, storage.Tx{Inserts: []storage.Insert{insertOf("c")}})
		})
		s.want("beside the collision", s.state("b"), storage.State(""))
		s.want("after it", s.state("c"), storage.Waiting)
	})
}

// TestWithinSettle settles in the application's transaction: until the transaction ends, its lock is
// the lease.
func TestWithinSettle(t *testing.T) {
	both(t, func(s *shop, do func(bool, func(storage.Applier))) {
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
		req := claimOf(1)
		req.Lease = storage.MinLease
		claimed, err := s.session.Claim(s.Context(), req)
		s.must(err)
		fence := claimed.Fences[0]
		settle := storage.Tx{
			Settles: []storage.Settle{{Fence: fence, Outcome: storage.Complete}},
			Inserts: []storage.Insert{insertOf("next")},
		}
		extend := func() storage.Extended {
			x, err := s.session.Extend(s.Context(), storage.ExtendRequest{Leases: []storage.Extension{
				{Fence: fence, For: time.Minute},
			}})
			s.must(err)
			return x
		}
		for _, commit := range []bool{false, true} {
			do(commit, func(to storage.Applier) {
				s.want("refused", s.apply(to, settle).Err, nil)
				x := extend()
				s.want("lost, locked, cancels", fmt.Sprint(x.Lost, x.Locked, x.CancelAsked), fmt.Sprintf("[] [%v] []", fence.Ref))
				_, err := s.session.ApplyOne(s.Context(), cancelOf(fence.Ref))
				refused, _ := errors.AsType[*storage.DependencyError](err)
				s.want("a cancel meanwhile", fmt.Sprint(refused), fmt.Sprint(&storage.DependencyError{
					Barred: []storage.Barred{{Ref: fence.Ref, State: storage.Pending}},
				}))
				testserver.Await(s.T, "the lease has expired", func() bool {
					d, err := s.store.Describe(s.Context())
					s.must(err)
					return d.Now.After(claimed.Tasks[0].LeaseUntil)
				})
				s.claim(0)
				s.want("a recovery meanwhile", s.state("a"), storage.Pending)
			})
			if !commit {
				s.want("after the rollback", len(extend().Lost), 0)
			}
		}
		s.want("after the commit", s.state("a"), storage.State(""))
		s.want("follow-up", s.state("next"), storage.Waiting)
		s.want("lost after the commit", len(extend().Lost), 1)
		st := s.stats()
		s.want("completed, crashed", [2]int64{st.Totals.Completed, st.Totals.Crashed}, [2]int64{1, 0})
	})
}

// TestWithinAnEnqueueHoldsUpNothing enqueues an existing task, by its id and by its unique key, and a
// new one. Until the transaction ends it changes nothing for others.
func TestWithinAnEnqueueHoldsUpNothing(t *testing.T) {
	both(t, func(s *shop, do func(bool, func(storage.Applier))) {
		unique := func(id string) storage.Insert {
			in := insertOf(id)
			in.Unique, in.OnConflict = storage.Unique{Key: "k", Mode: storage.UniqueLife}, storage.Skip
			return in
		}
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("a"), unique("b")}})
		fences := s.claim(2).Fences
		do(true, func(to storage.Applier) {
			a := s.apply(to, storage.Tx{Inserts: []storage.Insert{insertOf("a"), unique("c"), insertOf("d")}})
			s.want("refused", a.Err, nil)
			s.want("existing", [2]bool{a.Inserted[0].Existing, a.Inserted[1].Existing}, [2]bool{true, true})
			x, err := s.session.Extend(s.Context(), storage.ExtendRequest{Leases: []storage.Extension{
				{Fence: fences[0], For: time.Minute}, {Fence: fences[1], For: time.Minute},
			}})
			s.must(err)
			s.want("locked", len(x.Locked), 0)
			for _, f := range fences {
				ended := s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}})
				s.want("refused", ended.Err, nil)
			}
		})
		s.want("of these there are", s.state("a")+s.state("b")+s.state("c"), storage.State(""))
		s.want("the new one", s.state("d"), storage.Waiting)
	})
}

func TestWithinTheWholeTx(t *testing.T) {
	both(t, func(s *shop, do func(bool, func(storage.Applier))) {
		kept := insertOf("kept")
		kept.Keep.For = time.Hour
		a := s.apply(s.store, storage.Tx{Inserts: []storage.Insert{kept, insertOf("moved"), insertOf("deleted")}})
		claimed := s.claim(1)
		do(true, func(to storage.Applier) {
			s.apply(to, storage.Tx{
				Settles: []storage.Settle{{
					Fence: claimed.Fences[0], Outcome: storage.Bury, Reason: "why", Error: "no \x00 \xff", Stack: "at",
				}},
				Changes: []storage.Change{{Ref: a.Inserted[1].Ref, Version: a.Inserted[1].Version, Queue: "other"}},
				Deletes: []storage.Delete{{Ref: a.Inserted[2].Ref, Version: a.Inserted[2].Version}},
				Inserts: []storage.Insert{insertOf("new")},
			})
		})
		s.want("settled", s.state("kept"), storage.Dead)
		s.want("deleted", s.state("deleted"), storage.State(""))
		s.want("moved", s.state("moved"), storage.State(""))
		moved, err := s.store.Task(s.Context(), storage.Ref{Queue: "other", ID: "moved"})
		s.must(err)
		s.want("moved", moved.State, storage.Waiting)
		do(false, func(to storage.Applier) {
			ch := storage.Change{Ref: moved.Ref, Version: moved.Version, Cancel: true}
			s.want("refused", s.apply(to, storage.Tx{Changes: []storage.Change{ch}}).Err, nil)
		})
		again, err := s.store.Task(s.Context(), moved.Ref)
		s.must(err)
		s.want("after the rollback", again.Version, moved.Version)
	})
}

// TestWithinWakes expects the wake-up to go with the commit.
func TestWithinWakes(t *testing.T) {
	both(t, func(s *shop, do func(bool, func(storage.Applier))) {
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("first")}})
		s.claim(1)
		testserver.Await(s.T, "the listener listens", func() bool {
			ctx, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
			defer cancel()
			return s.store.Wait(ctx, storage.WaitRequest{Queues: []string{"q"}}) == nil
		})
		var since storage.Since
		testserver.Await(s.T, "what came before is heard", func() bool {
			since = s.claim(0).Since
			ctx, cancel := context.WithTimeout(s.Context(), 300*time.Millisecond)
			defer cancel()
			return s.store.Wait(ctx, storage.WaitRequest{Queues: []string{"q"}, Since: since}) != nil
		})
		woken := make(chan error, 1)
		do(true, func(to storage.Applier) {
			go func() { woken <- s.store.Wait(s.Context(), storage.WaitRequest{Queues: []string{"q"}, Since: since}) }()
			s.apply(to, storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
			select {
			case err := <-woken:
				s.Fatalf("woken before the commit: %v", err)
			default:
			}
		})
		s.must(<-woken)
		s.want("claimed", len(s.claim(1).Tasks), 1)
	})
}

func TestWithinRefusesAnIdentity(t *testing.T) {
	s := newShop(t)
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	defer func() { s.must(tx.Rollback(t.Context())) }()
	var invalid *storage.InvalidError
	_, err = s.store.Within(tx).Apply(t.Context(), storage.Call{Seq: 1}, insertTx())
	s.want("an *InvalidError", errors.As(err, &invalid), true)
}

func TestWithinRefusesNoTransaction(t *testing.T) {
	s := newShop(t)
	for _, joined := range []storage.Joined{s.store.Within(nil), s.store.WithinSQL(nil)} {
		_, err := joined.Apply(t.Context(), storage.Call{}, insertTx())
		var invalid *storage.InvalidError
		s.want("an *InvalidError", errors.As(err, &invalid), true)
	}
}

// TestWithinAnOldSnapshotTakesNoIDTwice has a transaction of the application's, whose snapshot is
// older than a task, enqueue under that task's id. The transaction fails to serialize, whether the
// task has ended by now or not. Otherwise the id would be in two tables, and its settle would fail
// for ever.
func TestWithinAnOldSnapshotTakesNoIDTwice(t *testing.T) {
	for _, end := range []bool{true, false} {
		s := newShop(t)
		tx, err := s.conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		s.must(err)
		s.apply(s.store.Within(tx), storage.Tx{Inserts: []storage.Insert{insertOf("other")}}) // takes a snapshot
		kept := insertOf("x")
		kept.Keep.For = time.Hour
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{kept}})
		if end {
			for _, f := range s.claim(10).Fences {
				s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}})
			}
		}
		_, err = s.store.Within(tx).Apply(t.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{kept}})
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "40001" {
			t.Errorf("ended %t: got %v, want a failure to serialize", end, err)
		}
		s.must(tx.Commit(t.Context()))
		s.want("the other", s.state("other"), storage.Waiting)
	}
}

// TestWithinARepeatableRead carries out everything that an old snapshot does not forbid.
func TestWithinARepeatableRead(t *testing.T) {
	s := newShop(t)
	kept := insertOf("kept")
	kept.Keep.For = time.Hour
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{kept}})
	f := s.claim(1).Fences[0]
	ended := s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Bury}}}).Settled[0]
	tx, err := s.conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable})
	s.must(err)
	to := s.store.Within(tx)
	a := s.apply(to, storage.Tx{Inserts: []storage.Insert{insertOf("new"), kept}})
	s.want("existing", [2]bool{a.Inserted[0].Existing, a.Inserted[1].Existing}, [2]bool{false, true})
	a = s.apply(to, storage.Tx{Changes: []storage.Change{{Ref: f.Ref, Version: ended.Version, Requeue: true}}})
	s.want("refused", a.Err, nil)
	s.must(tx.Commit(t.Context()))
	s.want("the new one", s.state("new"), storage.Waiting)
	s.want("the one that was dead", s.state("kept"), storage.Waiting)
	s.want("rows", len(s.claim(5).Tasks), 2)
}

// cutter ends a context as soon as a statement or a round trip has been answered.
type cutter struct {
	after  string // the text that the statement contains
	cancel context.CancelFunc
}

type cutKey struct{}

func (c *cutter) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData,
) context.Context {
	return context.WithValue(ctx, cutKey{}, d.SQL)
}

func (c *cutter) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	c.cut(fmt.Sprint(ctx.Value(cutKey{})))
}

func (c *cutter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *cutter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	c.cut(d.SQL)
}

func (c *cutter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (c *cutter) cut(text string) {
	if c.cancel != nil && strings.Contains(text, c.after) {
		c.cancel()
	}
}

// TestWithinACutIsUndone ends the context of an Apply between two round trips. The changes of the
// Apply are rolled back, and its locks are gone, so that the application may go on and commit.
func TestWithinACutIsUndone(t *testing.T) {
	order := func(s *shop) string { return "INSERT INTO " + s.cfg.Schema + ".orders VALUES ('gone on')" }
	t.Run("pgx", func(t *testing.T) {
		s, cfg, cut := cuttable(t, ".load_")
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		s.must(err)
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		tx, err := conn.Begin(t.Context())
		s.must(err)
		s.cutOff(cut, s.store.Within(tx), func() error {
			_, err := tx.Exec(t.Context(), order(s))
			return errors.Join(err, tx.Commit(t.Context()))
		})
	})
	t.Run("database sql", func(t *testing.T) {
		s, cfg, cut := cuttable(t, ".drop_")
		db := stdlib.OpenDB(*cfg)
		defer func() { _ = db.Close() }()
		tx, err := db.BeginTx(t.Context(), nil)
		s.must(err)
		s.cutOff(cut, s.store.WithinSQL(tx), func() error {
			_, err := tx.ExecContext(t.Context(), order(s))
			return errors.Join(err, tx.Commit())
		})
	})
}

// cuttable returns a shop, and a configuration that connects to it with a cutter.
func cuttable(t *testing.T, after string) (*shop, *pgx.ConnConfig, *cutter) {
	s := newShop(t)
	cfg, err := pgx.ParseConfig(shared.URL())
	s.must(err)
	cut := &cutter{after: after}
	cfg.Tracer = cut
	return s, cfg, cut
}

// cutOff settles a task in a transaction, under a context that is cut off.
func (s *shop) cutOff(cut *cutter, to storage.Applier, goOnAndCommit func() error) {
	kept := insertOf("a")
	kept.Keep.For = time.Hour
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{kept}})
	fence := s.claim(1).Fences[0]
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	cut.cancel = cancel
	_, err := to.Apply(ctx, storage.Call{}, storage.Tx{
		Settles: []storage.Settle{{Fence: fence, Outcome: storage.Complete}},
		Inserts: []storage.Insert{insertOf("next")},
	})
	cut.cancel = nil
	s.want("the context's error", errors.Is(err, context.Canceled), true)
	x, err := s.session.Extend(s.Context(), storage.ExtendRequest{
		Leases: []storage.Extension{{Fence: fence, For: time.Minute}},
	})
	s.must(err)
	s.want("locked", len(x.Locked), 0)
	s.must(goOnAndCommit())
	s.want("the task that was to be completed", s.state("a"), storage.Pending)
	s.want("its follow-up", s.state("next"), storage.State(""))
}

// TestAServerThatDoesNotTellItsNumberServes: hosted servers refuse functions in ways of their own.
func TestAServerThatDoesNotTellItsNumberServes(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	cfg := postgres.Config{URL: server.URL(), Schema: "midge"}
	if err := postgres.Migrate(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"CREATE SCHEMA shadow", "ALTER ROLE midge SET search_path = shadow, pg_catalog"} {
		if err := server.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, code := range []string{"0A000", "55000", "XX000", "42501"} {
		err := server.Exec(t.Context(), "CREATE OR REPLACE FUNCTION shadow.pg_control_system() RETURNS TABLE (system_identifier int8) "+
			"LANGUAGE plpgsql AS $$ BEGIN RAISE 'currently not supported' USING ERRCODE = '"+code+"'; END $$")
		if err != nil {
			t.Fatal(err)
		}
		store, err := postgres.Open(t.Context(), cfg)
		if err != nil {
			t.Errorf("%s: %v", code, err)
			continue
		}
		if got, want := store.Location(), "postgres database postgres, schema midge"; got != want {
			t.Errorf("%s: location %s, want %s", code, got, want)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}
