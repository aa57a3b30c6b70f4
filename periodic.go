package midge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// tickHeader is the header of a periodic task that holds the moment it stands for.
const tickHeader = "midge.tick"

// Periodic declares that a job is enqueued by a schedule, once per tick however many
// runners declare it. It is stored when the runner runs, and again with each heartbeat:
// a schedule that no live runner declares stands still. A later version of it replaces
// the stored one, which keeps its last tick.
func (r *Runner) Periodic(s Schedule, job any, opts ...PeriodicOption) error {
	d, err := r.definitions.of(job)
	if err != nil {
		return fmt.Errorf("midge: periodic: %w", err)
	}
	in, err := cursorInsert(d, job, s, opts, time.Time{})
	if err != nil {
		return fmt.Errorf("midge: periodic %s: %w", d.kind, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return fmt.Errorf("midge: periodic %s: %w", in.Ref, ErrRunning)
	}
	return r.ticks.declare(in)
}

// ticker is the actor that declares the runner's schedules and turns due cursors into
// tasks. Any number of tickers may be handed the same cursor: the change of the cursor
// at its version lets one of them through.
type ticker struct {
	r    *Runner
	kick chan struct{} // capacity 1: a cursor is due

	mu        sync.Mutex // guards what follows
	schedules []storage.Insert
	queue     []dueCursor
}

// dueCursor is a cursor that a claim handed out.
type dueCursor struct {
	cursor storage.Task
	now    time.Time // the storage's time of that claim
}

func newTicker(r *Runner) *ticker { return &ticker{r: r, kick: make(chan struct{}, 1)} }

func (t *ticker) declare(in storage.Insert) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.schedules {
		if s.Ref == in.Ref {
			return storage.Invalid("schedule", in.Ref.String(), "each schedule declared once; name it with Named")
		}
	}
	t.schedules = append(t.schedules, in)
	return nil
}

// declared lists what this runner declares.
func (t *ticker) declared() []storage.Declared {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]storage.Declared, len(t.schedules))
	for i, s := range t.schedules {
		list[i] = storage.Declared{Ref: s.Ref, Declaration: s.Cursor.Declaration}
	}
	return list
}

// due takes in a cursor that is due.
func (t *ticker) due(cursor storage.Task, now time.Time) {
	t.mu.Lock()
	t.queue = append(t.queue, dueCursor{cursor, now})
	t.mu.Unlock()
	kick(t.kick)
}

// loop declares and ticks until ctx ends.
func (t *ticker) loop(ctx context.Context) {
	t.declareAll(ctx)
	again := time.NewTicker(t.r.cfg.Lease / 3)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			t.declareAll(ctx)
		case <-t.kick:
			for _, d := range t.take() {
				t.tick(ctx, d)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (t *ticker) take() []dueCursor {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue := t.queue
	t.queue = nil
	return queue
}

// declareAll stores what this runner declares, where it is not stored yet.
func (t *ticker) declareAll(ctx context.Context) {
	t.mu.Lock()
	schedules := slices.Clone(t.schedules)
	t.mu.Unlock()
	for _, s := range schedules {
		if err := t.store(ctx, s); err != nil && ctx.Err() == nil {
			t.r.log.trouble("declare schedule "+s.Ref.String(), err)
		}
	}
}

// store inserts a schedule, or replaces an older declaration of it.
func (t *ticker) store(ctx context.Context, in storage.Insert) error {
	now, err := t.r.beats.Now(ctx)
	if err != nil {
		return err
	}
	stored, err := t.r.store.Task(ctx, in.Ref)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		if in, err = withNext(in, storage.Cursor{}, now); err != nil {
			return err
		}
		_, err = t.r.beats.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{in}})
	case err == nil:
		err = t.replace(ctx, stored, in, now)
	}
	var dep *storage.DependencyError
	if errors.As(err, &dep) {
		return nil // another runner was faster; the next heartbeat looks again
	}
	return err
}

// replace lets a new declaration take the place of the stored one, if its time has
// come: one that was replaced itself comes back only when no live runner declares its
// successor.
func (t *ticker) replace(ctx context.Context, stored storage.Task, in storage.Insert, now time.Time) error {
	if stored.Cursor == nil || stored.Cursor.Declaration == in.Cursor.Declaration {
		return nil
	}
	if slices.Contains(stored.Cursor.Replaced, in.Cursor.Declaration) {
		live, err := t.live(ctx, stored)
		if live || err != nil {
			return err
		}
	}
	in, err := withNext(in, *stored.Cursor, now)
	if err != nil {
		return err
	}
	_, err = t.r.beats.ApplyOne(ctx, storage.Tx{
		Deletes: []storage.Delete{{Ref: stored.Ref, Version: stored.Version}},
		Inserts: []storage.Insert{in},
	})
	return err
}

// live reports whether a live runner declares the cursor as it is stored.
func (t *ticker) live(ctx context.Context, cursor storage.Task) (bool, error) {
	want := storage.Declared{Ref: cursor.Ref, Declaration: cursor.Cursor.Declaration}
	if slices.Contains(t.declared(), want) {
		return true, nil
	}
	runners, err := t.r.store.Runners(ctx)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(runners, func(r storage.RunnerInfo) bool {
		return slices.Contains(r.Schedules, want)
	}), nil
}

// tick enqueues the tasks of a due cursor and moves it on, in one step.
func (t *ticker) tick(ctx context.Context, d dueCursor) {
	c := d.cursor
	live, err := t.live(ctx, c)
	if err != nil || !live {
		return // it is handed out again in TickHide, and stands still while nobody declares it
	}
	due, next, err := ticks(*c.Cursor, d.now)
	if err != nil {
		t.r.log.trouble("schedule "+c.Ref.String(), err)
		return
	}
	moved := *c.Cursor
	moved.Next = next
	tx := storage.Tx{}
	for i, at := range due {
		if one := len(c.Payload) + storage.MaxHeaderBytes; i > 0 && (i+1)*one > storage.MaxTxBytes {
			moved.Next = at // what one step cannot hold is due at once again
			break
		}
		moved.Last = at
		tx.Inserts = append(tx.Inserts, tickTask(c, at))
	}
	tx.Changes = []storage.Change{{Ref: c.Ref, Version: c.Version, Cursor: &moved}}
	_, err = t.r.jobs.ApplyOne(ctx, tx)
	var dep *storage.DependencyError
	if err != nil && !errors.As(err, &dep) && ctx.Err() == nil { // a dep: another runner ticked
		t.r.log.trouble("tick "+c.Ref.String(), err)
	}
}

// tickTask is the insert that stands for the tick at a moment.
func tickTask(cursor storage.Task, at time.Time) storage.Insert {
	in := cursor.TickInsert(storage.NewID())
	headers := make(map[string]string, len(in.Headers)+1)
	maps.Copy(headers, in.Headers)
	headers[tickHeader] = at.UTC().Format(time.RFC3339Nano)
	in.Headers = headers
	return in
}

// withNext fills in when a schedule is next due: when the declaration before it was, if
// its moments are the same, so that a deploy drops no tick; else after now, and strictly
// later than the last tick.
func withNext(in storage.Insert, before storage.Cursor, now time.Time) (storage.Insert, error) {
	c := *in.Cursor
	s, err := parseSchedule(c.Spec, c.Zone)
	if err != nil {
		return in, err
	}
	from := now
	if before.Last.After(from) {
		from = before.Last
	}
	c.Next = s.next(from)
	if before.Spec == c.Spec && before.Zone == c.Zone && !before.Next.IsZero() {
		c.Next = before.Next
	}
	c.Last = before.Last
	if before.Declaration != "" {
		c.Replaced = append(slices.DeleteFunc(slices.Clone(before.Replaced), func(d string) bool {
			return d == c.Declaration
		}), before.Declaration)
		c.Replaced = c.Replaced[max(len(c.Replaced)-replacedMost, 0):]
	}
	in.Cursor = &c
	return in, nil
}

// replacedMost bounds how many earlier declarations a cursor remembers.
const replacedMost = 16
