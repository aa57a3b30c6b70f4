package redis

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestACallReturnsWithItsContext: a call returns when its context ends although the server hangs, and
// Close returns too.
func TestACallReturnsWithItsContext(t *testing.T) {
	proxy := testserver.NewProxy(t, miniredis.RunT(t).Addr())
	s, err := Open(t.Context(), Config{URL: "redis://" + proxy.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(ctx context.Context) error{
		"Apply": func(ctx context.Context) error {
			_, err := s.Apply(ctx, storage.Call{}, insertOf("mail", "a"))
			return err
		},
		"Claim": func(ctx context.Context) error {
			_, err := s.Claim(ctx, storage.ClaimRequest{Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}})
			return err
		},
		"Extend": func(ctx context.Context) error {
			_, err := s.Extend(ctx, storage.ExtendRequest{})
			return err
		},
		"Stats":    func(ctx context.Context) error { _, err := s.Stats(ctx, "mail"); return err },
		"Queues":   func(ctx context.Context) error { _, err := s.Queues(ctx, storage.QueuesQuery{}); return err },
		"Describe": func(ctx context.Context) error { _, err := s.Describe(ctx); return err },
	}
	for name, call := range calls {
		if err := call(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	proxy.Blackhole()
	pace, begun := testserver.StartPace(t), time.Now()
	for name, call := range calls {
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(10*time.Millisecond, cancel)
		if err := call(ctx); !away(err) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s gave %v, want an unknown outcome, or a definite one where it was not sent", name, err)
		}
		stop.Stop()
		cancel()
	}
	if took := time.Since(begun); took > pace.Stretch(time.Second, begun) {
		t.Errorf("%d cancelled calls took %v, want no more than their contexts", len(calls), took)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > pace.Stretch(2*time.Second, begun) {
		t.Errorf("cancelled calls and Close took %v, want no more than two seconds", took)
	}
	if _, err := s.Describe(t.Context()); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Describe of a closed storage = %v, want ErrClosed", err)
	}
}

// TestAClaimOfAnotherQueueReturnsWithItsContext: a claim that has to listen to a new queue returns
// when its context ends although the server hangs.
func TestAClaimOfAnotherQueueReturnsWithItsContext(t *testing.T) {
	proxy := testserver.NewProxy(t, miniredis.RunT(t).Addr())
	s, err := Open(t.Context(), Config{URL: "redis://" + proxy.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	proxy.Blackhole()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	pace, begun := testserver.StartPace(t), time.Now()
	_, err = s.Claim(ctx, storage.ClaimRequest{Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}})
	if took := time.Since(begun); took > pace.Stretch(time.Second, begun) || !away(err) {
		t.Errorf("got %v after %v, want it at once, for no answer", err, took)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestOpenChecksAgainAfterALostReply: Open checks the server anew if a connection ends before a reply,
// and returns the error if that happens each time.
func TestOpenChecksAgainAfterALostReply(t *testing.T) {
	for lost, want := range map[int]error{examinations - 1: nil, examinations: storage.ErrUnknown} {
		proxy := testserver.NewProxy(t, miniredis.RunT(t).Addr())
		cuts := proxy.CutAfterRequest(testserver.Command("EVALSHA"), lost)
		client := goredis.NewClient(&goredis.Options{Addr: proxy.Addr(), MaxRetries: -1})
		s, err := Open(t.Context(), Config{Client: client})
		if !errors.Is(err, want) {
			t.Errorf("Open after %d lost replies = %v, want %v", lost, err, want)
		}
		if err == nil {
			err = s.Close()
		}
		<-cuts.Struck()
		if err := errors.Join(err, client.Close()); want == nil && err != nil {
			t.Error(err)
		}
	}
}

// TestALateReplyOfAConnectionsNameIsNoOthersReply holds the reply to the name of a new connection until the
// connection has timed out, and until the command behind it was sent, if it is sent.
func TestALateReplyOfAConnectionsNameIsNoOthersReply(t *testing.T) {
	for name, call := range map[string]func(*Storage) error{
		"Describe": func(s *Storage) error {
			_, err := s.Describe(t.Context())
			return err
		},
		"Claim": func(s *Storage) error {
			_, err := s.Claim(t.Context(), storage.ClaimRequest{Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail", Max: 1}}})
			return err
		},
		"Queues": func(s *Storage) error {
			_, err := s.Queues(t.Context(), storage.QueuesQuery{})
			return err
		},
	} {
		proxy := testserver.NewProxy(t, miniredis.RunT(t).Addr())
		var s *Storage
		testserver.Await(t, "the storage opens within its short timeouts", func() (ok bool) {
			var err error
			s, err = Open(t.Context(), Config{URL: "redis://" + proxy.Addr() + "?read_timeout=100ms&write_timeout=100ms&max_retries=-1"})
			return err == nil
		})
		proxy.Refuse()
		if err := proxy.Accept(); err != nil {
			t.Fatal(err)
		}
		sent, done := make(chan struct{}), make(chan error, 1)
		send := sync.OnceFunc(func() { close(sent) })
		held := proxy.HoldReply(func(request []byte) bool {
			if bytes.Contains(bytes.ToUpper(request), []byte("EVALSHA")) {
				send()
			}
			return bytes.Contains(bytes.ToUpper(request), []byte("SETNAME"))
		})
		go func() { done <- call(s) }()
		var err error
		select {
		case <-sent:
			held.Release()
			err = <-done
		case err = <-done:
		}
		if !away(err) || errors.Is(err, errReply) {
			t.Errorf("%s on a connection whose name got no reply in time: %v, want no answer", name, err)
		}
		held.Release()
		if err := call(s); errors.Is(err, errReply) || spoiled(err) || forgotten(err) {
			t.Errorf("%s afterwards: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
