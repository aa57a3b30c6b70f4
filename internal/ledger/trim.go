package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// Bounds of the age and of the number of the records that are kept. Each author has at most MaxShare records:
// then the author's next record displaces the author's oldest one, and no record of anybody else.
const (
	ActionsKept = 90 * 24 * time.Hour
	MaxActions  = 10_000
	MaxShare    = MaxActions / 10
)

// trimEach is after about how many actions of all processes the surplus actions are deleted. This bounds the
// audit also if no process keeps a ledger.
const trimEach = 1000

// trimFrom is the number of the action, counted from the newest one, from which Begin takes the time when it
// trims. A command that begins while the storage's clock is ahead does not notice that. The hundredth newest
// action is older than the jump, unless a hundred actions were begun since.
const trimFrom = 100

// Trim deletes the actions that are older than 90 days at the moment now, and all but the newest actions of
// each author: see MaxShare. A process that keeps a ledger calls it once a day, and Begin trims once in a
// thousand actions.
func (a *Audit) Trim(ctx context.Context, now time.Time) error { return a.trim(ctx, now, 0) }

// trim does what Trim does. If the action with the number from, counted from the newest action, was begun
// before now, the age of the actions counts from the time of that action.
func (a *Audit) trim(ctx context.Context, now time.Time, from int) error {
	n, kept := 0, make(map[author][]storage.Delete) // the newest first
	var old []storage.Delete
	for t, err := range storage.Each(ctx, a.store, AuditQueue, storage.Scheduled) {
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		if n++; n == from && t.Created.Before(now) {
			now = t.Created
		}
		record := storage.Delete{Ref: t.Ref, Version: t.Version}
		if n > from && t.Created.Before(now.Add(-ActionsKept)) {
			old = append(old, record)
			continue
		}
		e := entryOf(&t)
		kept[e.author()] = append(kept[e.author()], record)
	}
	share := shareOf(slices.Collect(maps.Values(kept)))
	for _, records := range kept {
		old = append(old, records[min(len(records), share):]...)
	}
	return a.remove(ctx, old)
}

// shareOf returns how many records each author has room for: MaxShare, or less if there are so many authors
// that all records together would be more than MaxActions. Authors with few records then keep all of them,
// and each author keeps at least one.
func shareOf(kept [][]storage.Delete) int {
	slices.SortFunc(kept, func(a, b []storage.Delete) int { return len(a) - len(b) })
	room := MaxActions
	for i, records := range kept {
		share := max(1, min(MaxShare, room/(len(kept)-i)))
		if len(records) >= share {
			return share
		}
		room -= len(records)
	}
	return MaxShare
}

// remove deletes records.
func (a *Audit) remove(ctx context.Context, old []storage.Delete) error {
	var errs []error
	for some := range slices.Chunk(old, storage.MaxPage) {
		txs := make([]storage.Tx, len(some))
		for i := range some {
			txs[i].Deletes = some[i : i+1]
		}
		applied, err := a.session.Apply(ctx, txs...)
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		for i := range applied {
			if err := applied[i].Err; err != nil && !raced(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
