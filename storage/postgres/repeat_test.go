package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestARepeatedCallWakes: the wake-ups of its first time may have been lost with the reply.
func TestARepeatedCallWakes(t *testing.T) {
	s := newShop(t)
	running := insertOf("running")
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{running}})
	s.want("claimed", len(s.claim(1).Tasks), 1)
	other, _ := opened(t, s.cfg)
	apply := func(txs ...storage.Tx) func(storage.Call) error {
		return func(call storage.Call) error {
			_, err := s.store.Apply(t.Context(), call, txs...)
			return err
		}
	}
	unique := insertOf("unique")
	unique.Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife}
	later := insertOf("later")
	later.Delay = time.Hour
	for what, c := range map[string]struct {
		do     func(storage.Call) error
		alerts bool
		told   bool // other processes, with each commit
	}{
		"an insert":               {apply(insertTx()), false, false},
		"an insert for later":     {apply(storage.Tx{Inserts: []storage.Insert{later}}), false, false},
		"many inserts":            {apply(insertTxs(200)...), false, false},
		"an insert with a key":    {apply(storage.Tx{Inserts: []storage.Insert{unique}}), false, false},
		"a cancel":                {apply(cancelOf(running.Ref)), true, false},
		"the pause of a queue":    {s.configuring(storage.Settings{Pause: &storage.Pause{On: true}}), true, true},
		"the creation of a queue": {s.configuring(storage.Settings{Create: true}), true, true},
	} {
		d, err := s.store.Describe(t.Context())
		s.must(err)
		call := storage.Call{Lane: storage.Lane{ID: storage.NewToken(), Opened: d.Now.Truncate(time.Microsecond)}, Seq: 1}
		s.must(c.do(call))
		woken := s.waiting(s.store, c.alerts)
		var elsewhere <-chan error
		if !c.told {
			elsewhere = s.waiting(other, c.alerts)
		}
		s.must(c.do(call))
		if err := <-woken; err != nil {
			t.Errorf("the repeat of %s: %v, want the caller of Wait woken", what, err)
		}
		if elsewhere != nil {
			if err := <-elsewhere; err != nil {
				t.Errorf("the repeat of %s: %v, want another process woken", what, err)
			}
		}
	}
}

// configuring returns a call of Configure.
func (s *shop) configuring(settings storage.Settings) func(storage.Call) error {
	return func(call storage.Call) error { return s.store.Configure(s.Context(), call, "q", settings) }
}

// waiting waits for the next event once all earlier events are received.
func (s *shop) waiting(store *postgres.Storage, alerts bool) <-chan error {
	s.Helper()
	session := storage.NewSession(store, testserver.Patience)
	req := storage.WaitRequest{Queues: []string{"q"}, CancelsOnly: alerts}
	wait := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(s.Context(), d)
		defer cancel()
		return store.Wait(ctx, req)
	}
	testserver.Await(s.T, "what came before is heard", func() bool {
		claimed, err := session.Claim(s.Context(), claimOf(0))
		s.must(err)
		req.Since = claimed.Since
		return wait(300*time.Millisecond) != nil
	})
	woken := make(chan error, 1)
	go func() { woken <- wait(testserver.Patience) }()
	return woken
}

// TestALateChangeOfSettingsIsReported to all processes: claims may have passed the turn of a partition that it
// resumes.
func TestALateChangeOfSettingsIsReported(t *testing.T) {
	s := newShop(t)
	in := insertOf("a")
	in.Partition = "p"
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
	listener, err := pgx.Connect(t.Context(), s.cfg.URL)
	s.must(err)
	defer func() { s.must(listener.Close(context.WithoutCancel(t.Context()))) }()
	_, err = listener.Exec(t.Context(), `LISTEN "midge_`+s.cfg.Schema+`"`)
	s.must(err)
	for _, settings := range []storage.Settings{
		{Partition: "p", Pause: &storage.Pause{On: true}},
		{Partition: "p", Pause: &storage.Pause{}},
		{Pause: &storage.Pause{On: true}},
		{Limit: &storage.OperatorLimit{On: true}},
	} {
		lock, err := s.conn.Begin(t.Context())
		s.must(err)
		_, err = lock.Exec(t.Context(), "SELECT FROM "+s.cfg.Schema+".queues FOR UPDATE")
		s.must(err)
		changed := make(chan error, 1)
		var since time.Time
		go func() { changed <- s.session.Configure(t.Context(), "q", settings) }()
		testserver.Await(t, "the change waits", func() bool {
			var waiting int
			s.must(s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
				"AND query LIKE '%\""+s.cfg.Schema+"\".configure%'").Scan(&waiting))
			if waiting > 0 && since.IsZero() {
				since = time.Now()
			}
			return !since.IsZero() && time.Since(since) > postgres.LateAfter
		})
		s.must(lock.Commit(t.Context()))
		s.must(<-changed)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		for late := false; !late; {
			note, err := listener.WaitForNotification(ctx)
			if err != nil {
				t.Errorf("%+v: %v, want a late commit reported", settings, err)
				break
			}
			late = strings.Contains(note.Payload, " l ")
		}
		cancel()
	}
}
