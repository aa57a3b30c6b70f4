package dashboard_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// panicking is a storage whose calls can panic.
type panicking struct {
	storage.Storage

	on atomic.Bool
}

func (p *panicking) panics() {
	if p.on.Load() {
		panic("a bug of the storage")
	}
}

func (p *panicking) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	p.panics()
	return p.Storage.Apply(ctx, call, txs...)
}

func (p *panicking) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	p.panics()
	return p.Storage.Task(ctx, ref)
}

func (p *panicking) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	p.panics()
	return p.Storage.Tasks(ctx, q)
}

func (p *panicking) Queues(ctx context.Context, q storage.QueuesQuery) (storage.QueuesPage, error) {
	p.panics()
	return p.Storage.Queues(ctx, q)
}

func (p *panicking) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	p.panics()
	return p.Storage.Stats(ctx, queues...)
}

func (p *panicking) Partitions(ctx context.Context, q storage.PartitionsQuery) (storage.PartitionsPage, error) {
	p.panics()
	return p.Storage.Partitions(ctx, q)
}

func (p *panicking) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	p.panics()
	return p.Storage.Runners(ctx)
}

func (p *panicking) Configure(ctx context.Context, call storage.Call, queue string, settings storage.Settings) error {
	p.panics()
	return p.Storage.Configure(ctx, call, queue, settings)
}

func (p *panicking) Describe(ctx context.Context) (storage.Description, error) {
	p.panics()
	return p.Storage.Describe(ctx)
}

// TestAStorageThatPanicsEndsNoProcess checks panics in pages, in the live stream, in the history, and in the
// goroutines of a read.
func TestAStorageThatPanicsEndsNoProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		store := &panicking{Storage: sc.Store}
		h, err := dashboard.Handler(store, dashboard.Config{Who: as(access.Admin).Who, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t: t, Scene: sc, Dashboard: h}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { s.Run(ctx) })
		all.Go(func() { s.do(request(http.MethodGet, "/events", "").WithContext(ctx)) })
		s.get("/")
		store.on.Store(true)
		for path, want := range map[string]int{
			"/": 200, "/queues": 200, "/dead": 200, "/metrics": 500, "/tasks": 500, "/audit": 500, "/r/mail/x": 500,
		} {
			time.Sleep(2 * sampler.Period) // virtual, so that another read is due
			if w := s.do(request(http.MethodGet, path, "")); w.Code != want {
				t.Errorf("GET %s: %d, want %d", path, w.Code, want)
			}
		}
		if code, _ := s.post("/action", "do", "pause", "queue", "mail"); code != http.StatusInternalServerError {
			t.Errorf("POST /action: %d, want 500", code)
		}
		time.Sleep(2 * time.Minute) // virtual, so that a sample of the history is due
		stop()
		all.Wait()
		for _, call := range []string{"Stats", "Task", "Describe"} {
			line := "call=" + call + ` panic="a bug of the storage" stack=`
			if got := strings.Count(log.String(), line); got != 1 {
				t.Errorf("the log has %d stacks of %s, want one", got, call)
			}
		}
		store.on.Store(false)
		time.Sleep(2 * sampler.Period) // virtual, so that another read is due
		s.shows("/", "All clear.")
	})
}

// badLog is a handler that fails.
type badLog struct {
	slog.Handler

	fail func()
}

func (l badLog) Handle(context.Context, slog.Record) error { l.fail(); return nil }

// TestALogThatFailsEndsNoProcess checks lines about pages, and about the goroutines of a read.
func TestALogThatFailsEndsNoProcess(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			sc, err := scene.Open(t.Context(), "calm", 0)
			if err != nil {
				t.Fatal(err)
			}
			store := &panicking{Storage: sc.Store}
			h, err := dashboard.Handler(store, dashboard.Config{Who: as(access.Admin).Who, Log: slog.New(badLog{slog.DiscardHandler, fail})})
			if err != nil {
				t.Fatal(err)
			}
			s := &site{t: t, Scene: sc, Dashboard: h}
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() { s.Run(ctx) })
			s.get("/")
			store.on.Store(true)
			for path, want := range map[string]int{"/": 200, "/tasks": 500} {
				time.Sleep(2 * sampler.Period) // virtual, so that another read is due
				if w := s.do(request(http.MethodGet, path, "")); w.Code != want {
					t.Errorf("%s: GET %s: %d, want %d", name, path, w.Code, want)
				}
			}
			time.Sleep(2 * time.Minute) // virtual, so that a sample of the history is due
			store.on.Store(false)
			s.shows("/", "All clear.")
			stop()
			all.Wait()
		})
	}
}

// TestAnErrorOfTheStorageNamesNoServerOnAPage checks that the answers to a storage that fails do not show the
// address in its error, and that the log does.
func TestAnErrorOfTheStorageNamesNoServerOnAPage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const address = "10.9.8.7:6379"
		sc, err := scene.Open(t.Context(), "night", 0)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		cfg := as(access.Admin)
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		h, err := dashboard.Handler(&down{sc.Store, fmt.Errorf("%w: dial tcp %s: refused", storage.ErrUnavailable, address)}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t: t, Scene: sc, Dashboard: h}
		for _, path := range []string{"/", "/tasks", "/r/mail/x", "/audit", "/search?q=a", "/action?do=pause&queue=mail"} {
			if page := s.do(request(http.MethodGet, path, "")).Body.String(); strings.Contains(page, "10.9.8.7") {
				t.Errorf("GET %s shows the address of the server", path)
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		stream := s.do(request(http.MethodGet, "/events", "").WithContext(ctx)).Body.String()
		if !strings.Contains(stream, "lost") || strings.Contains(stream, "10.9.8.7") {
			t.Errorf("the stream has %s", stream)
		}
		if !strings.Contains(log.String(), address) {
			t.Errorf("the log does not have the address: %s", &log)
		}
	})
}

// down is a storage that fails all calls that read.
type down struct {
	storage.Storage

	err error
}

func (d *down) Task(context.Context, storage.Ref) (storage.Task, error) {
	return storage.Task{}, d.err
}

func (d *down) Tasks(context.Context, storage.TasksQuery) (storage.TasksPage, error) {
	return storage.TasksPage{}, d.err
}

func (d *down) Queues(context.Context, storage.QueuesQuery) (storage.QueuesPage, error) {
	return storage.QueuesPage{}, d.err
}

func (d *down) Stats(context.Context, ...string) ([]storage.Stats, error) { return nil, d.err }

func (d *down) Describe(context.Context) (storage.Description, error) {
	return storage.Description{}, d.err
}
