package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/midgehq/midge/storage"
)

// batch is how many documents a mapper claims at once. It commits them one by one.
const batch = 3

// fate is what happens to a mapper that has just claimed.
type fate string

const (
	commits    fate = "commit"
	dies       fate = "die"       // dies at once, with its claim
	oversleeps fate = "oversleep" // sleeps longer than its lease, then commits
)

var errKilled = errors.New("the mapper was killed")

// mapper turns documents into partial counts.
type mapper struct {
	count *count
	name  string
	// fate is called after each claim, refused for each commit that came too late.
	fate    func(first storage.Ref, claimed int) (fate, error)
	refused func(storage.Ref)
}

// run maps until no document is left, neither waiting nor claimed by another mapper. It
// returns errKilled if the mapper dies before that.
func (m *mapper) run(ctx context.Context) error {
	queue := m.count.mapQueue()
	for {
		claimed, err := m.count.claim(ctx, m.name, queue, batch)
		if err != nil {
			return err
		}
		if len(claimed.Tasks) > 0 {
			if err := m.mapAll(ctx, claimed); err != nil {
				return err
			}
			continue
		}
		left, err := m.count.live(ctx, queue)
		if left == 0 || err != nil {
			return err
		}
		if err := m.count.wait(ctx, queue, claimed.Since); err != nil {
			return err
		}
	}
}

func (m *mapper) mapAll(ctx context.Context, claimed storage.Claimed) error {
	fate, err := m.fate(claimed.Tasks[0].Ref, len(claimed.Tasks))
	switch {
	case err != nil:
		return err
	case fate == dies:
		return errKilled
	case fate == oversleeps:
		if err := pause(ctx, lease+2*look); err != nil {
			return err
		}
	}
	for i, t := range claimed.Tasks {
		if err := m.mapOne(ctx, t, claimed.Fences[i]); err != nil {
			return err
		}
	}
	return nil
}

// mapOne counts one document and commits: in one step, the document is completed and
// its counts are in the parts' queues, or nothing has happened.
func (m *mapper) mapOne(ctx context.Context, t storage.Task, fence storage.Fence) error {
	var text string
	if err := json.Unmarshal(t.Payload, &text); err != nil {
		return fmt.Errorf("decode %s: %w", t.Ref, err)
	}
	parts := make([]map[string]int, m.count.parts)
	for _, word := range words(text) {
		p := m.count.partOf(word)
		if parts[p] == nil {
			parts[p] = make(map[string]int)
		}
		parts[p][word]++
	}
	tx := storage.Tx{Settles: []storage.Settle{{Fence: fence, Outcome: storage.Complete}}}
	for p, counts := range parts {
		if counts == nil {
			continue
		}
		in, err := insert(m.count.partQueue(p), storage.NewID(), "counts", counts)
		if err != nil {
			return err
		}
		tx.Inserts = append(tx.Inserts, in)
	}
	_, err := m.count.session.ApplyOne(ctx, tx)
	if errors.Is(err, storage.ErrLeaseLost) { // another mapper has claimed the document
		m.refused(t.Ref)
		return nil
	}
	if err != nil {
		return fmt.Errorf("commit %s: %w", t.Ref, err)
	}
	return nil
}
