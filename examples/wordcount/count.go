package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/midgehq/midge/storage"
)

const (
	// lease is the shortest lease that a storage accepts, so that the documents of a
	// killed mapper are soon claimed by another.
	lease = storage.MinLease
	// look is how often waiting workers check again without a wake-up, because an expired
	// lease sends none.
	look = lease / 4
	// crashLimit is far above the number of crashes that the kills of this program charge.
	// The program causes them, not the documents.
	crashLimit = 1000
	encoding   = "json"
)

// count is one word count: its queues and the operations that all workers share.
type count struct {
	store   storage.Storage
	session *storage.Session
	name    string // prefix of the names of all
	parts   int
}

func newCount(opened storage.Storage, name string, parts int) *count {
	return &count{store: opened, session: storage.NewSession(opened, 0), name: name, parts: parts}
}

func (c *count) mapQueue() string       { return c.name + ".map" }
func (c *count) partQueue(i int) string { return c.name + ".part" + strconv.Itoa(i) }
func (c *count) resultQueue() string    { return c.name + ".result" }
func (c *count) partOf(word string) int { return int(hash(word) % uint32(c.parts)) }
func (c *count) queues() (names []string) {
	for i := range c.parts {
		names = append(names, c.partQueue(i))
	}
	return append(names, c.mapQueue(), c.resultQueue())
}

func hash(word string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(word)) // never fails (hash.Hash)
	return h.Sum32()
}

// load inserts a map task for each document, up to a hundred in one call, each in a Tx
// of its own.
func (c *count) load(ctx context.Context, docs []string) error {
	txs := make([]storage.Tx, len(docs))
	for i, text := range docs {
		in, err := insert(c.mapQueue(), fmt.Sprintf("doc-%03d", i+1), "document", text)
		if err != nil {
			return err
		}
		txs[i].Inserts = []storage.Insert{in}
	}
	for len(txs) > 0 {
		n := min(len(txs), 100)
		applied, err := c.session.Apply(ctx, txs[:n]...)
		if err != nil {
			return fmt.Errorf("load documents: %w", err)
		}
		for _, a := range applied {
			if a.Err != nil {
				return fmt.Errorf("load documents: %w", a.Err)
			}
		}
		txs = txs[n:]
	}
	return nil
}

func insert(queue, id, kind string, v any) (storage.Insert, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return storage.Insert{}, fmt.Errorf("encode %s: %w", kind, err)
	}
	return storage.Insert{
		Ref: storage.Ref{Queue: queue, ID: id}, Kind: kind,
		Encoding: encoding, Payload: payload, CrashLimit: crashLimit,
	}, nil
}

// claim claims up to most tasks of a queue, all of which start at once.
func (c *count) claim(ctx context.Context, worker, queue string, most int) (storage.Claimed, error) {
	claimed, err := c.session.Claim(ctx, storage.ClaimRequest{
		Runner: worker, Queues: []storage.ClaimQueue{{Name: queue}},
		Start: most, Suspect: true, Lease: lease,
	})
	if err != nil {
		return claimed, fmt.Errorf("claim from %s: %w", queue, err)
	}
	return claimed, nil
}

// wait returns when there may be a task in the queue, or when it is time to check again.
func (c *count) wait(ctx context.Context, queue string, since storage.Since) error {
	bounded, cancel := context.WithTimeout(ctx, look)
	defer cancel()
	err := c.store.Wait(bounded, storage.WaitRequest{Queues: []string{queue}, Since: since})
	if err != nil && bounded.Err() == nil { // no wake-ups are available: check at intervals
		<-bounded.Done()
	}
	return ctx.Err()
}

// live returns how many tasks of a queue have not ended, including claimed ones.
func (c *count) live(ctx context.Context, queue string) (int64, error) {
	stats, err := c.store.Stats(ctx, queue)
	if err != nil {
		return 0, fmt.Errorf("size of %s: %w", queue, err)
	}
	return stats[0].Live(), nil
}

// result returns the sum of the totals of all parts.
func (c *count) result(ctx context.Context) (map[string]int, error) {
	total := make(map[string]int)
	for t, err := range storage.Each(ctx, c.store, c.resultQueue(), storage.Waiting) {
		if err != nil {
			return nil, fmt.Errorf("read the result: %w", err)
		}
		if err := addCounts(total, t); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// remove removes all queues of the count.
func (c *count) remove(ctx context.Context) error {
	for _, queue := range c.queues() {
		if _, err := c.session.RemoveQueue(ctx, queue); err != nil {
			return err
		}
	}
	return nil
}

// addCounts adds the counts that a task carries to total.
func addCounts(total map[string]int, t storage.Task) error {
	var counts map[string]int
	if err := json.Unmarshal(t.Payload, &counts); err != nil {
		return fmt.Errorf("decode %s: %w", t.Ref, err)
	}
	for word, n := range counts {
		total[word] += n
	}
	return nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
