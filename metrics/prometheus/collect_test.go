package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/metrics/prometheus"
	"github.com/midgehq/midge/storage"
)

// Sizes, totals, age, pauses, schedules and slots match the figures of the storage.
func TestAScrapeTellsWhatTheStorageHolds(t *testing.T) {
	bubble(t, storage.Limits{}, func(a *app) {
		a.enqueue(work{"first"}, midge.To("mail"))
		after(time.Minute)
		a.enqueue(work{"second"}, midge.To("mail"))
		a.enqueue(work{"third"}, midge.To("paused"))
		a.must(a.client.Queue("paused").Pause(a.Context()))
		runner, err := midge.NewRunner(a.store, a.counted(midge.RunnerConfig{
			Queues: []string{midge.DefaultQueue}, Concurrency: 7,
		}))
		a.must(err)
		a.must(midge.Register[work](runner))
		a.must(runner.Periodic(midge.Every(time.Hour), work{"ticks"}))
		ctx, cancel := context.WithCancel(a.Context())
		ended := make(chan error, 1)
		go func() { ended <- runner.Run(ctx) }()
		a.enqueue(work{"cancelled"})
		after(15 * time.Second) // a heartbeat lists the running tasks

		a.shows("midge_tasks", "state", map[string]float64{"waiting": 3, "pending": 1, "dead": 0})
		a.shows("midge_oldest_waiting_seconds", "queue", map[string]float64{"mail": 75, "paused": 15, "default": 0})
		a.shows("midge_queue_paused", "queue", map[string]float64{"mail": 0, "paused": 1})
		a.shows("midge_schedules", "queue", map[string]float64{"default": 1})
		a.shows("midge_schedules_orphaned", "queue", map[string]float64{"default": 0})
		a.shows("midge_tasks_declined", "queue", map[string]float64{"default": 0})
		a.shows("midge_records_damaged", "queue", map[string]float64{"default": 0})
		if got := a.gathered("midge_queue_events_total", "event", counter); got["enqueued"] != 4 {
			t.Errorf("got %v, want 4 enqueued", got)
		}
		for metric, want := range map[string]float64{
			"midge_runners": 1, "midge_slots": 7, "midge_slots_in_use": 1, "midge_storage_up": 1,
		} {
			if got := a.alone(metric); got != want {
				t.Errorf("%s: got %v, want %v", metric, got, want)
			}
		}
		cancel()
		a.must(<-ended)
		a.shows("midge_schedules_orphaned", "queue", map[string]float64{"default": 1})
		if got := a.gathered("midge_attempt_duration_seconds", "outcome", samples); got["released"] != 1 {
			t.Errorf("got the durations %v, want that of the release", got)
		}
	})
}

// Only a queue with a limit has the metrics of limits.
func TestAScrapeTellsTheLimitsOfQueues(t *testing.T) {
	bubble(t, storage.Limits{}, func(a *app) {
		own := storage.NewSession(a.store, 0)
		for _, queue := range []string{"full", "slow", "lifted", "free", "each"} {
			a.enqueue(work{"first"}, midge.To(queue))
		}
		a.must(own.SetLimit(a.Context(), "full", storage.Limit{Concurrency: 1}))
		a.must(own.SetLimit(a.Context(), "slow", storage.Limit{Rate: storage.Rate{N: 30, Per: time.Minute}}))
		a.must(own.SetLimit(a.Context(), "lifted", storage.Limit{}))
		a.must(own.SetLimit(a.Context(), "each", storage.Limit{Partition: storage.PartitionLimit{
			Concurrency: 3, Rate: storage.Rate{N: 5, Per: 2 * time.Second},
		}}))
		_, err := own.Claim(a.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "full"}, {Name: "slow"}}, Start: 2, Lease: time.Minute,
		})
		a.must(err)
		for metric, want := range map[string]map[string]float64{
			"midge_queue_limit_concurrency": {"full": 1}, "midge_queue_limit_rate": {"slow": 0.5},
			"midge_queue_partition_limit_concurrency": {"each": 3}, "midge_queue_partition_limit_rate": {"each": 2.5},
			"midge_queue_limited": {"full": 1, "slow": 0, "each": 0},
		} {
			if got := a.gathered(metric, "queue", gauge); !maps.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", metric, got, want)
			}
		}
	})
}

// A partition has no label of its own, because keys are data.
func TestAScrapeCountsTheTasksInPartitions(t *testing.T) {
	bubble(t, storage.Limits{}, func(a *app) {
		own := storage.NewSession(a.store, 0)
		for i, key := range []string{"acme", "acme", "other"} {
			_, err := own.ApplyOne(a.Context(), storage.Tx{Inserts: []storage.Insert{{
				Ref: storage.Ref{Queue: "mail", ID: fmt.Sprint("t", i)}, Kind: "work", Encoding: "json", Payload: []byte("{}"),
				CrashLimit: 3, Partition: key,
			}}})
			a.must(err)
		}
		a.enqueue(work{"first"}, midge.To("mail"))
		a.enqueue(work{"first"}, midge.To("plain"))
		want := map[string]float64{"mail": 3, "plain": 0}
		if got := a.gathered("midge_tasks_partitioned", "queue", gauge); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// shows fails the test if a gauge does not have the wanted values.
func (a *app) shows(metric, label string, want map[string]float64) {
	a.Helper()
	got := a.gathered(metric, label, gauge)
	for value, n := range want {
		if have, ok := got[value]; !ok || have != n {
			a.Errorf("%s of %s %s: got %v, want %v", metric, label, value, got, n)
		}
	}
}

// down is a storage that does not answer.
type down struct{ storage.Storage }

func (down) Stats(context.Context, ...string) ([]storage.Stats, error) {
	return nil, storage.ErrUnavailable
}

func TestAStorageThatIsAwayIsShown(t *testing.T) {
	bubble(t, storage.Limits{}, func(a *app) {
		a.enqueue(work{"first"})
		var err error
		a.metrics, err = prometheus.New(down{a.store}, prometheus.Config{})
		a.must(err)
		a.ended(a.Context(), midge.Ended{Outcome: midge.OutcomeFailed, Task: midge.Task{Kind: "work"}})
		if got := a.alone("midge_storage_up"); got != 0 {
			t.Errorf("midge_storage_up: got %v, want 0", got)
		}
		if got := a.gathered("midge_tasks", "queue", gauge); len(got) != 0 {
			t.Errorf("sizes: got %v, want none", got)
		}
		if got := a.gathered("midge_attempts_total", "outcome", counter); got["failed"] != 1 {
			t.Errorf("attempts: got %v, want one that failed", got)
		}
	})
}

func TestLabelsDoNotGrowWithTheData(t *testing.T) {
	bubble(t, storage.Limits{}, func(a *app) {
		for i := range prometheus.MaxKinds + 10 {
			queue, kind := fmt.Sprintf("q%d", i), fmt.Sprintf("kind%d", i)
			a.enqueue(work{"first"}, midge.To(queue))
			a.ended(a.Context(), midge.Ended{
				Outcome: midge.OutcomeSucceeded, Task: midge.Task{Ref: midge.Ref{Queue: queue}, Kind: kind},
			})
		}
		for label, most := range map[string]int{"kind": prometheus.MaxKinds, "queue": prometheus.MaxQueues} {
			got := a.gathered("midge_attempts_total", label, counter)
			if len(got) != most+1 || got["other"] != float64(prometheus.MaxKinds+10-most) {
				t.Errorf("%s: got %d values, %v of the others; want %d", label, len(got), got["other"], most+1)
			}
		}
		got := a.gathered("midge_tasks", "queue", gauge)
		if n := float64(prometheus.MaxKinds + 10 - prometheus.MaxQueues); len(got) != prometheus.MaxQueues+1 || got["other"] != n {
			t.Errorf("queues: got %d values, %v tasks of the others; want %v", len(got), got["other"], n)
		}
	})
}

// TestTheQueuesWithLabelsAreTheSameInEachProcess scrapes in two processes that met other queues first. No queue
// without a label of its own has events: their sum would fall with each idle queue that vanishes.
func TestTheQueuesWithLabelsAreTheSameInEachProcess(t *testing.T) {
	bubble(t, storage.Limits{}, func(a *app) {
		const more = 3
		first := fmt.Sprintf("q%03d", prometheus.MaxQueues)
		a.enqueue(work{"first"}, midge.To(first))
		a.shows("midge_tasks", "queue", map[string]float64{first: 1})
		for i := range prometheus.MaxQueues + more {
			queue := fmt.Sprintf("q%03d", i)
			a.enqueue(work{"first"}, midge.To(queue))
		}
		a.ended(a.Context(), midge.Ended{
			Outcome: midge.OutcomeSucceeded, Task: midge.Task{Ref: midge.Ref{Queue: first}, Kind: "work"},
		})
		tasks := a.gathered("midge_tasks", "queue", gauge)
		events := a.gathered("midge_queue_events_total", "queue", counter)
		var err error
		a.metrics, err = prometheus.New(a.store, prometheus.Config{})
		a.must(err)
		if got := a.gathered("midge_tasks", "queue", gauge); !maps.Equal(got, tasks) {
			t.Errorf("another process has the queues %v, not %v", got, tasks)
		}
		if got, own := tasks["other"], tasks["q000"]; got != more+1 || own != 1 {
			t.Errorf("the others have %v tasks, and q000 has %v, want %d and 1", got, own, more+1)
		}
		if n, ok := events["other"]; ok || len(events) != prometheus.MaxQueues {
			t.Errorf("%d queues have events, the others %v; want %d, and none", len(events), n, prometheus.MaxQueues)
		}
	})
}

func TestQueuesOfMidgesOwnAreNoLabels(t *testing.T) {
	bubble(t, storage.Limits{}, func(a *app) {
		a.enqueue(work{"first"}, midge.To("mail"))
		own := storage.NewSession(a.store, 0)
		a.must(own.Configure(a.Context(), storage.ReservedQueues+"ledger", storage.Settings{Create: true}))
		if got := a.gathered("midge_tasks", "queue", gauge); len(got) != 1 || got["mail"] != 1 {
			t.Errorf("got %v, want the application's queue alone", got)
		}
	})
}

// A queue that the configuration lists twice is counted once.
func TestAQueueIsCountedOnce(t *testing.T) {
	bubble(t, storage.Limits{}, func(a *app) {
		a.enqueue(work{"first"}, midge.To("mail"))
		a.enqueue(work{"first"}, midge.To("b"))
		queues := []string{"mail", "b", "mail"}
		var err error
		a.metrics, err = prometheus.New(a.store, prometheus.Config{Queues: queues})
		a.must(err)
		want := map[string]float64{"mail": 1, "b": 1}
		if got := a.gathered("midge_tasks", "queue", gauge); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if queues[0] != "mail" || queues[1] != "b" {
			t.Errorf("New changed the queues of its caller: %v", queues)
		}
	})
}

func TestNewRefusesABadConfig(t *testing.T) {
	bubble(t, storage.Limits{}, func(a *app) {
		for name, cfg := range map[string]prometheus.Config{
			"queue name": {Queues: []string{"a b"}},
			"Timeout":    {Timeout: -1},
			"Buckets":    {Buckets: []float64{2, 1}},
			"TooOld":     {TooOld: -1},
			"Accepted":   {Accepted: []string{"nonsense"}},
		} {
			_, err := prometheus.New(a.store, cfg)
			if _, ok := errors.AsType[*midge.InvalidError](err); !ok {
				t.Errorf("%s: got %v, want an *InvalidError", name, err)
			}
		}
		if _, err := prometheus.New(nil, prometheus.Config{}); err == nil {
			t.Error("no storage: got no error")
		}
	})
}

// TestTheMetricsAreTheFiguresOfDoctor compares the metrics with the survey of which the dashboard and the command
// make their figures, on a night with dead tasks and a paused queue.
func TestTheMetricsAreTheFiguresOfDoctor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
		night, err := scene.Open(t.Context(), "night", 0)
		if err != nil {
			t.Fatal(err)
		}
		a := &app{T: t, store: night.Store}
		a.metrics, err = prometheus.New(a.store, prometheus.Config{})
		a.must(err)
		bounds := survey.Bounds{Dead: survey.AnyNumber}
		now, err := survey.Once(t.Context(), a.store, bounds)
		a.must(err)
		tasks, findings := map[string]float64{}, map[string]float64{}
		for _, state := range storage.States()[:7] {
			tasks[string(state)] = float64(now.Sum(func(q *survey.Queue) int64 { return q.Size(state) }))
		}
		found, _ := now.Findings(bounds, survey.Words{})
		for _, f := range found {
			findings[f.Code]++
		}
		if tasks["dead"] != 300 || findings["cause"] != 2 {
			t.Fatalf("the night has %v tasks dead of %v causes, want 300 of 2", tasks["dead"], findings["cause"])
		}
		a.shows("midge_tasks", "state", tasks)
		a.shows("midge_findings", "code", findings)
		if got, want := a.alone("midge_runners"), float64(len(now.Runners)); got != want {
			t.Errorf("%v runners, want %v", got, want)
		}
	})
}
