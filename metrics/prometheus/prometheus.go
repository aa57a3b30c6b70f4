// Package prometheus exports metrics of midge's queues and jobs to Prometheus. It is a separate
// module, so that only applications that use it download the client library of Prometheus.
//
//	metrics, err := prometheus.New(store, prometheus.Config{})
//	…
//	metrics.Runner(&runnerConfig) // before midge.NewRunner
//	http.Handle("/metrics", metrics.Handler())
//
// An application with its own registry registers the [Metrics] there, instead of using the handler.
//
// # Attempts of this process
//
//	midge_attempts_total             counter    kind, queue, outcome: see midge.Outcome
//	midge_attempt_duration_seconds   histogram  kind, queue, outcome: how long the job ran
//	midge_attempt_wait_seconds       histogram  kind, queue: how long its task had been due
//
// # State of the storage
//
// Each scrape reads the storage. All processes on one storage show the same values: take the max by
// (queue).
//
//	midge_storage_up                 gauge      1 if the storage answered, else 0 and nothing below
//	midge_tasks                      gauge      queue, state
//	midge_tasks_declined             gauge      queue: tasks of kinds that a runner did not handle
//	midge_tasks_partitioned          gauge      queue: waiting tasks in the lines of partitions
//	midge_records_damaged            gauge      queue
//	midge_oldest_waiting_seconds     gauge      queue: see storage.Stats.Oldest
//	midge_queue_paused               gauge      queue: 1 or 0
//	midge_queue_limit_concurrency    gauge      queue: of a limit in force; a queue without one has none
//	midge_queue_limit_rate           gauge      queue: starts a second, likewise
//	midge_queue_partition_limit_concurrency, midge_queue_partition_limit_rate
//	                                 gauge      queue: the bounds of each partition, likewise
//	midge_queue_limited              gauge      queue: 1 if its limit admits no other start now, likewise
//	midge_queue_events_total         counter    queue, event: storage.Totals; "other" has none
//	midge_schedules                  gauge      queue
//	midge_schedules_orphaned         gauge      queue: schedules that no live runner ticks, or damaged
//	midge_runners                    gauge      the live ones
//	midge_slots, midge_slots_in_use  gauge      of all live runners: their concurrency, and what they run
//	midge_findings                   gauge      level, code: the findings of midge doctor, such as "full"
//
// # Labels
//
// The number of values of a label does not grow with the data. All tasks of kinds that no runner
// handled have the kind "unknown". Of the attempts, the first [MaxQueues] queues and [MaxKinds] kinds that a
// process meets have their own values, and all others share "other". In the state of the storage, the first
// [MaxQueues] queues by name have their own values, so that all processes agree. All others share "other":
// their sizes are added up, and the oldest task is the oldest of them all. They have no
// midge_queue_events_total, because a sum falls with a queue that vanishes.
//
// # Alerts and a board
//
// alerts.yml, in the folder of this package, has rules for alerts, and grafana.json a board for
// Grafana. The tests try each rule with promtool, and each expression of the board on a real
// Prometheus. Nobody has opened the board in Grafana yet.
package prometheus

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// MaxQueues and MaxKinds bound how many queues and kinds have their own label values.
const (
	MaxQueues = 200
	MaxKinds  = 500
)

// Config configures [New]. The zero value works.
type Config struct {
	// Queues are the queues whose sizes, totals and schedules are shown. Default: all.
	Queues []string
	// Timeout bounds the calls of a scrape to the storage: default 5 s. Prometheus allows a scrape 10 s.
	Timeout time.Duration
	// TooOld is how long a task may wait before it is a finding. Default five minutes.
	TooOld time.Duration
	// Accepted lists findings that midge_findings does not count, because somebody has accepted them, such as
	// "paused:reports": the names that midge doctor --accept takes. Default none.
	Accepted []string
	// Buckets are the upper bounds of the histograms, in seconds, ascending. Default: 5 ms to an
	// hour, each about three times the one before.
	Buckets []float64
}

// Metrics are the metrics of one process: a prometheus.Collector, which also counts the attempts of
// the process's runners, and has a handler. Its methods are safe for concurrent use.
type Metrics struct {
	cfg    Config
	bounds survey.Bounds
	reader *survey.Reader
	turn   chan struct{} // a semaphore: one scrape reads at a time

	queues, kinds *labels // of attempts

	attempts       *prom.CounterVec
	duration, wait *prom.HistogramVec

	mu     sync.RWMutex
	series map[ending]*series // only for kinds and queues with their own label values
}

// ending holds what the labels of an attempt are made of.
type ending struct {
	kind, queue string
	outcome     midge.Outcome
}

// series holds the counters of attempts with the same labels.
type series struct {
	attempts       prom.Counter
	duration, wait prom.Observer
}

var _ prom.Collector = (*Metrics)(nil)

// New returns the metrics of a storage. It does no I/O. Its errors are *[midge.InvalidError].
func New(store storage.Storage, cfg Config) (*Metrics, error) {
	if store == nil {
		return nil, storage.Invalid("storage", "nil", "an opened storage")
	}
	for _, queue := range cfg.Queues {
		if err := storage.CheckName("queue name", queue); err != nil {
			return nil, err
		}
	}
	if cfg.Timeout < 0 {
		return nil, storage.Invalid("Config.Timeout", cfg.Timeout, "0 or more")
	}
	if cfg.TooOld < 0 {
		return nil, storage.Invalid("Config.TooOld", cfg.TooOld, "0 for five minutes, or a longer time than none")
	}
	for _, name := range cfg.Accepted {
		if err := survey.CheckAccepted("Config.Accepted", name); err != nil {
			return nil, err
		}
	}
	for i, bound := range cfg.Buckets {
		if i > 0 && bound <= cfg.Buckets[i-1] {
			return nil, storage.Invalid("Config.Buckets", cfg.Buckets, "bounds that ascend")
		}
	}
	cfg.Queues = slices.Compact(slices.Sorted(slices.Values(cfg.Queues)))
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.Buckets == nil {
		cfg.Buckets = []float64{.005, .015, .05, .15, .5, 1.5, 5, 15, 60, 300, 1200, 3600}
	}
	m := &Metrics{
		cfg: cfg, series: make(map[ending]*series), turn: make(chan struct{}, 1),
		bounds: survey.Bounds{Oldest: cfg.TooOld, Dead: survey.AnyNumber, Accepted: cfg.Accepted},
		// Each process of a fleet is scraped, so that each counts only the newest dead tasks by cause.
		reader: survey.NewReader(store, survey.Config{Queues: cfg.Queues, Dead: storage.MaxPage}),
	}
	m.queues, m.kinds = newLabels(MaxQueues), newLabels(MaxKinds)
	m.attempts = prom.NewCounterVec(prom.CounterOpts{
		Name: "midge_attempts_total", Help: "Attempts that ended here, and tasks that none ended, by outcome.",
	}, []string{"kind", "queue", "outcome"})
	m.duration = prom.NewHistogramVec(prom.HistogramOpts{
		Name: "midge_attempt_duration_seconds", Help: "How long jobs ran.", Buckets: cfg.Buckets,
	}, []string{"kind", "queue", "outcome"})
	m.wait = prom.NewHistogramVec(prom.HistogramOpts{
		Name: "midge_attempt_wait_seconds", Help: "How long tasks had been due when their job began.",
		Buckets: cfg.Buckets,
	}, []string{"kind", "queue"})
	return m, nil
}

// Runner makes all runners of a configuration count their attempts. It adds a function to OnEnd,
// which does no I/O.
func (m *Metrics) Runner(cfg *midge.RunnerConfig) {
	cfg.OnEnd = append(slices.Clip(cfg.OnEnd), m.ended)
}

// ended counts an attempt.
func (m *Metrics) ended(_ context.Context, e midge.Ended) {
	like := ending{e.Task.Kind, e.Task.Queue, e.Outcome}
	m.mu.RLock()
	counts := m.series[like]
	m.mu.RUnlock()
	if counts == nil {
		counts = m.seriesOf(like)
	}
	counts.attempts.Inc()
	if e.Took > 0 {
		counts.duration.Observe(e.Took.Seconds())
	}
	if e.Wait > 0 {
		counts.wait.Observe(e.Wait.Seconds())
	}
}

// seriesOf returns the counters of attempts with the same labels, and caches them if the names
// have their own label values.
func (m *Metrics) seriesOf(like ending) *series {
	kind, queue, outcome := unknown, m.queues.of(like.queue), string(like.outcome)
	if like.outcome != midge.OutcomeUnknownKind {
		kind = m.kinds.of(like.kind)
	}
	counts := &series{
		attempts: m.attempts.WithLabelValues(kind, queue, outcome),
		duration: m.duration.WithLabelValues(kind, queue, outcome),
		wait:     m.wait.WithLabelValues(kind, queue),
	}
	if kind == like.kind && queue == like.queue {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.series[like] = counts
	}
	return counts
}

// Handler serves the metrics, and those of the Go runtime and the process, from its own registry.
func (m *Metrics) Handler() http.Handler {
	registry := prom.NewRegistry()
	registry.MustRegister(m, newRuntime(), newProcess())
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
