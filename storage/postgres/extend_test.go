package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestACheckpointIsNotSkipped locks a task for a moment, as a heartbeat does. Extensions pass over
// such a task, but a checkpoint for it must not be lost.
func TestACheckpointIsNotSkipped(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	store, session := opened(t, cfg)
	if _, err := session.ApplyOne(t.Context(), insertTx()); err != nil {
		t.Fatal(err)
	}
	claimed, err := session.Claim(t.Context(), claimOf(1))
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatalf("claim: %d tasks, %v, want one", len(claimed.Fences), err)
	}
	fence := claimed.Fences[0]
	conn, err := pgx.Connect(t.Context(), shared.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM "+cfg.Schema+".tasks FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	hasty := storage.NewSession(store, -1)
	extended, err := hasty.Extend(t.Context(), storage.ExtendRequest{
		Leases: []storage.Extension{{Fence: fence, For: time.Minute}},
	})
	if err != nil || !slices.Equal(extended.Locked, []storage.Ref{fence.Ref}) {
		t.Errorf("a heartbeat: got %v, %v, want the locked task passed over", extended.Locked, err)
	}
	write := storage.ExtendRequest{Leases: []storage.Extension{{Fence: fence, Checkpoint: []byte("1")}}}
	if _, err := hasty.Extend(t.Context(), write); err == nil {
		t.Error("a checkpoint was acknowledged and not written")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := session.Extend(t.Context(), write); err != nil {
		t.Fatal(err)
	}
	task, err := store.Task(t.Context(), fence.Ref)
	if err != nil || string(task.Checkpoint) != "1" {
		t.Errorf("the checkpoint is %q, %v, want it written", task.Checkpoint, err)
	}
}

// checkpoints returns calls that store a checkpoint for each of some tasks.
func (s *shop) checkpoints(fences []storage.Fence, text string) (reqs []storage.ExtendRequest) {
	s.Helper()
	d, err := s.store.Describe(s.Context())
	s.must(err)
	for i, fence := range fences {
		reqs = append(reqs, storage.ExtendRequest{
			Call:   storage.Call{Lane: storage.Lane{ID: [16]byte{1, byte(i)}, Opened: d.Now.Truncate(time.Microsecond)}, Seq: 1},
			Leases: []storage.Extension{{Fence: fence, Checkpoint: []byte(text)}},
		})
	}
	return reqs
}

// stored returns how many tasks have a checkpoint, and how many transactions stored them.
func (s *shop) stored(checkpoint string) (tasks, transactions int) {
	s.Helper()
	s.must(s.conn.QueryRow(s.Context(), "SELECT count(*), count(DISTINCT xmin::text) FROM "+s.cfg.Schema+
		".sides WHERE checkpoint = $1", []byte(checkpoint)).Scan(&tasks, &transactions))
	return tasks, transactions
}

// TestCheckpointsShareATransaction stores the checkpoints of many tasks, one of whose leases is lost, and then
// again while an application has locked one of the tasks.
func TestCheckpointsShareATransaction(t *testing.T) {
	const n = 20
	s := newShop(t)
	for i := range n {
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(fmt.Sprint("t", i))}})
	}
	fences := s.claim(n).Fences
	s.want("claimed tasks", len(fences), n)
	fences[7].Token = storage.NewToken()
	reqs := s.checkpoints(fences, "1")
	twice := reqs[0] // another call for the same task
	twice.Call.Lane.ID[0] = 2
	once, errs := s.store.Extends(t.Context(), append(slices.Clone(reqs), twice)...)
	s.must(errors.Join(errs...))
	tasks, transactions := s.stored("1")
	s.want("tasks with a checkpoint", tasks, n-1)
	s.want("transactions", transactions, 1)

	for i := range reqs { // a repeat must not be carried out
		reqs[i].Leases[0].Checkpoint = []byte("repeated")
	}
	again, errs := s.store.Extends(t.Context(), reqs...)
	s.must(errors.Join(errs...))
	tasks, _ = s.stored("repeated")
	s.want("tasks with the checkpoint of a repeat", tasks, 0)
	for i := range reqs {
		var lost []storage.Ref
		if i == 7 {
			lost = []storage.Ref{fences[7].Ref}
		}
		if !slices.Equal(once[i].Lost, lost) || !slices.Equal(again[i].Lost, lost) || !again[i].Now.Equal(once[i].Now) {
			t.Errorf("task %d: got %+v and, repeated, %+v; want %v lost", i, once[i], again[i], lost)
		}
	}

	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = tx.Exec(t.Context(), "SELECT FROM "+s.cfg.Schema+".tasks WHERE id = 't3' FOR UPDATE")
	s.must(err)
	reqs = s.checkpoints(fences, "2")
	for i := range reqs {
		reqs[i].Call.Seq = 2
	}
	for try := 1; try <= postgres.ExtendTries; try++ { // a heartbeat locks tasks for a moment
		again, err := s.store.TryExtends(t.Context(), try, reqs...)
		s.want(fmt.Sprint("whether try ", try, " is repeated"), again, try < postgres.ExtendTries)
		s.want("an error", err != nil, true)
	}
	_, errs = s.store.Extends(t.Context(), reqs...)
	s.must(tx.Rollback(t.Context()))
	for i, err := range errs {
		s.want(fmt.Sprint("an error of ", fences[i].Ref.ID), errors.Is(err, storage.ErrUnknown), fences[i].Ref.ID == "t3")
	}
	tasks, _ = s.stored("2")
	s.want("tasks with a checkpoint", tasks, n-2)
	_, errs = s.store.Extends(t.Context(), reqs...)
	s.must(errors.Join(errs...))
	tasks, _ = s.stored("2")
	s.want("tasks with a checkpoint, once none is locked", tasks, n-1)
}

// A call that would make others wait for its transmission, or for the locks of several tasks, does not share.
func TestWhichExtensionsShare(t *testing.T) {
	value := func(size int) storage.Extension { return storage.Extension{Checkpoint: make([]byte, size)} }
	for want, reqs := range map[bool][]storage.ExtendRequest{
		true: {
			{Leases: []storage.Extension{value(1)}},
			{Leases: []storage.Extension{{Progress: []byte("1")}}},
			{Leases: []storage.Extension{value(postgres.LargeBytes)}},
		},
		false: {
			{},
			{Leases: []storage.Extension{{For: time.Minute}}},
			{Leases: []storage.Extension{value(1), value(1)}},
			{Leases: []storage.Extension{value(1)}, Runner: storage.RunnerInfo{ID: "runner"}},
			{Leases: []storage.Extension{value(postgres.LargeBytes + 1)}},
		},
	} {
		for i, req := range reqs {
			if got := postgres.Shares(req); got != want {
				t.Errorf("request %d: got %t, want %t", i, got, want)
			}
		}
	}
}
