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
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// history is the number of rates that a trend keeps.
const history = 60

// pageTasks is the maximum number of tasks in a list.
const pageTasks = 100

// callTime bounds each read of the storage.
const callTime = 5 * time.Second

// read reads the runners and all queues, except midge's own queues.
func read(ctx context.Context, reader *survey.Reader) (*survey.Survey, error) {
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	return reader.Read(ctx)
}

// surveyed is an alias, because an embedded field named Queue would hide the name of the queue.
type surveyed = survey.Queue

// queue is a row of the list of queues.
type queue struct {
	*surveyed

	outlook storage.Outlook
	level   survey.Level // of the worst finding about the queue, "" for none
	trend   []float64    // rates of done between two samples, oldest first
}

// merge makes the rows of a survey. It takes the earlier trends from the rows before.
func merge(before []queue, s *survey.Survey, found []survey.Finding) []queue {
	was := make(map[string]*queue, len(before))
	for i := range before {
		was[before[i].Queue] = &before[i]
	}
	levels := make(map[string]survey.Level)
	for _, f := range slices.Backward(found) { // the worst last
		levels[f.Queue] = f.Level
	}
	lines := make([]queue, len(s.Queues))
	for i := range s.Queues {
		q := queue{surveyed: &s.Queues[i], outlook: s.Outlook(&s.Queues[i]), level: levels[s.Queues[i].Queue]}
		if old := was[q.Queue]; old != nil {
			q.trend = keep(append(slices.Clone(old.trend), max(q.Done, 0)), history)
		}
		lines[i] = q
	}
	return lines
}

func keep[T any](list []T, most int) []T { return list[max(0, len(list)-most):] }

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
