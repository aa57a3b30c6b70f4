package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// definite expects an ErrUnavailable that is no ErrUnknown.
func definite(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) {
		t.Errorf("%s gave %v, want an ErrUnavailable alone", what, err)
	}
}

// proxied opens a storage through a proxy.
func proxied(t *testing.T) (*postgres.Storage, *testserver.Proxy) {
	t.Helper()
	testserver.RequirePostgres(t)
	proxy := testserver.NewProxy(t, shared.Addr())
	url := "postgres://" + proxy.Addr() + "/postgres?user=midge&sslmode=disable"
	store, _ := opened(t, fresh(t, postgres.Config{URL: url}))
	return store, proxy
}

// verbs are the calls that write, one of each class of Apply.
func verbs(s *postgres.Storage) map[string]func(context.Context, storage.Call) error {
	fence := storage.Fence{Ref: storage.Ref{Queue: "q", ID: "a"}, Version: 1, Token: storage.NewToken()}
	apply := func(tx storage.Tx) func(context.Context, storage.Call) error {
		return func(ctx context.Context, call storage.Call) error {
			_, err := s.Apply(ctx, call, tx)
			return err
		}
	}
	unique, many := insertOf("u"), storage.Tx{}
	unique.Unique = storage.Unique{Key: "u", Mode: storage.UniqueLife}
	for i := range 200 {
		many.Inserts = append(many.Inserts, insertOf(fmt.Sprint("m", i)))
	}
	return map[string]func(context.Context, storage.Call) error{
		"insert":        apply(storage.Tx{Inserts: []storage.Insert{insertOf("a")}}),
		"many inserts":  apply(many),
		"unique insert": apply(storage.Tx{Inserts: []storage.Insert{unique}}),
		"completion":    apply(storage.Tx{Settles: []storage.Settle{{Fence: fence, Outcome: storage.Complete}}}),
		"Claim": func(ctx context.Context, call storage.Call) error {
			req := claimOf(1)
			req.Call, req.Token = call, storage.NewToken()
			_, err := s.Claim(ctx, req)
			return err
		},
		"Extend": func(ctx context.Context, call storage.Call) error {
			_, err := s.Extend(ctx, storage.ExtendRequest{
				Call: call, Leases: []storage.Extension{{Fence: fence, For: time.Minute}},
			})
			return err
		},
		"Configure": func(ctx context.Context, call storage.Call) error {
			return s.Configure(ctx, call, "q", storage.Settings{Pause: &storage.Pause{}})
		},
	}
}

func callOn(n int) storage.Call {
	return storage.Call{Lane: storage.Lane{ID: [16]byte{byte(n)}, Opened: time.Now()}, Seq: 1}
}

// TestAServerThatRefusesConnectionsIsUnavailable: a call that was never sent never happened.
func TestAServerThatRefusesConnectionsIsUnavailable(t *testing.T) {
	store, proxy := proxied(t)
	for _, call := range verbs(store) { // there are connections, and they are lost
		_ = call(t.Context(), storage.Call{})
	}
	proxy.Refuse()
	n := 0
	for name, call := range verbs(store) {
		n++
		testserver.Await(t, name+" finds no connection that was left", func() bool {
			return !errors.Is(call(t.Context(), callOn(n)), storage.ErrUnknown)
		})
		definite(t, name, call(t.Context(), callOn(n)))
	}
	_, err := store.Describe(t.Context())
	definite(t, "Describe", err)
	_, err = postgres.Open(t.Context(), postgres.Config{URL: "postgres://" + proxy.Addr() + "/postgres?sslmode=disable"})
	definite(t, "Open", err)
}

// TestALostReplyIsUnknown, also if no connection can be made after it.
func TestALostReplyIsUnknown(t *testing.T) {
	store, proxy := proxied(t)
	n := 0
	for name, call := range verbs(store) {
		n++
		testserver.Await(t, name+" opens a connection, and reads the queue's number", func() bool {
			err := call(t.Context(), storage.Call{}) // some connections of the last call are lost
			return !errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrUnavailable)
		})
		step := "COMMIT"
		switch name {
		case "Claim":
			step = ".claim_"
		case "insert":
			step = ".add_"
		}
		fault := proxy.CutAfterRequest(testserver.Containing(step), 1)
		refused := make(chan struct{})
		go func() {
			defer close(refused)
			<-fault.Struck()
			proxy.Refuse()
		}()
		err := call(t.Context(), callOn(n))
		if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("%s returned %v, want an ErrUnknown alone", name, err)
		}
		testserver.Await(t, name+" is cut off", func() bool {
			select {
			case <-refused:
				return true
			default:
				return false
			}
		})
		if err := proxy.Accept(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPatienceCountsFromEntry: if the server hangs, calls wait for the flushes of others no longer
// than for the patience of their session.
func TestPatienceCountsFromEntry(t *testing.T) {
	store, proxy := proxied(t)
	session := storage.NewSession(store, time.Second)
	if _, err := session.Apply(t.Context(), insertTx()); err != nil {
		t.Fatal(err)
	}
	proxy.Blackhole()
	pace := testserver.StartPace(t)
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			begun := time.Now()
			_, err := session.Apply(context.Background(), insertTx()) // without a deadline, as with many callers
			if !errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("got %v, want no answer", err)
			}
			if took := time.Since(begun); took > pace.Stretch(2*time.Second, begun) {
				t.Errorf("took %v, want a second", took)
			}
		})
	}
	all.Wait()
}
