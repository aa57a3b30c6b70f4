package postgres_test

import (
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestAnyStepFindsAJump has the clock an hour past the mark when a task is due. Whichever step comes
// first begins a wait: the claim after it leaves the task alone.
func TestAnyStepFindsAJump(t *testing.T) {
	call := func(s *shop) storage.Call {
		d, err := s.store.Describe(s.Context())
		s.must(err)
		return storage.Call{Lane: storage.Lane{ID: storage.NewToken(), Opened: d.Now}, Seq: 1}
	}
	apply := func(txs ...storage.Tx) func(*shop) {
		return func(s *shop) {
			_, err := s.store.Apply(s.Context(), call(s), txs...)
			s.must(err)
		}
	}
	other := func(edit func(*storage.Insert)) storage.Tx {
		in := insertOf(storage.NewID())
		in.Ref.Queue = "other"
		edit(&in)
		return storage.Tx{Inserts: []storage.Insert{in}}
	}
	var many []storage.Tx
	for range 200 {
		many = append(many, other(func(*storage.Insert) {}))
	}
	for name, first := range map[string]func(*shop){
		"a claim":         func(*shop) {},
		"an insert":       apply(other(func(*storage.Insert) {})),
		"a scheduled one": apply(other(func(in *storage.Insert) { in.Delay = time.Hour })),
		"many inserts":    apply(many...),
		"a unique one":    apply(other(func(in *storage.Insert) { in.Unique = storage.Unique{Key: "k", Mode: "life"} })),
		"a sweep":         func(s *shop) { s.store.Look(s.Context()) },
		"a heartbeat":     func(s *shop) { s.beat() },
		"a setting": func(s *shop) {
			s.must(s.store.Configure(s.Context(), call(s), "other", storage.Settings{Pause: &storage.Pause{}}))
		},
		"a claim elsewhere": func(s *shop) {
			req := claimOf(1)
			req.Queues[0].Name = "other"
			s.claimed(req)
		},
		"a transaction of the application's": func(s *shop) {
			tx, err := s.conn.Begin(s.Context())
			s.must(err)
			s.apply(s.store.Within(tx), other(func(*storage.Insert) {}))
			s.must(tx.Commit(s.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			in := insertOf("due")
			in.Delay = time.Millisecond
			s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
			s.awaitAllDue()
			s.damage("SELECT setval('%[1]s.mark', " + clockNow + " - 3600000000)")
			first(s)
			claimed := s.claim(1)
			s.want("claimed, more", [2]any{len(claimed.Tasks), claimed.More}, [2]any{0, false})
			if wait := claimed.NextDue.Sub(claimed.Now); wait <= 0 || wait > storage.JumpWait {
				t.Errorf("NextDue is %v later, want the end of the wait", wait)
			}
			s.damage("SELECT setval('%[1]s.jumped', "+clockNow+" - $1)", storage.JumpWait.Microseconds())
			s.want("claimed after the wait", len(s.claim(1).Tasks), 1)
		})
	}
}

// TestAStepThatWasHeldUpIsNoClockSetBack: a step whose process stood still read the clock before
// others moved the mark on by minutes. That shows nothing about the clock.
func TestAStepThatWasHeldUpIsNoClockSetBack(t *testing.T) {
	s := newShop(t)
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
	var come string
	s.must(s.conn.QueryRow(s.Context(), "SELECT p.oid::regproc::text FROM pg_proc p "+
		"WHERE pronamespace = $1::regnamespace AND proname ~ '^come_[0-9]+$'", s.cfg.Schema).Scan(&come))
	s.damage("SELECT " + come + "(" + clockNow + " - 540000000) FROM %[1]s.queues")
	var clock int64
	s.must(s.conn.QueryRow(s.Context(), "SELECT coalesce(pg_sequence_last_value('"+s.cfg.Schema+".clock'::regclass), 1)").Scan(&clock))
	s.want("the clock kept beside the mark", clock, int64(1))
}

func (s *shop) beat() {
	s.Helper()
	_, err := s.session.Extend(s.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{ID: "r", For: time.Hour}})
	s.must(err)
}
