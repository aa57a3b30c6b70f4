package dashboard_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// ann returns a file of users with ann alone.
func ann(t *testing.T) string {
	t.Helper()
	return userFile(t, "ann", "correct horse")
}

// login returns a request for a path with the session of a new login of ann.
func (s *site) login(path string) *http.Request {
	s.t.Helper()
	w := s.do(request(http.MethodPost, "/login", "name=ann&password=correct+horse"))
	if w.Code != http.StatusSeeOther {
		s.t.Fatalf("a login: %d", w.Code)
	}
	r := request(http.MethodGet, path, "")
	for _, c := range w.Result().Cookies() {
		r.AddCookie(c)
	}
	return r
}

// logout logs out the session of a request.
func (s *site) logout(r *http.Request) {
	s.t.Helper()
	out := request(http.MethodPost, "/logout", "")
	out.Header.Set("Cookie", r.Header.Get("Cookie"))
	if w := s.do(out); w.Code != http.StatusSeeOther {
		s.t.Errorf("a logout: %d", w.Code)
	}
}

// admits fails the test unless the dashboard serves a request, or sends it to the login.
func (s *site) admits(what string, r *http.Request, want bool) {
	s.t.Helper()
	if w := s.do(r); (w.Code == http.StatusOK) != want {
		s.t.Errorf("%s: %d, want it admitted: %t", what, w.Code, want)
	}
}

// beside returns another dashboard of the same storage, as another process has it.
func (s *site) beside(users *access.Users) *site {
	s.t.Helper()
	cfg := dashboard.Config{Users: users}
	h, err := dashboard.Handler(s.Store, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return &site{s.t, s.Scene, h, cfg}
}

// TestARemovedUserLosesTheStream checks that a stream ends soon after its viewer may not see the dashboard
// any more, without a further request.
func TestARemovedUserLosesTheStream(t *testing.T) {
	for what, c := range map[string]struct {
		who    bool // the dashboard has Config.Who
		within time.Duration
		end    func(s *site, users *access.Users, r *http.Request, gone *atomic.Bool)
	}{
		"a removed user": {false, 4 * time.Second, func(s *site, users *access.Users, _ *http.Request, _ *atomic.Bool) {
			if err := users.Remove("ann"); err != nil {
				s.t.Error(err)
			}
		}},
		"another role": {false, 4 * time.Second, func(s *site, users *access.Users, _ *http.Request, _ *atomic.Bool) {
			if err := users.Set(access.User{Name: "ann", Role: access.Viewer}, ""); err != nil {
				s.t.Error(err)
			}
		}},
		"a logout": {false, 4 * time.Second, func(s *site, _ *access.Users, r *http.Request, _ *atomic.Bool) {
			s.logout(r)
		}},
		"a logout in another process": {false, 7 * time.Second, func(s *site, users *access.Users, r *http.Request, _ *atomic.Bool) {
			s.beside(users).logout(r)
		}},
		"a refusal by Config.Who": {true, 7 * time.Second, func(_ *site, _ *access.Users, _ *http.Request, gone *atomic.Bool) {
			gone.Store(true)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				file := ann(t)
				var gone atomic.Bool
				var asked atomic.Int32
				cfg := dashboard.Config{Users: usersOf(t, file)}
				if c.who {
					cfg.Who = func(*http.Request) (access.User, bool) {
						asked.Add(1)
						return access.User{Name: "ann", Role: access.Viewer}, !gone.Load()
					}
				}
				s := open(t, "calm", cfg)
				r := request(http.MethodGet, "/events", "")
				if !c.who {
					r = s.login("/events")
				}
				w, begun := httptest.NewRecorder(), time.Now()
				var stream sync.WaitGroup
				stream.Go(func() { s.ServeHTTP(w, r) })
				time.Sleep(time.Minute) // virtual
				if n, most := asked.Load(), int32(1+time.Minute/(5*time.Second)); n > most {
					t.Errorf("Config.Who was called %d times within a minute, want %d at most", n, most)
				}
				c.end(s, usersOf(t, file), r, &gone)
				stream.Wait()
				if took := time.Since(begun) - time.Minute; took > c.within {
					t.Errorf("the stream ended after %v, want %v at most", took, c.within)
				}
				if sent := w.Body.Len(); sent == 0 {
					t.Error("the stream sent nothing")
				}
			})
		})
	}
}

// TestALogoutHoldsInAllProcesses checks that a logout ends a session in each dashboard of a storage, and in a
// process that starts later, and that it ends no other session.
func TestALogoutHoldsInAllProcesses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		file := ann(t)
		s := open(t, "calm", dashboard.Config{Users: usersOf(t, file)})
		other := s.beside(usersOf(t, file))
		r := s.login("/")
		time.Sleep(time.Millisecond) // virtual: sessions of one moment are one
		kept := other.login("/")
		other.admits("another process, before the logout", r, true)
		s.logout(r)
		s.admits("the process of the logout", r, false)
		time.Sleep(5 * time.Second) // virtual
		other.admits("another process, after the logout", r, false)
		s.beside(usersOf(t, file)).admits("a process that starts after the logout", r, false)
		for _, s := range []*site{s, other, s.beside(usersOf(t, file))} {
			s.admits("another session", kept, true)
		}
	})
}

// TestALogoutEndsEachSessionOfTheBrowser sends the cookies of two logins: one with a proxy's TLS, one without.
func TestALogoutEndsEachSessionOfTheBrowser(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{Users: usersOf(t, ann(t))})
		first := s.login("/")
		time.Sleep(time.Millisecond) // virtual: sessions of one moment are one
		second := s.login("/")
		both := request(http.MethodGet, "/", "")
		secure := strings.Replace(second.Header.Get("Cookie"), access.SessionCookie, "__Host-"+access.SessionCookie, 1)
		both.Header.Set("Cookie", first.Header.Get("Cookie")+"; "+secure)
		s.admits("two sessions", both, true)
		s.logout(both)
		s.admits("the browser after its logout", both, false)
	})
}

// TestAnEndedSessionHidesNoOther sends two sessions, of which another process has ended the first.
func TestAnEndedSessionHidesNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		file := ann(t)
		s := open(t, "calm", dashboard.Config{Users: usersOf(t, file)})
		first := s.login("/")
		time.Sleep(time.Millisecond) // virtual: sessions of one moment are one
		second := s.login("/")
		s.logout(first)
		both := request(http.MethodGet, "/", "")
		both.Header.Set("Cookie", first.Header.Get("Cookie")+"; "+second.Header.Get("Cookie"))
		other := s.beside(usersOf(t, file))
		other.admits("an ended session beside another one", both, true)
		other.admits("the ended session", first, false)
	})
}

// away is a storage that is away, or answers no read of logouts, at times.
type away struct {
	storage.Storage

	is, hangs atomic.Bool
	hung      atomic.Int64
}

func (a *away) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if a.hangs.Load() && strings.HasSuffix(ref.Queue, "logouts") {
		a.hung.Add(1)
		<-ctx.Done()
		return storage.Task{}, storage.ErrUnknown
	}
	if a.is.Load() {
		return storage.Task{}, storage.ErrUnavailable
	}
	return a.Storage.Task(ctx, ref)
}

func (a *away) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if a.is.Load() {
		return nil, storage.ErrUnavailable
	}
	return a.Storage.Apply(ctx, call, txs...)
}

// TestALogoutHoldsWithoutTheStorage checks that a logout holds in its own process while the storage is away,
// that nobody else is logged out, and that the storage gets the logout as soon as it is back.
func TestALogoutHoldsWithoutTheStorage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		store, file := &away{Storage: sc.Store}, ann(t)
		var log bytes.Buffer
		cfg := dashboard.Config{Users: usersOf(t, file), Log: slog.New(slog.NewTextHandler(&log, nil))}
		h, err := dashboard.Handler(store, cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t, sc, h, cfg}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { h.Run(ctx) })
		defer func() { stop(); run.Wait() }()
		r := s.login("/queues")
		time.Sleep(time.Millisecond) // virtual: sessions of one moment are one
		kept := s.login("/queues")
		s.admits("a session", r, true)
		store.is.Store(true)
		s.logout(r)
		time.Sleep(time.Minute) // virtual
		s.admits("a session that was logged out while the storage was away", r, false)
		s.admits("another session while the storage is away", kept, true)
		synctest.Wait() // for the log
		if !strings.Contains(log.String(), "a logout holds in this process alone") {
			t.Errorf("the log does not say that the storage took no logout:\n%s", &log)
		}
		store.is.Store(false)
		time.Sleep(time.Minute) // virtual
		s.beside(usersOf(t, file)).admits("another process once the storage is back", r, false)
	})
}

// TestAStorageThatHangsDelaysFewRequests checks that of the requests of a user one waits for the logouts, once
// in five seconds.
func TestAStorageThatHangsDelaysFewRequests(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		store, cfg := &away{Storage: sc.Store}, dashboard.Config{Users: usersOf(t, ann(t))}
		h, err := dashboard.Handler(store, cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t, sc, h, cfg}
		r := s.login("/queues")
		s.admits("a session", r, true)
		time.Sleep(time.Minute) // virtual
		store.hangs.Store(true)
		var delayed atomic.Int64
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				began := time.Now()
				s.admits("a session while the storage hangs", r.Clone(r.Context()), true)
				if time.Since(began) > 0 {
					delayed.Add(1)
				}
			})
		}
		all.Wait()
		if delayed.Load() > 1 || store.hung.Load() != 1 {
			t.Errorf("%d requests were delayed by %d reads, want one by one", delayed.Load(), store.hung.Load())
		}
	})
}

// TestManyLogoutsTakeLittleRoom logs a user out many times. All sessions stay ended, the record stays small,
// and other users keep their sessions.
func TestManyLogoutsTakeLittleRoom(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		file := ann(t)
		users := usersOf(t, file)
		s := open(t, "calm", dashboard.Config{Users: users})
		var ended []*http.Request
		for range 150 {
			cookies, err := users.Cookies(access.User{Name: "ann"}, "/", false)
			if err != nil {
				t.Fatal(err)
			}
			r := request(http.MethodGet, "/", "")
			r.AddCookie(cookies[0])
			ended = append(ended, r)
			time.Sleep(time.Millisecond) // virtual
		}
		kept := s.login("/")
		for _, r := range ended {
			s.logout(r)
		}
		beside := s.beside(usersOf(t, file))
		for i, r := range ended {
			beside.admits(fmt.Sprint("session ", i), r, false)
		}
		beside.admits("a session that began later", kept, true)
		size, records := 0, 0
		for record, err := range storage.Each(t.Context(), s.Store, "midge.logouts", storage.Scheduled) {
			if err != nil {
				t.Fatal(err)
			}
			size, records = size+len(record.Payload), records+1
		}
		if records != 1 || size > 2<<10 {
			t.Errorf("the logouts of one user take %d records and %d bytes, want one of 2 KiB at most", records, size)
		}
	})
}

// TestAReadOnlyDashboardWritesNoLogout checks that a logout of a read-only dashboard holds in its own
// process, and that the dashboard leaves the storage as it is.
func TestAReadOnlyDashboardWritesNoLogout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{Users: usersOf(t, ann(t)), ReadOnly: true})
		r := s.login("/")
		s.logout(r)
		s.admits("a session that was logged out", r, false)
		s.lacks("midge.logouts")
	})
}
