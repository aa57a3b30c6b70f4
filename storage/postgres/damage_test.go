package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// damage runs a statement behind the storage's back.
func (s *shop) damage(sql string, args ...any) {
	s.Helper()
	tag, err := s.conn.Exec(s.Context(), fmt.Sprintf(sql, s.cfg.Schema), args...)
	s.must(err)
	if tag.RowsAffected() == 0 {
		s.Fatalf("%s damaged nothing", sql)
	}
}

// TestADamagedHeartbeatHidesNoOther damages a heartbeat, and takes the name from another.
func TestADamagedHeartbeatHidesNoOther(t *testing.T) {
	s := newShop(t)
	for _, id := range []string{"a", "b", "c"} {
		_, err := s.session.Extend(t.Context(), storage.ExtendRequest{
			Runner: storage.RunnerInfo{ID: id, For: time.Minute},
		})
		s.must(err)
	}
	s.damage("UPDATE %s.runners SET info = 'garbage' WHERE id = 'a'")
	s.damage("UPDATE %s.runners SET info = 'null' WHERE id = 'b'")
	alive, err := s.store.Runners(t.Context())
	s.must(err)
	s.want("runners", len(alive), 1)
	s.want("runner", alive[0].ID, "c")
}

// TestADamagedLaneSpoilsNoOther damages a lane whose call shares a flush with others.
func TestADamagedLaneSpoilsNoOther(t *testing.T) {
	lane := func(s *shop) storage.Call {
		now, err := s.store.Describe(t.Context())
		s.must(err)
		return storage.Call{Lane: storage.Lane{ID: storage.NewToken(), Opened: now.Now}, Seq: 1}
	}
	unique := func(id string) storage.Tx { // the lane remembers its outcome
		in := insertOf(id)
		in.Unique = storage.Unique{Key: id, Mode: storage.UniqueLife}
		return storage.Tx{Inserts: []storage.Insert{in}}
	}
	for _, set := range []string{
		"outcome = ''", "outcome = 'garbage'", "outcome = 'null'", "outcome = '[]'", "outcome = '[{}]'",
		"verb = 'z'", "seq = -1", "seq = 9223372036854775807", "opened = 9223372036854775807",
		"opened = -9223372036854775808", "base = -9223372036854775808",
	} {
		t.Run(set, func(t *testing.T) {
			s := newShop(t)
			bad, good := lane(s), lane(s)
			_, err := s.store.Apply(t.Context(), bad, unique("a"))
			s.must(err)
			s.damage("UPDATE %s.lanes SET "+set+" WHERE lane = $1", bad.Lane.ID[:])
			applied, err := s.store.Apply(t.Context(), bad, unique("a")) // a repeat
			if err == nil {
				s.want("outcome", len(applied[0].Inserted), 1)
			} else if !errors.Is(err, storage.ErrUnknown) {
				t.Errorf("got %v, want an unknown outcome", err)
			}
			bad.Seq++
			_, errs := s.store.Flush(t.Context(), []storage.Call{bad, good}, []storage.Tx{unique("b"), unique("c")})
			s.must(errs[1])
			s.want("another call", s.state("c"), storage.Waiting)
		})
	}
}

// TestADamagedNameIsNoQueue puts an invalid name between the names of queues.
func TestADamagedNameIsNoQueue(t *testing.T) {
	s := newShop(t)
	for _, queue := range []string{"a", "b", "c"} {
		in := insertOf("x")
		in.Ref.Queue = queue
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
	}
	s.damage("UPDATE %s.queues SET name = 'b '||chr(9) WHERE name = 'b'")
	var names []string
	for after, first := "", true; first || after != ""; first = false {
		page, err := s.store.Queues(t.Context(), storage.QueuesQuery{After: after, Limit: 1})
		s.must(err)
		names = append(names, page.Names...)
		after = page.Next
	}
	s.want("queues", fmt.Sprint(names), "[a c]")
}

// TestAListingGoesOnBehindDamagedIDs sets damaged ids of tasks, short and long.
func TestAListingGoesOnBehindDamagedIDs(t *testing.T) {
	s := newShop(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(id)}})
	}
	s.damage("UPDATE %s.tasks SET id = '\\x00ff' WHERE id = 'a'")
	s.damage("UPDATE %s.tasks SET id = convert_to(repeat('x', 1000), 'utf8') WHERE id = 'c'")
	var ids []string
	for after, first := "", true; first || after != ""; first = false {
		page, err := s.store.Tasks(t.Context(), storage.TasksQuery{
			Queue: "q", State: storage.Waiting, After: after, Limit: 1,
		})
		s.must(err)
		for _, task := range page.Tasks {
			ids = append(ids, task.ID)
		}
		after = page.Next
	}
	s.want("listed", fmt.Sprint(ids), "[b d]")
}

// TestTheNewestGoOnBehindDamagedIDs sets damaged ids of tasks, short and long.
func TestTheNewestGoOnBehindDamagedIDs(t *testing.T) {
	s := newShop(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(id)}})
		s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: s.claim(1).Fences[0], Outcome: storage.Bury}}})
	}
	s.damage("UPDATE %s.ended SET id = '\\x00ff' WHERE id = 'd'")
	s.damage("UPDATE %s.ended SET id = convert_to(repeat('x', 1000), 'utf8') WHERE id = 'b'")
	var ids []string
	query := storage.TasksQuery{Queue: "q", State: storage.Dead, Limit: 1, Newest: true}
	for first := true; first || query.After != ""; first = false {
		page, err := s.store.Tasks(t.Context(), query)
		s.must(err)
		for _, task := range page.Tasks {
			ids = append(ids, task.ID)
		}
		query.After = page.Next
	}
	s.want("listed", fmt.Sprint(ids), "[c a]")
}

// TestADamagedTaskIsAFinalError reads damaged tasks, waiting and ended, set apart and not.
func TestADamagedTaskIsAFinalError(t *testing.T) {
	s := newShop(t)
	in := insertOf("ended")
	in.Keep = storage.Keep{For: time.Hour}
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
	s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: s.claim(1).Fences[0], Outcome: storage.Complete}}})
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("waits")}})
	s.damage("UPDATE %s.ended SET record = 'garbage' WHERE id = 'ended'")
	s.damage("UPDATE %s.tasks SET record = 'garbage' WHERE id = 'waits'")
	final := func(id string) {
		t.Helper()
		_, err := s.store.Task(t.Context(), storage.Ref{Queue: "q", ID: id})
		if !errors.Is(err, storage.ErrDamaged) || errors.Is(err, storage.ErrUnknown) {
			t.Errorf("%s: got %v, want an ErrDamaged alone", id, err)
		}
	}
	final("ended")
	final("waits")
	s.want("claimed", len(s.claim(1).Tasks), 0)
	final("waits")
}

// TestAListingGoesOnBehindAnEmptyID lists in either order.
func TestAListingGoesOnBehindAnEmptyID(t *testing.T) {
	s := newShop(t)
	for _, id := range []string{"a", "b", "c"} {
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(id)}})
		s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: s.claim(1).Fences[0], Outcome: storage.Bury}}})
	}
	s.damage("UPDATE %s.ended SET id = '' WHERE id = 'b'")
	for newest, want := range map[bool]string{false: "[a c]", true: "[c a]"} {
		var ids []string
		query := storage.TasksQuery{Queue: "q", State: storage.Dead, Limit: 1, Newest: newest}
		for first := true; first || query.After != ""; first = false {
			page, err := s.store.Tasks(t.Context(), query)
			s.must(err)
			for _, task := range page.Tasks {
				ids = append(ids, task.ID)
			}
			query.After = page.Next
		}
		s.want("listed", fmt.Sprint(ids), want)
	}
}

// TestAKeyOfADamagedTaskIsFree has a task that is set apart and one whose row was deleted in a queue with thousands
// of keys, of which the step that sets apart reads few.
func TestAKeyOfADamagedTaskIsFree(t *testing.T) {
	s := newShop(t)
	unique := func(id, key string) storage.Insert {
		in := insertOf(id)
		in.Unique = storage.Unique{Key: key, Mode: storage.UniqueLife}
		return in
	}
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{unique("a", "k"), unique("b", "l")}})
	s.exec("INSERT INTO {schema}.keys SELECT queue, n::text, n::text::bytea, 0 " +
		"FROM {schema}.queues, generate_series(1, 5000) n")
	s.exec("VACUUM ANALYZE {schema}.keys")
	read := func() (n int) {
		s.exec("SELECT pg_stat_force_next_flush()")
		s.must(s.conn.QueryRow(t.Context(), "SELECT coalesce(seq_tup_read + idx_tup_fetch, 0) FROM pg_stat_all_tables "+
			"WHERE relid = '"+s.cfg.Schema+".keys'::regclass").Scan(&n))
		return n
	}
	before := read()
	s.exec("SELECT {schema}.apart(queue, 'a') FROM {schema}.queues")
	if n := read() - before; n > 100 {
		t.Errorf("%d keys were read, want few", n)
	}
	s.damage("DELETE FROM %s.tasks WHERE id = 'b'")
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{unique("c", "k"), unique("d", "l")}})
	for _, key := range []string{"k", "l"} {
		_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{unique("e", key)}})
		if _, collides := errors.AsType[*storage.DependencyError](err); !collides {
			t.Errorf("the key %s is taken twice: %v", key, err)
		}
	}
}
