package postgres

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// slowServer begins one session after the other, in the order of the dials, even if the client has given up.
type slowServer struct {
	asked chan net.Conn
	takes time.Duration

	mu     sync.Mutex
	served int // sessions that it has begun, also in vain
}

// dial is the DialFunc of a client.
func (s *slowServer) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	s.asked <- server
	return client, nil
}

func (s *slowServer) serve(ctx context.Context) {
	for {
		select {
		case conn := <-s.asked:
			<-time.After(s.takes) // virtual
			s.mu.Lock()
			s.served++
			s.mu.Unlock()
			go answer(conn)
		case <-ctx.Done():
			return
		}
	}
}

// answer begins a session, and answers each query of it that the server takes writes.
func answer(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	for {
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if b.Flush() != nil {
			return
		}
		m, err := b.Receive()
		if err != nil {
			return
		}
		if _, asks := m.(*pgproto3.Query); !asks {
			return
		}
		b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("read_only"), DataTypeOID: 25}}})
		b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("off")}})
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SHOW")})
	}
}

// TestManyClientsOfASlowServerEachHaveASession has more clients than the server can begin sessions for within
// dialTimeout.
func TestManyClientsOfASlowServerEachHaveASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s := &slowServer{asked: make(chan net.Conn, 10_000), takes: time.Second}
		go s.serve(ctx)
		const clients, within = 20, 5 * time.Minute
		begun := time.Now()
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				settings, err := (&Config{URL: "host=192.0.2.1 user=midge sslmode=disable"}).settings()
				if err != nil {
					t.Error(err)
					return
				}
				settings.ConnConfig.DialFunc = s.dial
				for time.Since(begun) < within {
					conn, err := dial(ctx, settings)
					if err == nil {
						_ = conn.Close(ctx)
						return
					}
				}
				t.Errorf("a client has no session after %v", within)
			})
		}
		all.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		t.Logf("the server began %d sessions for %d clients in %v", s.served, clients, time.Since(begun))
	})
}

// TestAnAnswerWithoutARowEndsNoProcess: the check of a new connection reads the first row.
func TestAnAnswerWithoutARowEndsNoProcess(t *testing.T) {
	for _, attrs := range []string{"any", "read-write", "read-only", "primary", "standby", "prefer-standby"} {
		for name, answer := range map[string][]pgproto3.BackendMessage{
			"nothing": {}, "no row": {&pgproto3.CommandComplete{CommandTag: []byte("SHOW")}},
			"no field": {
				&pgproto3.RowDescription{}, &pgproto3.DataRow{}, &pgproto3.CommandComplete{CommandTag: []byte("SHOW")},
			},
		} {
			cfg, err := (&Config{URL: "host=192.0.2.1 user=midge sslmode=disable target_session_attrs=" + attrs}).settings()
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			cfg.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				all.Go(func() { answerWith(server, answer) })
				return client, nil
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pool.Acquire(t.Context()); err == nil {
				t.Errorf("%s, %s: got a connection, want an error", attrs, name)
			}
			pool.Close()
			all.Wait()
		}
	}
}

// answerWith begins a session, and answers its queries with these messages.
func answerWith(conn net.Conn, messages []pgproto3.BackendMessage) {
	defer func() { _ = conn.Close() }()
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	for {
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if b.Flush() != nil {
			return
		}
		if m, err := b.Receive(); err != nil {
			return
		} else if _, asks := m.(*pgproto3.Query); !asks {
			return
		}
		for _, m := range messages {
			b.Send(m)
		}
	}
}

// TestDialsHaveTheTimeThatTheApplicationChose, and otherwise less with several hosts.
func TestDialsHaveTheTimeThatTheApplicationChose(t *testing.T) {
	for url, want := range map[string]time.Duration{
		"host=one user=midge connect_timeout=7":     7 * time.Second,
		"host=one,two user=midge connect_timeout=7": 7 * time.Second,
		"host=one,two user=midge":                   dialTimeout,
		"host=one user=midge sslmode=prefer":        sessionTimeout,
	} {
		cfg, err := (&Config{URL: url}).settings()
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.ConnConfig.ConnectTimeout; got != want {
			t.Errorf("%s: got %v, want %v", url, got, want)
		}
	}
}

// TestAHostThatDoesNotAnswerIsGivenUpSoon, although a session may take longer to begin.
func TestAHostThatDoesNotAnswerIsGivenUpSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, err := pgxpool.ParseConfig("host=192.0.2.1 user=midge sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		pool.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		begun := time.Now()
		if _, err = dial(t.Context(), own(pool)); err == nil {
			t.Error("got a connection")
		}
		if took := time.Since(begun); took != dialTimeout {
			t.Errorf("took %v, want %v", took, dialTimeout)
		}
	})
}
