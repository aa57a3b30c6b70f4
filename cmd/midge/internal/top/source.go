// Package top shows a storage live in a terminal: its queues with their rates, the tasks of a queue, and a
// task. source.go reads the storage, model.go holds the state of the screen, keys.go handles the keys, and
// view.go draws.
package top

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/queues"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// history is the number of rates that a trend keeps.
const history = 60

// pageTasks is the maximum number of tasks in a list.
const pageTasks = 100

// callTime bounds each read of the storage.
const callTime = 5 * time.Second

// sample is the state of the storage at a moment.
type sample struct {
	at      time.Time
	queues  []storage.Stats
	runners []storage.RunnerInfo
}

// read reads the runners and all queues, except midge's own queues.
func read(ctx context.Context, session *storage.Session) (s sample, err error) {
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	store := session.Storage()
	if s.at, err = session.Now(ctx); err != nil {
		return s, err
	}
	if s.runners, err = store.Runners(ctx); err != nil {
		return s, err
	}
	var names []string
	for name, err := range storage.EachQueue(ctx, store, "") {
		if err != nil {
			return s, err
		}
		if !strings.HasPrefix(name, filter.HiddenPrefix) {
			names = append(names, name)
		}
	}
	for chunk := range slices.Chunk(names, storage.MaxNames) {
		stats, err := store.Stats(ctx, chunk...)
		if err != nil {
			return s, err
		}
		s.queues = append(s.queues, stats...)
	}
	return s, nil
}

// queue is a row of the list of queues.
type queue struct {
	storage.Stats

	runners          int
	in, done, failed float64   // per second, over the last samples
	trend            []float64 // rates of done between two samples, oldest first
	samples          []storage.Sample
}

// rateSpan is the number of intervals between samples over which a rate is taken.
const rateSpan = 5

// merge makes the rows of a sample. It takes the earlier samples and trends from the rows before.
func merge(before []queue, s sample) []queue {
	was := make(map[string]queue, len(before))
	for _, q := range before {
		was[q.Queue] = q
	}
	serving := queues.ServingOf(s.runners)
	lines := make([]queue, len(s.queues))
	for i, stats := range s.queues {
		q := was[stats.Queue]
		q.Stats, q.runners = stats, len(serving[stats.Queue])
		q.samples = keep(append(slices.Clone(q.samples), storage.Sample{At: s.at, Stats: stats}), rateSpan+1)
		if n := len(q.samples); n > 1 {
			q.in, q.done, q.failed = rates(q.samples[0], q.samples[n-1])
			_, last, _ := rates(q.samples[n-2], q.samples[n-1])
			q.trend = keep(append(slices.Clone(q.trend), last), history)
		}
		lines[i] = q
	}
	return lines
}

func keep[T any](list []T, most int) []T { return list[max(0, len(list)-most):] }

// rates returns the rates between two samples, per second.
func rates(before, after storage.Sample) (in, done, failed float64) {
	span := after.At.Sub(before.At)
	if span <= 0 {
		return 0, 0, 0
	}
	return queues.FlowOf(&after.Totals).Since(queues.FlowOf(&before.Totals)).PerSecond(span.Seconds())
}

// outlook forecasts when no task waits any more, at the current rates.
func (q *queue) outlook() storage.Outlook {
	if len(q.samples) == 0 {
		return storage.Outlook{Backlog: q.Waiting}
	}
	return storage.Forecast(q.samples[0], q.samples[len(q.samples)-1])
}

// tasks reads up to pageTasks tasks of a queue that are in a state and match a filter. In a state of ended
// tasks, the newest come first.
func tasks(
	ctx context.Context, session *storage.Session, name string, state storage.State, text string,
) (scan.Page, error) {
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	f, err := filter.Parse(text)
	if err != nil {
		return scan.Page{}, err
	}
	req := scan.Request{
		Filter: f.WithHidden(), Queues: []string{name}, States: []storage.State{state}, Limit: pageTasks,
		Count: !f.IsZero(), Newest: true,
	}
	if !slices.Contains(f.States(state), state) {
		return scan.Page{}, nil // the filter names other states
	}
	req.Filter, err = filter.Parse(strings.TrimSpace(text + " state:" + string(state)))
	if err != nil {
		return scan.Page{}, err
	}
	req.Filter = req.Filter.WithHidden()
	return scan.Next(ctx, session.Storage(), req)
}
