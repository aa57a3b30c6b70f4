package prometheus_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/metrics/prometheus"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// work is a job whose name decides how it ends.
type work struct{ Name string }

var errBroken = errors.New("it is broken")

func (w work) Run(ctx context.Context) error {
	switch w.Name {
	case "failed":
		return errBroken
	case "timed-out", "cancelled", "released":
		<-ctx.Done()
		return ctx.Err()
	case "panicked":
		panic("it is broken")
	case "discarded":
		return midge.Discard(errBroken)
	case "snoozed":
		return midge.Snooze(24 * time.Hour)
	case "throttled":
		return midge.Throttle(24 * time.Hour)
	case "lost":
		time.Sleep(3 * time.Second) // virtual, and deaf to its context
	}
	return nil
}

// strange is a job of a kind that no runner knows.
type strange struct{}

// cutOff is a storage that extends no lease while it is silent.
type cutOff struct {
	storage.Storage
	silent bool
}

func (c *cutOff) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if c.silent && len(req.Leases) > 0 {
		return storage.Extended{}, storage.ErrUnavailable
	}
	return c.Storage.Extend(ctx, req)
}

// app is an application on a memory storage, inside a bubble.
type app struct {
	*testing.T
	store   storage.Storage
	client  *midge.Client
	metrics *prometheus.Metrics
	heard   map[midge.Outcome]int
	mu      sync.Mutex
}

// counted makes the metrics and the test count the attempts of a runner.
func (a *app) counted(cfg midge.RunnerConfig) midge.RunnerConfig {
	a.metrics.Runner(&cfg)
	cfg.OnEnd = append(cfg.OnEnd, func(_ context.Context, e midge.Ended) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.heard[e.Outcome]++
	})
	return cfg
}

// ended reports an end as a runner does.
func (a *app) ended(ctx context.Context, e midge.Ended) {
	for _, told := range a.counted(midge.RunnerConfig{}).OnEnd {
		told(ctx, e)
	}
}

// run starts a runner and returns a function that stops it.
func (a *app) run(store storage.Storage, queue string, concurrency int) (stop func()) {
	a.Helper()
	runner, err := midge.NewRunner(store, a.counted(midge.RunnerConfig{
		Queues: []string{queue}, Lease: time.Second, Grace: time.Second, Concurrency: concurrency,
	}))
	a.must(err)
	a.must(midge.Register[work](runner))
	ctx, cancel := context.WithCancel(a.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = runner.Run(ctx) // an error means only that jobs outlived the grace period
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (a *app) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

func (a *app) enqueue(job any, opts ...midge.Option) midge.Task {
	a.Helper()
	task, err := a.client.Enqueue(a.Context(), job, opts...)
	a.must(err)
	return task
}

// claim claims the tasks of a queue like a runner that dies with them.
func (a *app) claim(queue string, lease time.Duration) {
	a.Helper()
	c, err := a.store.Claim(a.Context(), storage.ClaimRequest{
		Token: storage.Token{1}, Runner: "dies", Queues: []storage.ClaimQueue{{Name: queue}},
		Start: 1, Lease: lease,
	})
	a.must(err)
	if len(c.Tasks) != 1 {
		a.Fatalf("claimed %d, want 1", len(c.Tasks))
	}
}

func after(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

func bubble(t *testing.T, limits storage.Limits, test func(a *app)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.Open(memory.Config{Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		a := &app{T: t, store: store, heard: map[midge.Outcome]int{}}
		a.client, err = midge.NewClient(store, midge.ClientConfig{})
		a.must(err)
		a.metrics, err = prometheus.New(store, prometheus.Config{})
		a.must(err)
		test(a)
	})
}

// gathered returns the values of a metric, added up for each value of one label.
func (a *app) gathered(metric, label string, value func(*dto.Metric) float64) map[string]float64 {
	a.Helper()
	registry := prom.NewPedanticRegistry()
	a.must(registry.Register(a.metrics))
	families, err := registry.Gather()
	a.must(err)
	found := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if family.GetName() == metric && l.GetName() == label {
					found[l.GetValue()] += value(m)
				}
			}
		}
	}
	return found
}

func counter(m *dto.Metric) float64 { return m.GetCounter().GetValue() }
func gauge(m *dto.Metric) float64   { return m.GetGauge().GetValue() }
func samples(m *dto.Metric) float64 { return float64(m.GetHistogram().GetSampleCount()) }

// outcomes are all fourteen outcomes.
var outcomes = []midge.Outcome{
	midge.OutcomeSucceeded, midge.OutcomeFailed, midge.OutcomeTimedOut, midge.OutcomePanicked,
	midge.OutcomeDiscarded, midge.OutcomeSnoozed, midge.OutcomeReleased, midge.OutcomeCancelled,
	midge.OutcomeExpired, midge.OutcomeLeaseLost, midge.OutcomeUndecodable, midge.OutcomeUnknownKind,
	midge.OutcomeCrashed, midge.OutcomeThrottled,
}

// In this run each of the fourteen outcomes occurs once, and is counted once.
func TestEachOutcomeIsCountedOnce(t *testing.T) {
	bubble(t, storage.Limits{DeclinedFor: 2 * time.Second}, func(a *app) {
		once := midge.Retries(midge.None)
		a.enqueue(work{"crashed"}) // and then succeeded
		a.claim(midge.DefaultQueue, time.Second)
		after(1100 * time.Millisecond)

		stop := a.run(a.store, midge.DefaultQueue, 20)
		a.enqueue(strange{})
		a.enqueue(work{"failed"}, once)
		a.enqueue(work{"timed-out"}, once, midge.Timeout(time.Second))
		a.enqueue(work{"panicked"}, once)
		a.enqueue(work{"discarded"})
		a.enqueue(work{"snoozed"})
		a.enqueue(work{"throttled"}, midge.Partition("acme"))
		a.enqueue(work{"expired"}, midge.Deadline(time.Now().Add(-time.Second)))
		cancelled := a.enqueue(work{"cancelled"})
		after(time.Second)
		_, err := a.client.Cancel(a.Context(), cancelled.Ref)
		a.must(err)

		lost := &cutOff{Storage: a.store}
		stopLost := a.run(lost, "lost", 1)
		a.enqueue(work{"lost"}, midge.To("lost"))
		after(time.Millisecond)
		lost.silent = true
		after(1500 * time.Millisecond)
		a.claim("lost", time.Minute)
		after(4 * time.Second)
		stopLost()

		_, err = a.store.Apply(a.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{{
			Ref: storage.Ref{Queue: midge.DefaultQueue, ID: "bad"}, Kind: "work", Encoding: "json",
			CrashLimit: 3, Payload: []byte("[]"),
		}}})
		a.must(err)
		a.enqueue(work{"released"})
		after(100 * time.Millisecond)
		stop()

		got := a.gathered("midge_attempts_total", "outcome", counter)
		for _, outcome := range outcomes {
			if got[string(outcome)] != 1 || a.heard[outcome] != 1 {
				t.Errorf("%s: counted %v, told %d, want 1", outcome, got[string(outcome)], a.heard[outcome])
			}
		}
		if len(got) != len(outcomes) {
			t.Errorf("got %v, want %d outcomes", got, len(outcomes))
		}
		if kinds := a.gathered("midge_attempts_total", "kind", counter); kinds["unknown"] != 1 || kinds["work"] != 13 {
			t.Errorf("got %v, want 13 of work and 1 unknown", kinds)
		}
	})
}

// alone returns the value of a gauge without labels.
func (a *app) alone(metric string) float64 {
	a.Helper()
	registry := prom.NewPedanticRegistry()
	a.must(registry.Register(a.metrics))
	families, err := registry.Gather()
	a.must(err)
	for _, family := range families {
		if family.GetName() == metric {
			return gauge(family.GetMetric()[0])
		}
	}
	a.Fatalf("%s is not shown", metric)
	return 0
}
