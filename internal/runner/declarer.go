package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// declarer is the actor that stores a shard's schedules and the limits of its queues, and checks again and
// again whether they are still stored.
type declarer struct {
	*shared

	shard     *shard
	schedules *schedules
	looked    map[string]look // by queue
	pulse     *pulse
}

// look is the last listing of a queue's schedules.
type look struct {
	at      time.Duration // by the runner's clock
	cursors int64         // how many there were
}

// A runner reads its schedules of a queue one by one if they are fewer than listFrom: the queue may
// have many schedules of other programs. If they are more, it lists all schedules of the queue when
// their number has changed, and every listEvery.
const (
	listFrom  = 20
	listEvery = 5 * time.Minute
)

// loop declares the limits and the schedules until ctx ends, with a third of the lease between two rounds.
func (d *declarer) loop(ctx context.Context) {
	defer d.pulse.ends()
	for first := true; ; first = false {
		next := d.lease / 3
		if !d.declareLimits(ctx) { // no task of such a queue starts before its limit is stored
			next = min(next, jitter(slowScan))
		}
		for _, queue := range d.schedules.queues() {
			if !storage.Spans(d.store, d.shard.member, queue) {
				continue
			}
			if err := d.declare(ctx, queue); err != nil && ctx.Err() == nil {
				d.log.trouble("declare the schedules of queue "+queue, err)
			}
		}
		if first { // the heartbeat of the start has carried what was stored now
			d.schedules.stores.Store(false)
		}
		if !sleep.For(ctx, next) {
			return
		}
	}
}

// declare declares the schedules of a queue, unless they are many and nothing has changed.
func (d *declarer) declare(ctx context.Context, queue string) error {
	own := d.schedules.of(queue)
	if len(own) < listFrom {
		_, err := d.schedules.keep(ctx, queue, own)
		return err
	}
	stats, err := d.store.Stats(ctx, queue)
	if err != nil {
		return err
	}
	now := d.elapsed()
	if last, listed := d.looked[queue]; listed && stats[0].Cursors == last.cursors && now-last.at < listEvery {
		return nil
	}
	delete(d.looked, queue)
	settled, err := d.schedules.keep(ctx, queue, own)
	if settled {
		d.looked[queue] = look{now, stats[0].Cursors}
	}
	return err
}

// keep stores this runner's schedules of a queue that are not stored yet, and replaces older
// declarations of them. If one of them cannot be stored, keep stores the others and returns the
// error. settled is false if another runner changed a schedule meanwhile, or after an error.
func (s *schedules) keep(ctx context.Context, queue string, own []*ownSchedule) (settled bool, err error) {
	k := keeping{schedules: s, live: declarers{schedules: s}}
	if len(own) < listFrom {
		for _, o := range own {
			k.one(ctx, o)
		}
		return !k.overtaken && k.err == nil, k.err
	}
	k.stored = make(map[storage.Ref]bool, len(own))
	if err := k.list(ctx, queue); err != nil {
		return false, err
	}
	for _, o := range own {
		if !k.stored[o.insert.Ref] {
			k.put(ctx, put{own: o})
		}
	}
	k.flush(ctx)
	return !k.overtaken && k.err == nil, k.err
}

// keeping is a keep under way.
type keeping struct {
	*schedules

	live   declarers
	stored map[storage.Ref]bool // by cursor; nil if the schedules are read one by one
	puts   []put                // for the next call
	err    error                // the first one

	timeless  bool // the storage has not returned its time; nothing more is stored
	overtaken bool // another runner changed a schedule meanwhile; the next round checks again
}

// put is a schedule that is to be stored.
type put struct {
	own    *ownSchedule
	tx     storage.Tx
	before *storage.Cursor // the cursor that it replaces and that tx deletes, or nil
}

// list compares the stored schedules of a queue with this runner's.
func (k *keeping) list(ctx context.Context, queue string) error {
	for stored, err := range storage.Each(ctx, k.store, queue, storage.Cursors) {
		if err != nil {
			return err
		}
		if own := k.find(stored.Ref); own != nil && !k.stored[stored.Ref] {
			k.stored[stored.Ref] = true
			k.replace(ctx, &stored, own)
		}
	}
	return nil
}

// one stores one schedule, or replaces it.
func (k *keeping) one(ctx context.Context, own *ownSchedule) {
	stored, err := k.store.Task(ctx, own.insert.Ref)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		k.put(ctx, put{own: own})
	case err != nil:
		k.failed(own, err)
	default:
		k.replace(ctx, &stored, own)
	}
	k.flush(ctx)
}

// replace replaces the stored declaration by own, if own is newer.
func (k *keeping) replace(ctx context.Context, stored *storage.Task, own *ownSchedule) {
	newer, err := k.isNewer(ctx, own, stored)
	if err != nil {
		k.failed(own, err)
	}
	if newer {
		tx := storage.Tx{Deletes: []storage.Delete{{Ref: stored.Ref, Version: stored.Version}}}
		k.put(ctx, put{own: own, tx: tx, before: stored.Cursor})
	}
}

// isNewer reports whether own replaces the stored declaration. A declaration that was itself replaced
// returns only when no live runner declares its successor. A damaged declaration is replaced at once, and a
// kept one never.
func (k *keeping) isNewer(ctx context.Context, own *ownSchedule, stored *storage.Task) (bool, error) {
	before, damaged := stored.Cursor.Decode()
	switch hash := own.declaration.Hash; {
	case damaged != nil:
		return true, nil //nolint:nilerr // it is replaced
	case before.Kept:
		if k.clashes(stored.Ref) {
			k.log.keptSchedule(stored.Ref)
		}
		return false, nil
	case before.Hash == hash:
		return false, nil
	case !slices.Contains(before.Replaced, hash):
		return true, nil
	}
	live, err := k.live.tick(ctx, stored, &before)
	return !live && err == nil, err
}

// put stores a schedule with the next call.
func (k *keeping) put(ctx context.Context, p put) {
	k.puts = append(k.puts, p)
	if len(k.puts) == atOnce {
		k.flush(ctx)
	}
}

// timeOf returns the storage's time of a queue. A time that is reckoned from an earlier answer lags behind if
// the machine was suspended or the clock of the storage was set forward meanwhile, and Describe asks all
// parts of the storage. The answer to an extension has the time of the part that keeps the queue. Nobody
// holds the extended lease, so that nothing changes.
func (s *schedules) timeOf(ctx context.Context, queue string) (time.Time, error) {
	nobody := storage.Fence{
		Ref: storage.Ref{Queue: queue, ID: storage.NewID()}, Version: 1, Token: storage.NewToken(),
	}
	extended, err := s.beats.Extend(ctx, storage.ExtendRequest{Leases: []storage.Extension{{Fence: nobody}}})
	return extended.Now, err
}

// fill completes the Txs of puts, whose queues can share a call, and returns the puts that can be applied,
// with their Txs. It asks for the time after the records were found missing: a cursor that was removed has ticked
// for no later moment, so that the new one repeats no tick.
func (k *keeping) fill(ctx context.Context, puts []put) (filled []put, txs []storage.Tx) {
	if len(puts) == 0 || k.timeless {
		return nil, nil
	}
	now, err := k.timeOf(ctx, puts[0].own.insert.Ref.Queue)
	if err != nil {
		k.timeless = true
		k.failed(puts[0].own, err)
		return nil, nil
	}
	for _, p := range puts {
		in := p.own.insert
		if in.Cursor, err = schedule.After(in.Ref, p.before, p.own.declaration, now); err != nil {
			k.failed(p.own, err)
			continue
		}
		p.tx.Inserts = []storage.Insert{in}
		filled, txs = append(filled, p), append(txs, p.tx)
	}
	return filled, txs
}

// flush stores the collected schedules. A schedule that a listing has left out may be stored nevertheless,
// because it has moved meanwhile or its record is damaged: it is read by itself.
func (k *keeping) flush(ctx context.Context) {
	puts, txs := k.fill(ctx, k.puts)
	k.puts = nil
	refused, err := k.apply(ctx, k.beats, txs)
	for i, why := range refused {
		own := puts[i].own
		var dep *storage.DependencyError
		switch {
		case why == nil:
			k.stores.Store(true)
		case !errors.As(why, &dep):
			k.failed(own, why)
		case k.stored != nil && !k.stored[own.insert.Ref]:
			k.stored[own.insert.Ref] = true
			k.one(ctx, own)
		default:
			k.overtaken = true
		}
	}
	if err != nil {
		k.failed(puts[len(refused)].own, err)
	}
}

// failed keeps the first error.
func (k *keeping) failed(own *ownSchedule, err error) {
	if err != nil && k.err == nil {
		k.err = fmt.Errorf("%s: %w", schedule.Name(own.insert.Ref), err)
	}
}
