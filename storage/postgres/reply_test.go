package postgres_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestDeadConnectionsAreGivenUp makes every connection dead while a call waits for its answer.
// Callers whose contexts have no deadline learn within seconds that the outcome is unknown, and the
// next calls get connections that live.
func TestDeadConnectionsAreGivenUp(t *testing.T) {
	s := newShop(t)
	proxy := testserver.NewProxy(t, shared.Addr())
	cfg := s.cfg
	cfg.URL = "postgres://" + proxy.Addr() + "/postgres?user=midge&sslmode=disable"
	cfg.Connections = 10
	store, session := opened(t, cfg)
	_, err := session.ApplyOne(t.Context(), insertTx())
	s.must(err)
	claim := claimOf(1)
	claim.Token = storage.NewToken()
	calls := map[string]func(ctx context.Context) error{
		"claim":  func(ctx context.Context) error { _, err := store.Claim(ctx, claim); return err },
		"extend": func(ctx context.Context) error { _, err := store.Extend(ctx, beat()); return err },
		"configure": func(ctx context.Context) error {
			return store.Configure(ctx, storage.Call{}, "q", storage.Settings{Pause: &storage.Pause{}})
		},
		"describe": func(ctx context.Context) error { _, err := store.Describe(ctx); return err },
		"task":     func(ctx context.Context) error { _, err := store.Task(ctx, insertOf("a").Ref); return err },
		"tasks": func(ctx context.Context) error {
			_, err := store.Tasks(ctx, storage.TasksQuery{Queue: "q", State: storage.Waiting, Limit: 1})
			return err
		},
		"queues": func(ctx context.Context) error {
			_, err := store.Queues(ctx, storage.QueuesQuery{Limit: 1})
			return err
		},
		"stats":   func(ctx context.Context) error { _, err := store.Stats(ctx, "q"); return err },
		"runners": func(ctx context.Context) error { _, err := store.Runners(ctx); return err },
	}
	const limit = 7 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	held := proxy.HoldReply(testserver.Containing(cfg.Schema))
	pace, begun := testserver.StartPace(t), time.Now()
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() {
			err := call(ctx)
			if took := time.Since(begun); took > pace.Stretch(limit, begun) || !errors.Is(err, storage.ErrUnknown) {
				t.Errorf("%s: %v after %v, want an unknown outcome in less than %v", name, err, took, limit)
			}
		})
	}
	all.Wait()
	held.Release()
	_, err = session.Claim(t.Context(), claimOf(1))
	s.must(err)
}

// beat returns a heartbeat.
func beat() storage.ExtendRequest {
	return storage.ExtendRequest{Runner: storage.RunnerInfo{ID: "r", For: time.Minute}}
}

// TestARepeatHasItsOutcomeOrAnError repeats calls, and loses the connection while a repeat reads the outcome of
// the first call. The repeat returns an error, and a later repeat returns the outcome.
func TestARepeatHasItsOutcomeOrAnError(t *testing.T) {
	s := newShop(t)
	proxy := testserver.NewProxy(t, shared.Addr())
	cfg := s.cfg
	cfg.URL = "postgres://" + proxy.Addr() + "/postgres?user=midge&sslmode=disable"
	store, session := opened(t, cfg)
	_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{insertOf("held")}})
	s.must(err)
	claimed, err := session.Claim(t.Context(), claimOf(1))
	s.must(err)
	d, err := store.Describe(t.Context())
	s.must(err)
	unique := insertOf("unique")
	unique.Unique = storage.Unique{Key: "key", Mode: storage.UniqueLife}
	progress := storage.ExtendRequest{Leases: []storage.Extension{{
		Fence: claimed.Fences[0], For: time.Hour, Progress: []byte("half"),
	}}}
	apply := func(call storage.Call, in storage.Insert) (any, error) {
		return store.Apply(t.Context(), call, storage.Tx{Inserts: []storage.Insert{in}})
	}
	for name, do := range map[string]func(storage.Call) (any, error){
		"a plain insert": func(call storage.Call) (any, error) { return apply(call, insertOf("plain")) },
		"any insert":     func(call storage.Call) (any, error) { return apply(call, unique) },
		"an extend": func(call storage.Call) (any, error) {
			progress.Call = call
			return store.Extend(t.Context(), progress)
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := storage.Call{Lane: storage.Lane{ID: storage.NewToken(), Opened: d.Now}, Seq: 1}
			first, err := do(call)
			s.must(err)
			cut := proxy.CutBeforeRequest(testserver.Containing("SELECT lane, base"), -1)
			if got, err := do(call); !errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("got %+v, %v without a connection, want no answer", got, err)
			}
			cut.Release()
			got, err := do(call)
			s.must(err)
			if !reflect.DeepEqual(got, first) {
				t.Errorf("got %+v, want the outcome of the first call, %+v", got, first)
			}
		})
	}
}
