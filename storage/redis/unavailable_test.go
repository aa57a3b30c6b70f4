package redis_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// verbs returns the verbs that write.
func verbs(s *redis.Storage) map[string]func(context.Context, storage.Call) error {
	return map[string]func(context.Context, storage.Call) error{
		"Apply": func(ctx context.Context, call storage.Call) error {
			_, err := s.Apply(ctx, call, storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
			return err
		},
		"Claim": func(ctx context.Context, call storage.Call) error {
			req := claimOf(1)
			req.Call, req.Token = call, storage.NewToken()
			_, err := s.Claim(ctx, req)
			return err
		},
		"Extend": func(ctx context.Context, call storage.Call) error {
			fence := storage.Fence{Ref: storage.Ref{Queue: "mail", ID: "a"}, Version: 1, Token: storage.NewToken()}
			_, err := s.Extend(ctx, storage.ExtendRequest{
				Call: call, Leases: []storage.Extension{{Fence: fence, For: time.Minute}},
			})
			return err
		},
		"Configure": func(ctx context.Context, call storage.Call) error {
			return s.Configure(ctx, call, "mail", storage.Settings{Pause: &storage.Pause{On: true}})
		},
	}
}

// definite checks that an error is an ErrUnavailable and no ErrUnknown.
func definite(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) {
		t.Errorf("%s gave %v, want an ErrUnavailable alone", what, err)
	}
}

func callOn(lane byte) storage.Call {
	return storage.Call{Lane: storage.Lane{ID: [16]byte{lane}, Opened: time.Now()}, Seq: 1}
}

// TestAServerThatRefusesConnectionsIsUnavailable: a call that was never sent did not happen.
func TestAServerThatRefusesConnectionsIsUnavailable(t *testing.T) {
	proxy := testserver.NewProxy(t, miniredis.RunT(t).Addr())
	for name, cfg := range map[string]redis.Config{
		"by URL":    {URL: "redis://" + proxy.Addr()},
		"by Client": {Client: goredis.NewClient(&goredis.Options{Addr: proxy.Addr(), DialerRetries: 1})},
	} {
		t.Run(name, func(t *testing.T) {
			if err := proxy.Accept(); err != nil {
				t.Fatal(err)
			}
			s, err := redis.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			proxy.Refuse()
			for verb, call := range verbs(s) {
				definite(t, verb, call(t.Context(), callOn(1)))
			}
			_, err = s.Describe(t.Context())
			definite(t, "Describe", err)
		})
	}
}

// TestALaterDialThatFailsLeavesTheOutcomeUnknown: the driver has sent the call once, and fails to dial
// when it tries again by itself.
func TestALaterDialThatFailsLeavesTheOutcomeUnknown(t *testing.T) {
	proxy := testserver.NewProxy(t, miniredis.RunT(t).Addr())
	var refuses atomic.Bool
	client := goredis.NewClient(&goredis.Options{
		Addr: proxy.Addr(), MaxRetries: 2, DialerRetries: 1, PoolSize: 100,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if refuses.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		},
	})
	defer func() { _ = client.Close() }()
	s, err := redis.Open(t.Context(), redis.Config{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	lane := byte(0)
	for verb, call := range verbs(s) {
		lane++
		refuses.Store(false)
		if err := call(t.Context(), callOn(100+lane)); err != nil { // a connection is open, the queue listed
			t.Fatal(err)
		}
		refuses.Store(true)
		fault := proxy.CutAfterRequest(testserver.Command("EVALSHA", "EVAL"), 1)
		err := call(t.Context(), callOn(lane))
		if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("%s gave %v, want an ErrUnknown alone", verb, err)
		}
		<-fault.Struck()
	}
}

// TestPatienceCountsFromEntry: if a server hangs, a call waits for the flushes of other calls no
// longer than its session's patience.
func TestPatienceCountsFromEntry(t *testing.T) {
	proxy := testserver.NewProxy(t, miniredis.RunT(t).Addr())
	s, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + proxy.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	session := storage.NewSession(s, time.Second)
	if _, err := session.Apply(t.Context(), storage.Tx{Inserts: []storage.Insert{insertOf("a")}}); err != nil {
		t.Fatal(err)
	}
	proxy.Blackhole()
	pace := testserver.StartPace(t)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			begun := time.Now()
			_, err := session.Apply(context.Background(), // without an end, as many callers have
				storage.Tx{Inserts: []storage.Insert{insertOf("b" + strconv.Itoa(i))}})
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
