package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/midgehq/midge/storage"
)

// crew runs mappers and reducers, kills mappers, and replaces them.
type crew struct {
	count *count
	cfg   config

	mu      sync.Mutex // guards what follows
	out     io.Writer
	claims  int
	hired   int
	killed  int
	late    int
	refused int
}

func newCrew(c *count, cfg config, out io.Writer) *crew {
	return &crew{count: c, cfg: cfg, out: out}
}

// work runs the crew and returns when all words are counted, or with the first error.
func (w *crew) work(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	start := func(work func(context.Context) error) {
		all.Go(func() {
			if err := work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	for range w.cfg.mappers {
		start(w.keepMapping)
	}
	for part := range w.cfg.parts {
		start(func(ctx context.Context) error { return w.count.reduce(ctx, part) })
	}
	all.Wait()
	return context.Cause(ctx)
}

// keepMapping runs one mapper after the other until one ends without being killed.
func (w *crew) keepMapping(ctx context.Context) error {
	for {
		name := w.hire()
		var err error
		if w.cfg.mapperProcess != nil {
			err = w.cfg.mapperProcess.run(ctx, w, name)
		} else {
			m := &mapper{count: w.count, name: name, refused: w.tooLate}
			m.fate = func(first storage.Ref, claimed int) (fate, error) {
				return w.decide(name, first.ID, claimed), nil
			}
			err = m.run(ctx)
		}
		if !errors.Is(err, errKilled) {
			return err
		}
	}
}

func (w *crew) hire() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hired++
	return fmt.Sprintf("mapper-%d", w.hired)
}

// decide kills the mapper at every third claim, and makes it oversleep at every other
// third, until there were enough of each.
func (w *crew) decide(name, first string, claimed int) fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims++
	switch {
	case w.claims%3 == 0 && w.killed < w.cfg.kills:
		w.killed++
		sayf(w.out, "%s is killed with %d documents in its hands, the first %s", name, claimed, first)
		return dies
	case w.claims%3 == 1 && w.late < w.cfg.kills:
		w.late++
		sayf(w.out, "%s falls asleep over %d documents, the first %s", name, claimed, first)
		return oversleeps
	}
	return commits
}

func (w *crew) tooLate(ref storage.Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused++
	sayf(w.out, "the commit of %s came too late and was refused", ref.ID)
}
