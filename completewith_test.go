package midge_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// pretendTx is a transaction of an application that a storage can join: Apply takes effect at its
// commit.
type pretendTx struct {
	store storage.Storage
	txs   []storage.Tx

	err     error // the result of Apply; nil for success
	refused *storage.DependencyError
}

func (p *pretendTx) Apply(_ context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if !call.IsZero() {
		return nil, storage.Invalid("call", "with an identity", "the zero Call within a transaction")
	}
	if p.refused != nil {
		return []storage.Applied{{Err: p.refused}}, p.err
	}
	if p.err != nil {
		return nil, p.err
	}
	p.txs = append(p.txs, txs...)
	return make([]storage.Applied, len(txs)), nil
}

func (p *pretendTx) commit(ctx context.Context) error {
	applied, err := p.store.Apply(ctx, storage.Call{}, p.txs...)
	for _, a := range applied {
		err = errors.Join(err, a.Err)
	}
	return err
}

// TestCompleteWithCommits checks that the completion, the follow-ups and the result commit with the
// transaction, and that whatever the job returns after the commit has no effect.
func TestCompleteWithCommits(t *testing.T) {
	for name, returned := range map[string]error{
		"nil": nil, "an error": errors.New("too late"), "a snooze": midge.Snooze(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var ended error
				b.run(midge.RunnerConfig{}, func(ctx context.Context, w work) error {
					if w.Name == "next" {
						return nil
					}
					tx := &pretendTx{store: b.store}
					err := errors.Join(midge.SetResult(ctx, "the result"), midge.FollowUp(ctx, work{"next"}),
						midge.CompleteWith(ctx, tx), tx.commit(ctx))
					ended = ctx.Err()
					return errors.Join(err, returned)
				})
				task := b.enqueue("a", midge.KeepFor(time.Hour))
				b.after(time.Second)
				got := b.task(task.Ref)
				if got.State != storage.Completed || got.Retries != 0 || ended != nil {
					t.Errorf("got %+v, context %v, want it completed once", got, ended)
				}
				var result string
				if err := b.client.Await(b.Context(), task.Ref, &result); err != nil || result != "the result" {
					t.Errorf("result: got %q, %v", result, err)
				}
				if s := b.stats(task.Queue); s.Totals.Enqueued != 2 || s.Totals.Completed != 2 {
					t.Errorf("got %+v, want the task and its follow-up completed", s.Totals)
				}
			})
		})
	}
}

// TestCompleteWithoutCommit checks that this is a failure, with the job's own error if it has
// one.
func TestCompleteWithoutCommit(t *testing.T) {
	for name, c := range map[string]struct {
		returned error
		want     string
	}{
		"nil":      {nil, "was not committed"},
		"an error": {errors.New("no stock"), "no stock"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
					err := errors.Join(midge.FollowUp(ctx, work{"next"}), midge.CompleteWith(ctx, &pretendTx{store: b.store}))
					if err != nil {
						t.Error(err)
					}
					return c.returned // and the transaction is rolled back
				})
				task := b.enqueue("a")
				b.after(time.Second)
				got := b.task(task.Ref)
				if got.State != storage.Retry || got.Retries != 1 || !strings.Contains(got.Attempts[0].Error, c.want) {
					t.Errorf("got %+v, want a retry after %q", got, c.want)
				}
				if s := b.stats(task.Queue); s.Totals.Enqueued != 1 {
					t.Errorf("enqueued: got %d, want no follow-up", s.Totals.Enqueued)
				}
			})
		})
	}
}

// TestCompleteWithAgain completes in a second transaction, after the first was rolled back.
func TestCompleteWithAgain(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			second := &pretendTx{store: b.store}
			return errors.Join(midge.CompleteWith(ctx, &pretendTx{store: b.store}),
				midge.CompleteWith(ctx, second), second.commit(ctx))
		})
		task := b.enqueue("a")
		b.after(time.Second)
		b.gone(task.Ref)
	})
}

// TestCompleteWithTwice completes twice in one transaction. The second call is refused, with the error that
// the job itself may have completed the task.
func TestCompleteWithTwice(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			info, _ := midge.Current(ctx)
			tx := &pretendTx{store: b.store}
			err := midge.CompleteWith(ctx, tx)
			tx.refused = &storage.DependencyError{Lost: []storage.Ref{info.Ref}}
			again := midge.CompleteWith(ctx, tx)
			if !errors.Is(again, midge.ErrCompleted) || !errors.Is(again, storage.ErrLeaseLost) {
				t.Errorf("got %v, want ErrCompleted and ErrLeaseLost", again)
			}
			return errors.Join(err, tx.commit(ctx))
		})
		task := b.enqueue("a")
		b.after(time.Second)
		b.gone(task.Ref)
	})
}

// elsewhere is a transaction of another storage.
type elsewhere struct{ *pretendTx }

func (elsewhere) Location() string { return "postgres database shop, schema midge" }

// TestCompleteWithATransactionOfAnotherStorage checks that the call is refused before anything is
// sent, and that the job goes on.
func TestCompleteWithATransactionOfAnotherStorage(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			tx := &pretendTx{store: b.store}
			err := midge.CompleteWith(ctx, elsewhere{tx})
			var invalid *midge.InvalidError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "schema midge\": want one of memory") {
				t.Errorf("got %v, want an *InvalidError that names both", err)
			}
			if len(tx.txs) > 0 || ctx.Err() != nil {
				t.Errorf("sent %v, context %v; want nothing sent, and the job going on", tx.txs, context.Cause(ctx))
			}
			return errors.Join(midge.CompleteWith(ctx, tx), tx.commit(ctx))
		})
		task := b.enqueue("a")
		b.after(time.Second)
		b.gone(task.Ref)
	})
}

// TestCompleteWithRefused checks that a job can do everything as before after a refused call.
func TestCompleteWithRefused(t *testing.T) {
	bubble(t, func(b *bench) {
		refusal := errors.New("no such table")
		b.run(midge.RunnerConfig{}, func(ctx context.Context, w work) error {
			if w.Name == "next" {
				return nil
			}
			if err := midge.CompleteWith(ctx, &pretendTx{err: refusal}); !errors.Is(err, refusal) {
				t.Errorf("got %v, want %v", err, refusal)
			}
			return midge.FollowUp(ctx, work{"next"})
		})
		task := b.enqueue("a")
		b.after(time.Second)
		if s := b.stats(task.Queue); s.Totals.Completed != 2 {
			t.Errorf("got %+v, want the task and its follow-up completed", s.Totals)
		}
	})
}

// TestCompleteWithHandsTheLeaseOver checks that the transaction gets the lease: the runner no
// longer extends it, and functions for running jobs are refused.
func TestCompleteWithHandsTheLeaseOver(t *testing.T) {
	bubble(t, func(b *bench) {
		watched := &extensions{Storage: b.store}
		b.store = watched
		b.run(midge.RunnerConfig{Lease: 3 * time.Second}, func(ctx context.Context, _ work) error {
			if err := midge.CompleteWith(ctx, b.store); err != nil { // a transaction that commits at once
				t.Error(err)
			}
			watched.n.Store(0)
			for action, err := range map[string]error{
				"follow up": midge.FollowUp(ctx, work{"next"}), "set result": midge.SetResult(ctx, 1),
				"progress": midge.Progress(ctx, 1), "checkpoint": midge.Checkpoint(ctx, 1),
			} {
				if !errors.Is(err, midge.ErrCompleted) {
					t.Errorf("%s: got %v, want ErrCompleted", action, err)
				}
			}
			b.after(10 * time.Second)
			if ctx.Err() != nil {
				t.Errorf("the context ended by %v, want it to live on", context.Cause(ctx))
			}
			return nil
		})
		task := b.enqueue("a")
		b.after(time.Minute)
		if n := watched.n.Load(); n != 0 {
			t.Errorf("extended %d times after the lease was handed over", n)
		}
		s := b.stats(task.Queue)
		if s.Totals.Completed != 1 || s.Totals.Failed != 0 || s.Live() != 0 {
			t.Errorf("got %+v, want one completed", s)
		}
	})
}

// TestCompleteWithDuringAHeartbeat commits while an extension of the lease is under way. The
// extension then finds no lease, which must not count as a lost lease.
func TestCompleteWithDuringAHeartbeat(t *testing.T) {
	bubble(t, func(b *bench) {
		beat := &heldBeat{Storage: b.store, begun: make(chan struct{}), release: make(chan struct{})}
		b.store = beat
		logger, lines := logged()
		b.run(midge.RunnerConfig{Logger: logger}, func(ctx context.Context, _ work) error {
			<-beat.begun
			err := midge.CompleteWith(ctx, b.store)
			close(beat.release)
			b.after(time.Second)
			if ctx.Err() != nil {
				t.Errorf("the context ended by %v, want it to live on", context.Cause(ctx))
			}
			return err
		})
		b.enqueue("a", midge.ID("beaten"))
		b.after(time.Minute)
		if got := lines("beaten"); len(got) != 1 || !strings.Contains(got[0], "succeeded") {
			t.Errorf("logged %q, want that it succeeded", got)
		}
	})
}

// heldBeat is a storage whose first extension of a lease waits for release.
type heldBeat struct {
	storage.Storage

	once           sync.Once
	begun, release chan struct{}
}

func (h *heldBeat) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if len(req.Leases) > 0 {
		h.once.Do(func() { close(h.begun) })
		<-h.release
	}
	return h.Storage.Extend(ctx, req) //nolint:wrapcheck // as the storage has it
}

// extensions counts the leases that are extended.
type extensions struct {
	storage.Storage

	n atomic.Int64
}

func (e *extensions) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	e.n.Add(int64(len(req.Leases)))
	return e.Storage.Extend(ctx, req) //nolint:wrapcheck // as the storage has it
}

// TestCompleteWithALostLease checks that the call is refused and ends the job's context.
func TestCompleteWithALostLease(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			info, _ := midge.Current(ctx)
			tx := &pretendTx{refused: &storage.DependencyError{Lost: []storage.Ref{info.Ref}}}
			if err := midge.CompleteWith(ctx, tx); !errors.Is(err, storage.ErrLeaseLost) {
				t.Errorf("got %v, want ErrLeaseLost", err)
			}
			if cause := context.Cause(ctx); !errors.Is(cause, storage.ErrLeaseLost) {
				t.Errorf("the context ended by %v, want ErrLeaseLost", cause)
			}
			return nil
		})
		task := b.enqueue("a")
		b.after(time.Second)
		if got := b.task(task.Ref); got.State != storage.Pending {
			t.Errorf("got %+v, want it left to whose it is", got)
		}
	})
}

// TestCompleteWithLeftOpen has a job return before its transaction has ended, which keeps the task
// locked. The open transaction must not delay other tasks, and the task is left to the expiry of
// its lease.
func TestCompleteWithLeftOpen(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		b.store = &locked{Storage: b.store, id: "open"}
		b.run(midge.RunnerConfig{Logger: logger}, func(ctx context.Context, w work) error {
			if w.Name == "b" {
				return nil
			}
			return errors.Join(midge.CompleteWith(ctx, &pretendTx{store: b.store}), errors.New("no stock"))
		})
		b.enqueue("a", midge.ID("open"))
		b.after(time.Second)
		other := b.enqueue("b")
		b.after(time.Second)
		b.gone(other.Ref)
		b.after(10 * time.Second)
		if got := lines("open"); len(got) != 1 || !strings.Contains(got[0], "could not be settled") {
			t.Errorf("logged %q, want that it could not be settled", got)
		}
	})
}

// TestCompleteWithBehindItsLease has a task that is gone after its lease. Another run may have
// completed it, if the transaction was rolled back.
func TestCompleteWithBehindItsLease(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		var runs atomic.Int32
		b.run(midge.RunnerConfig{Logger: logger}, func(ctx context.Context, _ work) error {
			if runs.Add(1) > 1 {
				return nil
			}
			err := midge.CompleteWith(ctx, &pretendTx{store: b.store}) // rolled back
			<-time.After(time.Minute)
			return err
		})
		task := b.enqueue("a", midge.ID("late"))
		b.after(time.Hour)
		b.gone(task.Ref)
		got := strings.Join(lines("late"), "\n")
		if runs.Load() != 2 || strings.Count(got, "succeeded") != 1 ||
			!strings.Contains(got, "has ended, by its transaction or by a later run") {
			t.Errorf("logged %s\nafter %d runs, want one success and one that nobody can tell", got, runs.Load())
		}
	})
}

// afar is a storage that cannot be reached at all while it is away.
type afar struct {
	unreachable

	falls atomic.Bool // it is away after the next read of a task
}

func (f *afar) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if err := f.err(); err != nil {
		return storage.Task{}, err
	}
	defer func() {
		if f.falls.Swap(false) {
			f.away.Store(true)
		}
	}()
	return f.Storage.Task(ctx, ref) //nolint:wrapcheck // as the storage has it
}

// TestCompleteWithoutCommitOutlastsTheStorage checks that the error of the job counts, and that no crash is charged, if
// the storage is full or away when the job returns.
func TestCompleteWithoutCommitOutlastsTheStorage(t *testing.T) {
	const lease = 2 * time.Second
	for name, c := range map[string]struct {
		full, away, later bool
		lasts             time.Duration
	}{
		"full":                         {full: true, lasts: lease / 2},
		"full for longer than a lease": {full: true, lasts: 5 * lease / 2},
		"away for longer than a lease": {away: true, lasts: 5 * lease},
		"away between read and settle": {later: true, lasts: 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				s := &afar{unreachable: unreachable{Storage: b.store}}
				full := &fullForSettles{fullDisk{Storage: s}}
				b.store = full
				b.run(midge.RunnerConfig{
					Lease: lease, Backoff: midge.Constant(time.Hour), Slog: slog.New(slog.DiscardHandler),
				}, func(ctx context.Context, _ work) error {
					err := midge.CompleteWith(ctx, &pretendTx{store: b.store})
					full.full.Store(c.full)
					s.away.Store(c.away)
					s.falls.Store(c.later)
					time.AfterFunc(c.lasts, func() {
						full.full.Store(false)
						s.away.Store(false)
					})
					return errors.Join(err, errors.New("no commit"))
				})
				task := b.enqueue("a")
				b.after(time.Minute)
				got := b.task(task.Ref)
				if got.State != storage.Retry || got.Retries != 1 || got.Crashes != 0 ||
					!strings.Contains(got.Attempts[0].Error, "no commit") {
					t.Errorf("got %+v, want a retry after the error of its job, and no crash", got)
				}
			})
		})
	}
}

// TestCompleteWithACommitBeforeAnOutage checks that no line reports another run of a task that its transaction
// has completed.
func TestCompleteWithACommitBeforeAnOutage(t *testing.T) {
	bubble(t, func(b *bench) {
		const lease = 2 * time.Second
		logger, lines := logged()
		s := &afar{unreachable: unreachable{Storage: b.store}}
		b.store = s
		b.run(midge.RunnerConfig{Lease: lease, Logger: logger}, func(ctx context.Context, _ work) error {
			err := midge.CompleteWith(ctx, b.store) // a transaction that commits at once
			s.away.Store(true)
			return err
		})
		task := b.enqueue("a", midge.ID("committed"))
		b.after(5 * lease)
		s.away.Store(false)
		b.after(time.Minute)
		b.gone(task.Ref)
		if got := lines("committed"); len(got) != 1 || !strings.Contains(got[0], "has ended, by its transaction") {
			t.Errorf("logged %q, want that it has ended", got)
		}
	})
}

// TestCompleteWithInAnOutageHoldsUpNoShutdown checks that Run returns in time, and that a job which has returned does
// not count as a job that runs.
func TestCompleteWithInAnOutageHoldsUpNoShutdown(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &afar{unreachable: unreachable{Storage: b.store}}
		b.store = s
		b.run(midge.RunnerConfig{
			Lease: 2 * time.Second, Grace: 5 * time.Second, Slog: slog.New(slog.DiscardHandler),
		}, func(ctx context.Context, _ work) error {
			s.away.Store(true)
			return midge.CompleteWith(ctx, &pretendTx{store: b.store})
		})
		b.enqueue("a")
		b.after(10 * time.Second)
		begun := time.Now()
		if err := b.drain(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("the shutdown took %v", took)
		}
	})
}

// locked is a storage in which a transaction locks one task: a settle of that task always has an
// unknown outcome.
type locked struct {
	storage.Storage

	id string
}

func (l *locked) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	for _, tx := range txs {
		if len(tx.Settles) > 0 && tx.Settles[0].Fence.ID == l.id {
			return nil, storage.ErrUnknown
		}
	}
	return l.Storage.Apply(ctx, call, txs...) //nolint:wrapcheck // as the storage has it
}

// TestCompleteWithAtAShutdown checks that the transaction of a job that outlives the grace period
// decides about its task.
func TestCompleteWithAtAShutdown(t *testing.T) {
	bubble(t, func(b *bench) {
		tx, commit := &pretendTx{store: b.store}, make(chan struct{})
		over := make(chan error, 1)
		b.run(midge.RunnerConfig{Grace: time.Second}, func(ctx context.Context, _ work) error {
			err := midge.CompleteWith(ctx, tx)
			<-commit // whatever happens to the context
			over <- errors.Join(err, tx.commit(context.WithoutCancel(ctx)))
			return nil
		})
		task := b.enqueue("a")
		b.after(time.Second)
		if err := b.drain(); !errors.Is(err, midge.ErrGraceExceeded) {
			t.Errorf("Run: got %v, want ErrGraceExceeded", err)
		}
		if got := b.task(task.Ref); got.State != storage.Pending {
			t.Errorf("got %s, want it pending still", got.State)
		}
		close(commit)
		if err := <-over; err != nil {
			t.Errorf("commit after the shutdown: %v", err)
		}
		b.gone(task.Ref)
	})
}

// TestCompleteWithOutsideOfAJob checks that the call is refused.
func TestCompleteWithOutsideOfAJob(t *testing.T) {
	bubble(t, func(b *bench) {
		if err := midge.CompleteWith(b.Context(), b.store); !errors.Is(err, midge.ErrNotInJob) {
			t.Errorf("got %v, want ErrNotInJob", err)
		}
		var invalid *storage.InvalidError
		if err := midge.CompleteWith(b.Context(), nil); !errors.As(err, &invalid) {
			t.Errorf("without an applier: got %v, want an *InvalidError", err)
		}
		late := make(chan context.Context, 1)
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			late <- ctx
			return nil
		})
		b.enqueue("a")
		b.after(time.Second)
		if err := midge.CompleteWith(<-late, b.store); !errors.Is(err, midge.ErrNotInJob) {
			t.Errorf("after the job: got %v, want ErrNotInJob", err)
		}
	})
}
