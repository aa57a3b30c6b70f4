package main

import (
	"context"
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// reduceMost is how many partial counts a reducer merges in one step.
const reduceMost = 100

// reduce merges the partial counts of a part, many into one, until the mappers are done
// and only one count is left, which is the part's total.
func (c *count) reduce(ctx context.Context, part int) error {
	queue := c.partQueue(part)
	for {
		// The order of these two calls matters: once no document is left, only a reducer adds
		// tasks to the part's queue.
		documents, err := c.live(ctx, c.mapQueue())
		if err != nil {
			return err
		}
		counts, err := c.live(ctx, queue)
		if err != nil {
			return err
		}
		mapped := documents == 0
		if mapped && counts == 0 { // no word fell into this part
			return nil
		}
		claimed, err := c.claim(ctx, fmt.Sprintf("reducer-%d", part), queue, reduceMost)
		if err != nil {
			return err
		}
		switch n := len(claimed.Tasks); {
		case n == 0:
			err = c.wait(ctx, queue, claimed.Since)
		case n == 1 && mapped && counts == 1:
			return c.merge(ctx, claimed, c.resultQueue())
		case n == 1: // there is no other count to merge it with yet
			err = c.putBack(ctx, claimed.Fences[0])
		default:
			err = c.merge(ctx, claimed, queue)
		}
		if err != nil {
			return err
		}
	}
}

// merge replaces many tasks by one, in one step.
func (c *count) merge(ctx context.Context, claimed storage.Claimed, into string) error {
	total := make(map[string]int)
	tx := storage.Tx{}
	for i, t := range claimed.Tasks {
		if err := addCounts(total, t); err != nil {
			return err
		}
		tx.Settles = append(tx.Settles, storage.Settle{Fence: claimed.Fences[i], Outcome: storage.Complete})
	}
	in, err := insert(into, storage.NewID(), "counts", total)
	if err != nil {
		return err
	}
	tx.Inserts = []storage.Insert{in}
	if _, err := c.session.ApplyOne(ctx, tx); err != nil {
		return fmt.Errorf("merge %d counts: %w", len(claimed.Tasks), err)
	}
	return nil
}

// putBack ends a claim without charging it. The task becomes due again a little later.
func (c *count) putBack(ctx context.Context, fence storage.Fence) error {
	settle := storage.Settle{Fence: fence, Outcome: storage.Snooze, Delay: 50 * time.Millisecond}
	if _, err := c.session.ApplyOne(ctx, storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
		return fmt.Errorf("put back %s: %w", fence.Ref, err)
	}
	return nil
}
