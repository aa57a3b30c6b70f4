package runner

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// schedules holds the schedules that a runner declares.
type schedules struct {
	*shared

	serves func(queue string) bool // whether the runner runs tasks of a queue
	stores atomic.Bool             // a schedule was stored since the last heartbeat that carried all

	mu     sync.Mutex // guards the fields below, of which the first three do not change once the runner runs
	own    []ownSchedule
	places map[storage.Ref]int // in own
	names  []string            // of their queues, each once
	clash  map[storage.Ref]bool
	others *storage.Tickers // of the kept schedules, without what they declare; nil before they were needed
	read   time.Duration    // when, by the runner's clock
}

// ownSchedule is a schedule that this runner declares: the insert of its cursor, without its
// moments, and the decoded declaration of that cursor.
type ownSchedule struct {
	insert      storage.Insert
	declaration storage.Declaration
}

func (s *schedules) declare(in storage.Insert) error {
	d, err := in.Cursor.Decode()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.places[in.Ref]; twice {
		return storage.Invalid("schedule", schedule.Name(in.Ref)+" twice",
			"each declared once; tell them apart by Named")
	}
	if s.places == nil {
		s.places = make(map[storage.Ref]int)
	}
	s.places[in.Ref] = len(s.own)
	s.own = append(s.own, ownSchedule{in, d})
	if !slices.Contains(s.names, in.Ref.Queue) {
		s.names = append(s.names, in.Ref.Queue)
	}
	return nil
}

// declared returns the schedules as a heartbeat declares them.
func (s *schedules) declared() []storage.Declared {
	all := s.all()
	list := make([]storage.Declared, len(all))
	for i := range all {
		list[i] = all[i].declared()
	}
	return list
}

// declared returns the schedule as a heartbeat declares it.
func (o *ownSchedule) declared() storage.Declared {
	return storage.Declared{Ref: o.insert.Ref, Hash: o.declaration.Hash}
}

func (s *schedules) all() []ownSchedule {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.own)
}

// queues returns the queues of the schedules.
func (s *schedules) queues() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.names)
}

// of returns the schedules of a queue.
func (s *schedules) of(queue string) (own []*ownSchedule) {
	all := s.all()
	for i := range all {
		if all[i].insert.Ref.Queue == queue {
			own = append(own, &all[i])
		}
	}
	return own
}

// find returns the schedule of a cursor, or nil if this runner declares none.
func (s *schedules) find(cursor storage.Ref) *ownSchedule {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.places[cursor]; ok {
		return &s.own[i]
	}
	return nil
}

// clashes reports whether a schedule of this runner is found to be kept for the first time.
func (s *schedules) clashes(cursor storage.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clash[cursor] {
		return false
	}
	if s.clash == nil {
		s.clash = make(map[storage.Ref]bool)
	}
	s.clash[cursor] = true
	return true
}

// declarers knows which schedules live runners tick. It lists the runners once, when it first needs them, and is
// used for one piece of work.
type declarers struct {
	*schedules

	tickers *storage.Tickers // nil before the listing
	err     error            // of the listing
}

// tick reports whether a live runner ticks the schedule of a cursor, as it is declared.
func (d *declarers) tick(ctx context.Context, c *storage.Task, as *storage.Declaration) (bool, error) {
	if as.Kept {
		return d.tickKept(ctx, c, as)
	}
	if own := d.find(c.Ref); own != nil && own.declaration.Hash == as.Hash {
		return true, nil
	}
	if d.tickers == nil {
		var runners []storage.RunnerInfo
		runners, d.err = d.store.Runners(ctx)
		d.tickers = storage.TickersOf(runners)
	}
	return d.tickers.Tick(c, as), d.err
}

// tickKept is tick for a kept schedule. If another runner knows the kind, this one makes the tick all the
// same: to leave the cursor to that runner would cost TickHide each time that this one is handed it. The
// runners are listed again after TickHide, when the cursor is handed out again.
func (s *schedules) tickKept(ctx context.Context, c *storage.Task, as *storage.Declaration) (bool, error) {
	if slices.Contains(s.jobs.Kinds(), c.Kind) && s.serves(c.Queue) {
		return true, nil
	}
	now := s.elapsed()
	s.mu.Lock()
	old := s.others == nil || now-s.read >= storage.TickHide
	s.mu.Unlock()
	if old {
		runners, err := s.store.Runners(ctx)
		if err != nil {
			return false, err
		}
		for i := range runners {
			runners[i].Schedules = nil // they may be many
		}
		s.mu.Lock()
		s.others, s.read = storage.TickersOf(runners), now
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.others.Tick(c, as), nil
}

// atOnce is how many schedules are ticked or declared with one call. A database takes some 30 ms for so
// many.
const atOnce = 100

// apply applies Txs that do not depend on one another. refused has an element for each Tx, nil if it was not
// refused. If a call fails, err is the reason, and refused ends before the Txs of that call.
func (s *schedules) apply(
	ctx context.Context, session *storage.Session, txs []storage.Tx,
) (refused []error, err error) {
	size := func(tx *storage.Tx) (ops, bytes int) { return tx.Ops(), tx.Bytes() }
	for len(txs) > 0 {
		n := oneCall(txs, size)
		applied, err := session.Apply(ctx, txs[:n]...)
		switch {
		case err == nil:
			for i := range applied {
				refused = append(refused, applied[i].Err)
			}
		case n == 1 && refusesTx(err):
			refused = append(refused, err)
		case refusesTx(err): // one of them spoils the call: each gets its own
			for i := range n {
				one, err := s.apply(ctx, session, txs[i:i+1])
				if refused = append(refused, one...); err != nil {
					return refused, err
				}
			}
		default:
			return refused, err
		}
		txs = txs[n:]
	}
	return refused, nil
}
