package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestWakeUpsDoNotWaitForTheSweep has the sweep wait for a lock while another process has to be notified of
// an event.
func TestWakeUpsDoNotWaitForTheSweep(t *testing.T) {
	s := newShop(t)
	lock, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE "+s.cfg.Schema+".deltas IN ACCESS EXCLUSIVE MODE")
	s.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		s.store.Look(ctx)
	}()
	testserver.Await(t, "the sweep waits", func() bool {
		var waiting int
		s.must(s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
			"AND query LIKE '%\""+s.cfg.Schema+"\".fold%'").Scan(&waiting))
		return waiting > 0
	})
	if err := s.store.Tell(t.Context(), 1); err != nil {
		t.Errorf("got %v, want the others told", err)
	}
	s.must(lock.Commit(t.Context()))
	<-swept
}

// TestATaskWakesOneIdleProcess of five, each of which is a storage of its own.
func TestATaskWakesOneIdleProcess(t *testing.T) {
	s := newShop(t)
	insert := func(id string) { s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(id)}}) }
	insert("first") // the queue exists from here on
	s.want("claimed", len(s.claim(1).Tasks), 1)
	stores := make([]*postgres.Storage, 5)
	for i := range stores {
		stores[i], _ = opened(t, s.cfg)
		stores[i].KeepWakeUps()
	}
	n := 0
	testserver.Await(t, "the marks count until the task is there", func() bool {
		s.exec("DELETE FROM {schema}.idle")
		begun := time.Now()
		since := make([]storage.Since, len(stores))
		for i, store := range stores {
			since[i] = s.markIdle(store, i+1)
		}
		n++
		inserted := time.Now()
		insert(fmt.Sprint(n))
		late := time.Since(inserted) >= postgres.LateAfter // then all processes claim
		left := s.marks()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		woken := make(chan error, len(stores))
		for i, store := range stores {
			go func() { woken <- store.Wait(ctx, storage.WaitRequest{Queues: []string{"q"}, Since: since[i]}) }()
		}
		s.must(<-woken)
		cancel()
		others := 0
		for range len(stores) - 1 {
			if <-woken == nil {
				others++
			}
		}
		s.want("claimed", len(s.claim(1).Tasks), 1)
		if late || time.Since(begun) > postgres.MarkFor/2 {
			return false
		}
		s.want("marks left", left, len(stores)-1)
		s.want("other processes that were woken", others, 0)
		return true
	})
}

// TestATaskThatIsLeftWakesAnother process than the one whose claim leaves it, in the short and in the general way.
func TestATaskThatIsLeftWakesAnother(t *testing.T) {
	for name, ways := range map[string]func(*postgres.Storage){
		"short": func(*postgres.Storage) {}, "general": (*postgres.Storage).NoShort,
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			ways(s.store)
			s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("a"), insertOf("b")}})
			s.exec("INSERT INTO {schema}.idle SELECT queue, 'another', {schema}.told() FROM {schema}.queues")
			s.want("claimed", len(s.claim(1).Tasks), 1)
			testserver.Await(t, "its mark is taken", func() bool { return s.marks() == 0 })
		})
	}
}

// TestAClosedProcessIsNotIdle: its mark would cost a task its wake-up. A busy machine may take longer than a close
// waits for the removal of the mark, but not each time.
func TestAClosedProcessIsNotIdle(t *testing.T) {
	s := newShop(t)
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
	s.want("claimed", len(s.claim(1).Tasks), 1)
	testserver.Await(t, "a close removes the mark", func() bool {
		s.exec("DELETE FROM {schema}.idle")
		other, _ := opened(t, s.cfg)
		s.markIdle(other, 1)
		s.must(other.Close())
		return s.marks() == 0
	})
}

// markIdle claims from a storage in vain until its process is marked, as the n-th, and once more. It returns
// the Since of the last claim.
func (s *shop) markIdle(store *postgres.Storage, n int) storage.Since {
	s.Helper()
	store.ForgetMarks()
	session := storage.NewSession(store, testserver.Patience)
	claim := func() storage.Since {
		claimed, err := session.Claim(s.Context(), claimOf(1))
		s.must(err)
		s.want("claimed", len(claimed.Tasks), 0)
		return claimed.Since
	}
	testserver.Await(s.T, "a claim marks the process", func() bool {
		claim()
		return s.marks() >= n
	})
	return claim()
}

func (s *shop) marks() (n int) {
	s.Helper()
	s.must(s.db.QueryRowContext(s.Context(), "SELECT count(*) FROM "+s.cfg.Schema+".idle").Scan(&n))
	return n
}
