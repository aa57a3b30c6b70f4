package midge

import (
	"context"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// sweeper is the actor that maintains the queues that its runner does not serve: tasks
// that fall due or lose their lease where no runner claims. It looks after the storage too.
type sweeper struct {
	r *Runner
	// warned are the storage's warnings as of the last look, which are in the log.
	warned []string
}

const (
	sweepScan = 30 * time.Second // ± 20 %
	sweepSize = 50               // queues of one call
)

// loop sweeps until ctx ends.
func (s *sweeper) loop(ctx context.Context) {
	for {
		t := time.NewTimer(jitter(sweepScan))
		select {
		case <-t.C:
			s.sweep(ctx)
			s.look(ctx)
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// sweep goes over all queues once, in calls that each stay within a domain.
func (s *sweeper) sweep(ctx context.Context) {
	var open [][]string // the queues of calls to come
	for name, err := range storage.EachQueue(ctx, s.r.store, "") {
		if err != nil {
			s.trouble(ctx, "list the queues", err)
			return
		}
		if s.r.serves(name) {
			continue
		}
		at := slices.IndexFunc(open, func(queues []string) bool {
			return storage.Spans(s.r.store, queues[0], name)
		})
		if at < 0 {
			at, open = len(open), append(open, nil)
		}
		if open[at] = append(open[at], name); len(open[at]) == sweepSize {
			s.maintain(ctx, open[at])
			open = slices.Delete(open, at, at+1)
		}
	}
	for _, queues := range open {
		s.maintain(ctx, queues)
	}
}

// look logs what the storage warns of now and did not before.
func (s *sweeper) look(ctx context.Context) {
	d, err := s.r.store.Describe(ctx)
	if err != nil {
		s.trouble(ctx, "look at the storage", err)
		return
	}
	for _, w := range d.Warnings {
		if !slices.Contains(s.warned, w) {
			s.r.log.warn(w)
		}
	}
	s.warned = d.Warnings
}

// maintain maintains queues of one domain. One that does not answer is left for the next
// sweep.
func (s *sweeper) maintain(ctx context.Context, queues []string) {
	req := storage.ClaimRequest{Runner: s.r.id}
	for _, q := range queues {
		req.Queues = append(req.Queues, storage.ClaimQueue{Name: q, Max: -1})
	}
	claimed, err := s.r.beats.Claim(ctx, req)
	if err != nil {
		s.trouble(ctx, "maintain queues", err)
		return
	}
	s.r.log.buried(claimed.Buried)
	for _, t := range claimed.Ticks {
		s.r.tick(ctx, s.r.beats, dueCursor{t, claimed.Now})
	}
}

func (s *sweeper) trouble(ctx context.Context, act string, err error) {
	if ctx.Err() == nil {
		s.r.log.trouble(act, err)
	}
}
