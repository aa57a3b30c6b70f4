package postgres

import (
	"context"
	"slices"
	"sync"
	"time"
)

// numbers remembers the numbers of queues. The row of a queue is deleted only long after the queue
// was last used (sweep.go), so that a number which was read lately is valid.
type numbers struct {
	mu    sync.Mutex // guards known; no I/O under it
	known map[string]number
	names map[int32]string
	// named is called for a queue whose number becomes known, or is no longer known: until then, or
	// from then on, wake-ups that state the number cannot be recognized as the queue's.
	named func(name string)
}

type number struct {
	queue int32
	read  time.Time
}

// trust is how long a number that was read is valid: much less than the time for which a row outlives
// its queue.
const trust = time.Minute

func newNumbers() *numbers {
	return &numbers{known: make(map[string]number), names: make(map[int32]string), named: func(string) {}}
}

// of returns the known numbers of these queues, and the names of the other queues.
func (n *numbers) of(names []string) (known map[string]int32, missing []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	known = make(map[string]int32, len(names))
	for _, name := range names {
		// Compare both clocks: only the wall clock counts the time while a machine was suspended.
		k, ok := n.known[name]
		if !ok || now.Sub(k.read) > trust || now.Round(0).Sub(k.read.Round(0)) > trust {
			missing = append(missing, name)
			continue
		}
		known[name] = k.queue
	}
	return known, missing
}

// learn notes a number that was read from a row that stays (readNumbers).
func (n *numbers) learn(name string, queue int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[name] = number{queue: queue, read: time.Now()}
	n.call(queue, name)
}

// call notes the name of a number. The caller holds mu.
func (n *numbers) call(queue int32, name string) {
	if n.names[queue] != name {
		n.names[queue] = name
		n.named(name)
	}
}

// hear notes the number of a queue that a claim saw, 0 for none. Its row may be about to be deleted,
// so that writes must not use the number.
func (n *numbers) hear(name string, queue int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if queue == 0 {
		if _, known := n.known[name]; known {
			delete(n.known, name)
			n.named(name) // a Wait under way relies on the number
		}
		return
	}
	if n.known[name].queue != queue {
		n.known[name] = number{queue: queue}
	}
	n.call(queue, name)
}

// name returns the name of the queue that has a number, "" if this storage has not heard of it.
func (n *numbers) name(queue int32) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[queue]
}

// knows reports whether this storage has heard of the numbers of all these queues.
func (n *numbers) knows(names []string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool {
		_, known := n.known[name]
		return !known
	})
}

// numbersOf returns the numbers of queues. It makes hidden rows for queues that have none.
func (s *Storage) numbersOf(ctx context.Context, names []string) (map[string]int32, error) {
	known, missing := s.numbers.of(names)
	if len(missing) == 0 {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, replyTime)
	defer cancel()
	if err := s.readNumbers(ctx, known, missing); err != nil {
		return nil, err
	}
	var absent []string
	for _, name := range missing {
		if _, ok := known[name]; !ok {
			absent = append(absent, name)
		}
	}
	if len(absent) == 0 {
		return known, nil
	}
	err := s.ask(ctx, s.pool, query{
		text: `INSERT INTO {schema}.queues (name, touched) SELECT name, {schema}.told()
			FROM unnest($1::text[]) AS u (name) ON CONFLICT (name) DO NOTHING`,
		args: []any{absent},
	})
	if err == nil {
		err = s.readNumbers(ctx, known, absent)
	}
	return known, err
}

// readNumbers adds the numbers of those queues that have one. It takes a row that has been hidden for
// long back into use, so that the row is not deleted while its number is used by inserts.
func (s *Storage) readNumbers(ctx context.Context, known map[string]int32, names []string) error {
	q := s.readingNumbers(known, names)
	q.text = `WITH back AS (
			UPDATE {schema}.queues SET touched = {schema}.told()
			WHERE name = ANY ($1::text[]) AND hidden AND touched < {schema}.told() - $2 RETURNING name, queue
		)
		SELECT name, queue FROM back UNION ALL ` + q.text
	return s.ask(ctx, s.pool, q)
}

// readingNumbers reads the numbers of those queues that have one, except for rows that have to be
// taken back into use.
func (s *Storage) readingNumbers(known map[string]int32, names []string) query {
	var name string
	var queue int32
	return query{
		text: `SELECT name, queue FROM {schema}.queues
			WHERE name = ANY ($1::text[]) AND NOT (hidden AND touched < {schema}.told() - $2)`,
		args: []any{names, queueLife.Microseconds()},
		scan: each(func() error {
			known[name] = queue
			s.numbers.learn(name, queue)
			return nil
		}, &name, &queue),
	}
}
