package prometheus

import (
	"context"
	"maps"
	"slices"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

func newRuntime() prom.Collector { return collectors.NewGoCollector() }

func newProcess() prom.Collector {
	return collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
}

func desc(name, help string, names ...string) *prom.Desc { return prom.NewDesc(name, help, names, nil) }

// descs describes the metrics that each scrape reads from the storage.
var descs = struct {
	up, tasks, declined, damaged, oldest, paused, events, schedules, orphaned *prom.Desc
	runners, slots, used, findings, most, rate, limited, partitioned          *prom.Desc
	mostEach, rateEach                                                        *prom.Desc
}{
	up:          desc("midge_storage_up", "Whether the storage answered this scrape."),
	tasks:       desc("midge_tasks", "Tasks by state.", "queue", "state"),
	declined:    desc("midge_tasks_declined", "Waiting tasks of kinds that a runner did not know.", "queue"),
	partitioned: desc("midge_tasks_partitioned", "Waiting tasks in the lines of partitions.", "queue"),
	damaged:     desc("midge_records_damaged", "Records that could not be read and were set apart.", "queue"),
	oldest:      desc("midge_oldest_waiting_seconds", "Age of the oldest waiting task.", "queue"),
	paused:      desc("midge_queue_paused", "Whether the queue is paused.", "queue"),
	most:        desc("midge_queue_limit_concurrency", "Tasks that a limit lets run at once.", "queue"),
	rate:        desc("midge_queue_limit_rate", "Tasks that a limit lets start in a second.", "queue"),
	mostEach:    desc("midge_queue_partition_limit_concurrency", "Tasks of each partition at once.", "queue"),
	rateEach:    desc("midge_queue_partition_limit_rate", "Starts of each partition a second.", "queue"),
	limited:     desc("midge_queue_limited", "Whether a limit admits no other start now.", "queue"),
	events:      desc("midge_queue_events_total", "What happened to tasks in a queue's life.", "queue", "event"),
	schedules:   desc("midge_schedules", "Schedules.", "queue"),
	orphaned:    desc("midge_schedules_orphaned", "Orphaned and damaged schedules.", "queue"),
	runners:     desc("midge_runners", "Live runners."),
	slots:       desc("midge_slots", "Jobs that the live runners can run at once."),
	used:        desc("midge_slots_in_use", "Jobs that the live runners run."),
	findings:    desc("midge_findings", "Findings of midge doctor that are not accepted.", "level", "code"),
}

// Describe sends the descriptions of all metrics.
func (m *Metrics) Describe(to chan<- *prom.Desc) {
	for _, d := range []*prom.Desc{
		descs.up, descs.tasks, descs.declined, descs.damaged, descs.oldest, descs.paused, descs.events,
		descs.schedules, descs.orphaned, descs.runners, descs.slots, descs.used, descs.findings,
		descs.most, descs.rate, descs.mostEach, descs.rateEach, descs.limited, descs.partitioned,
	} {
		to <- d
	}
	m.attempts.Describe(to)
	m.duration.Describe(to)
	m.wait.Describe(to)
}

// Collect reads the storage, and sends all metrics. If the storage does not answer,
// midge_storage_up is 0, and the metrics of attempts that ended in this process are sent all the
// same.
func (m *Metrics) Collect(to chan<- prom.Metric) {
	//nolint:forbidigo // Prometheus' interface has no context
	ctx, cancel := context.WithTimeout(context.Background(), m.cfg.Timeout)
	defer cancel()
	found, err := m.read(ctx)
	up := 1.0
	if err != nil {
		up = 0
	}
	to <- prom.MustNewConstMetric(descs.up, prom.GaugeValue, up)
	if err == nil {
		found.send(to)
	}
	m.attempts.Collect(to)
	m.duration.Collect(to)
	m.wait.Collect(to)
}

// reading is the result of one scrape of the storage.
type reading struct {
	own                  map[string]bool   // the queues with a label of their own
	queues               map[string]*queue // by label
	findings             map[survey.Sort]int
	runners, slots, used int
}

// queue holds the numbers of a queue, or of all queues that share a label.
type queue struct {
	storage.Stats

	declined, orphaned int64
	shared             bool // by queues without a label of their own

	// The limits in force, added up. limited is set if one of them admits no other start now.
	most, rate       float64
	bounded, limited bool
	// The largest bounds of a partition.
	mostEach, rateEach float64
}

// read reads the storage. Scrapes at the same time read one after the other.
func (m *Metrics) read(ctx context.Context) (*reading, error) {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m.reader.Forget()
	now, err := m.reader.Read(ctx)
	if err != nil {
		return nil, err
	}
	found := &reading{
		own: make(map[string]bool), queues: make(map[string]*queue), findings: make(map[survey.Sort]int),
	}
	for i := range now.Queues {
		name := now.Queues[i].Queue
		found.own[name] = i < MaxQueues // by name, so that all processes agree
		found.of(name).add(&now.Queues[i].Stats)
	}
	for i := range now.Schedules {
		if c := &now.Schedules[i]; c.Orphaned || c.Damaged {
			found.of(c.Queue).orphaned++
		}
	}
	used, slots := now.Slots()
	found.runners, found.slots, found.used = len(now.Runners), int(slots), int(used)
	for _, sort := range survey.Sorts() {
		found.findings[sort] = 0
	}
	list, _ := now.Findings(m.bounds, survey.Words{})
	for i := range list {
		found.findings[survey.Sort{Level: list[i].Level, Code: list[i].Code}]++
	}
	return found, nil
}

// of returns the numbers of the label of a queue.
func (f *reading) of(name string) *queue {
	label := name
	if !f.own[name] {
		label = other
	}
	if f.queues[label] == nil {
		f.queues[label] = &queue{}
	}
	f.queues[label].shared = f.queues[label].shared || !f.own[name]
	return f.queues[label]
}

// add adds the numbers of one queue.
func (q *queue) add(s *storage.Stats) {
	q.Add(s)
	q.Paused = q.Paused || s.Paused
	for _, kind := range s.Declined {
		q.declined += kind.Tasks
	}
	l := s.Limit.InForce()
	q.most, q.rate = q.most+float64(l.Concurrency), q.rate+perSecond(l.Rate)
	q.mostEach = max(q.mostEach, float64(l.Partition.Concurrency))
	q.rateEach = max(q.rateEach, perSecond(l.Partition.Rate))
	q.bounded, q.limited = q.bounded || !l.IsZero(), q.limited || survey.AtLimit(s)
}

// perSecond returns how many tasks a rate lets start in a second, 0 for no rate.
func perSecond(r storage.Rate) float64 {
	if r.N == 0 {
		return 0
	}
	return float64(r.N) / r.Per.Seconds()
}

// events returns the totals by name.
func events(t *storage.Totals) map[string]int64 {
	return map[string]int64{
		"enqueued": t.Enqueued, "requeued": t.Requeued, "completed": t.Completed, "dead": t.Dead,
		"cancelled": t.Cancelled, "deleted": t.Deleted, "failed": t.Failed, "crashed": t.Crashed,
		"evicted": t.Evicted,
	}
}

// send sends the metrics of a reading.
func (f *reading) send(to chan<- prom.Metric) {
	gauge := func(d *prom.Desc, v float64, labels ...string) {
		to <- prom.MustNewConstMetric(d, prom.GaugeValue, v, labels...)
	}
	gauge(descs.runners, float64(f.runners))
	gauge(descs.slots, float64(f.slots))
	gauge(descs.used, float64(f.used))
	for sort, n := range f.findings {
		gauge(descs.findings, float64(n), string(sort.Level), sort.Code)
	}
	for _, label := range slices.Sorted(maps.Keys(f.queues)) {
		q := f.queues[label]
		for _, state := range storage.TaskStates() {
			gauge(descs.tasks, float64(q.Size(state)), label, string(state))
		}
		for event, n := range events(&q.Totals) {
			if q.shared { // the sum falls with a queue that vanishes, which no counter does
				break
			}
			to <- prom.MustNewConstMetric(descs.events, prom.CounterValue, float64(n), label, event)
		}
		gauge(descs.paused, truth(q.Paused), label)
		q.sendLimit(gauge, label)
		gauge(descs.oldest, q.Oldest.Round(time.Millisecond).Seconds(), label)
		gauge(descs.declined, float64(q.declined), label)
		gauge(descs.partitioned, float64(q.Partitioned), label)
		gauge(descs.damaged, float64(q.Damaged), label)
		gauge(descs.schedules, float64(q.Cursors), label)
		gauge(descs.orphaned, float64(q.orphaned), label)
	}
}

// sendLimit sends the metrics of a limit, and those bounds alone that it has.
func (q *queue) sendLimit(gauge func(d *prom.Desc, v float64, labels ...string), label string) {
	if !q.bounded {
		return
	}
	for d, bound := range map[*prom.Desc]float64{
		descs.most: q.most, descs.rate: q.rate, descs.mostEach: q.mostEach, descs.rateEach: q.rateEach,
	} {
		if bound > 0 {
			gauge(d, bound, label)
		}
	}
	gauge(descs.limited, truth(q.limited), label)
}

// truth returns 1 for true and 0 for false.
func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
