package pgfault

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/postgres"
)

// TestLostNotifications drops notifications, and then ends the listener's connection many
// times. Jobs may start a little later meanwhile, and must start at once when that is
// over.
func TestLostNotifications(t *testing.T) {
	testserver.RequirePostgres(t)
	const late, soon, ends = 400 / share, 1000 / share, 100 / share
	proxy := newDeafProxy(t, shared.URL())
	cfg := fresh(t, postgres.Config{})
	p := newPickups(t, cfg, postgres.Config{
		URL: proxy.url(), Schema: cfg.Schema, ListenURL: proxy.url() + "&application_name=" + cfg.Schema,
	})

	p.measure("heard", soon, 1, promptly)
	proxy.deaf.Store(true)
	p.measure("swallowed", late, 8, scanned)
	if proxy.lost.Load() == 0 {
		t.Error("no notification was swallowed")
	}
	proxy.deaf.Store(false)
	p.measure("heard again", soon, 1, promptly)
	p.cut(ends)
	p.measure("after the last end", soon, 1, promptly)
}

// scanned is how long a task may wait that only the slow scan finds: 1 s ± 20 %, and the
// claim.
const scanned = 1200*time.Millisecond + promptly/2

// picked is a job that carries the time when it was enqueued.
type picked struct{ Begun time.Time }

// pickups measures how long tasks wait for a runner that is idle otherwise.
type pickups struct {
	*testing.T

	cfg    postgres.Config
	client *midge.Client
	took   chan time.Duration
	pace   *testserver.Pace
}

// newPickups starts a runner. Another storage, like that of another process, enqueues the
// tasks, so that the runner learns of them only by a notification.
func newPickups(t *testing.T, from, to postgres.Config) *pickups {
	t.Helper()
	p := &pickups{T: t, cfg: to, took: make(chan time.Duration, 100), pace: testserver.StartPace(t)}
	producer, _ := opened(t, from)
	p.client = must(midge.NewClient(producer, midge.ClientConfig{}))(t)
	store, _ := opened(t, to)
	runner := must(midge.NewRunner(store, midge.RunnerConfig{Concurrency: 100}))(t)
	succeed(t, midge.Handle(runner, func(_ context.Context, job picked) error {
		p.took <- time.Since(job.Begun)
		return nil
	}))
	start(t, runner)
	return p
}

// start runs a runner until the test ends.
func start(t *testing.T, runner *midge.Runner) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("runner: %v", err)
		}
	})
}

// once enqueues n jobs and returns how long each waited.
func (p *pickups) once(n int) []time.Duration {
	for range n {
		must(p.client.Enqueue(p.Context(), picked{Begun: time.Now()}))(p)
	}
	waited := make([]time.Duration, n)
	for i := range waited {
		select {
		case waited[i] = <-p.took:
		case <-time.After(time.Minute):
			p.Fatal("a job was not picked up in a minute")
		}
	}
	return waited
}

// measure enqueues n jobs, atOnce at a time, and compares the 99th percentile of their
// waits with a limit.
func (p *pickups) measure(what string, n, atOnce int, limit time.Duration) {
	p.Helper()
	begun := time.Now()
	var waited []time.Duration
	for len(waited) < n {
		waited = append(waited, p.once(atOnce)...)
	}
	slices.Sort(waited)
	half, p99 := waited[len(waited)/2], waited[(len(waited)-1)*99/100]
	p.Logf("%s: %d jobs picked up after %v, p99 %v", what, n, half.Round(time.Microsecond), p99.Round(time.Microsecond))
	if p99 > p.pace.Stretch(limit, begun) {
		p.Errorf("%s: p99 %v, want at most %v", what, p99, limit)
	}
}

// cut ends the listener's connection each time that it is back, and checks that a job is
// picked up meanwhile.
func (p *pickups) cut(times int) {
	p.Helper()
	conn := connect(p, shared.URL())
	var last, pid int32
	back := func() bool {
		pid = value[int32](p, conn, "SELECT coalesce(max(pid), 0) FROM pg_stat_activity "+
			"WHERE application_name = $1 AND state = 'idle' AND query <> ''", p.cfg.Schema)
		return pid != 0 && pid != last
	}
	for range times {
		testserver.Await(p, "the listener is back", back)
		last = pid
		begun := time.Now()
		value[bool](p, conn, "SELECT pg_terminate_backend($1)", pid)
		if waited := p.once(1)[0]; waited > p.pace.Stretch(scanned, begun) {
			p.Errorf("beside an end of the listener: picked up after %v", waited)
		}
	}
	testserver.Await(p, "the listener is back", back)
	p.Logf("the listener's connection was ended %d times", times)
}
