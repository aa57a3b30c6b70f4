package storagetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

func jumpMutants() []mutant {
	return []mutant{
		{
			name:   "the clock never goes back",
			rules:  []string{"jump/ahead and back", "jump/stamped meanwhile", "jump/declined meanwhile", "jump/back"},
			opened: monotone,
		},
		{
			name: "jumps are believed at once", rules: []string{"jump/ahead and back", "jump/next due"},
			opened: func(t testing.TB, _ storage.Limits, o *Opened) { believing(t, o, 0) },
		},
		{
			name: "the first jump alone is doubted", rules: []string{"jump/again"},
			opened: func(t testing.TB, _ storage.Limits, o *Opened) { believing(t, o, 1) },
		},
		{
			name: "jumps ahead are never believed", rules: []string{"jump/ahead for good", "jump/looked at regularly"},
			opened: func(_ testing.TB, _ storage.Limits, o *Opened) { o.Jump = func(time.Duration) {} },
		},
		knowing("pauses end by the clock alone", func(m *mind) *fault {
			return &fault{claim: func(next claimFunc) claimFunc {
				return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
					if s, err := m.Stats(ctx, mainQueue); err == nil && !s[0].Paused {
						_ = m.Configure(ctx, storage.Call{}, mainQueue, resuming())
					}
					return next(ctx, req)
				}
			}}
		}, "jump/pause"),
		breaks("the clock is not told of", fault{
			describe: described(func(d *storage.Description) { d.Warnings = nil }),
		}, "jump/told"),
		breaks("claims are dated by their versions", fault{task: dated(func(t *storage.Task) {
			if t.State == storage.Pending {
				t.Claimed = time.UnixMicro(t.Version)
			}
		})}, "jump/claimed after it was set back"),
		breaks("new tasks are dated by their versions", fault{apply: answering(undated)},
			"jump/inserted after it was set back"),
		breaks("repeated claims are dated anew", fault{claim: given(datedAnew)},
			"jump/claimed again after it was set back"),
		breaks("attempts are dated by their versions", fault{task: dated(func(t *storage.Task) {
			for i := range t.Attempts {
				t.Attempts[i].Claimed = time.UnixMicro(t.Attempts[i].Version)
			}
		})}, "jump/ended after it was set back"),
		breaks("tasks are dated by their versions", fault{task: dated(func(t *storage.Task) {
			t.Created = time.UnixMicro(t.Version)
		})}, "jump/ended after it was set back"),
		knowing("versions follow the clock", func(m *mind) *fault {
			return &fault{apply: answering(func(_ storage.Tx, a *storage.Applied) {
				if d, err := m.Describe(context.Background()); err == nil && len(a.Changed) > 0 {
					a.Changed[0].Version = d.Now.UnixMicro()
				}
			})}
		}, "jump/versions"),
		knowing("lanes opened ahead are good", func(m *mind) *fault {
			return &fault{apply: applies(func(
				ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
			) ([]storage.Applied, error) {
				if d, err := m.Describe(ctx); err == nil && call.Lane.Opened.After(d.Now.Add(storage.LaneLife)) {
					call = storage.Call{}
				}
				return next(ctx, call, txs...)
			})}
		}, "identity/opened ahead"),
		knowing("a clock that was set is never forgiven", func(m *mind) *fault {
			return &fault{apply: applies(func(
				ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
			) ([]storage.Applied, error) {
				applied, err := next(ctx, call, txs...)
				m.locked(func() {
					if m.count > 0 || errors.Is(err, storage.ErrLaneExpired) {
						m.count, applied, err = 1, nil, storage.ErrLaneExpired
					}
				})
				return applied, err
			})}
		}, "jump/callers"),
	}
}

// dated makes a Task that alters the task that it reads.
func dated(edit func(*storage.Task)) func(taskFunc) taskFunc {
	return func(next taskFunc) taskFunc {
		return func(ctx context.Context, ref storage.Ref) (storage.Task, error) {
			t, err := next(ctx, ref)
			edit(&t)
			return t, err
		}
	}
}

// undated leaves out when tasks were made.
func undated(_ storage.Tx, a *storage.Applied) {
	for i := range a.Inserted {
		a.Inserted[i].Created = time.Time{}
	}
}

// datedAnew dates all claims by the time of the answer.
func datedAnew(_ storage.ClaimRequest, c *storage.Claimed) {
	for i := range c.Tasks {
		c.Tasks[i].Claimed = c.Now
	}
}

// believing makes Jump advance the clock in steps so small that the storage does not see a jump, except
// for the first few jumps.
func believing(t testing.TB, o *Opened, doubted int) {
	t.Helper()
	session, jump := storage.NewSession(o.Storage, 0), o.Jump
	o.Jump = func(d time.Duration) {
		doubted--
		for ; d > storage.JumpAfter && doubted < 0; d -= storage.JumpAfter {
			jump(storage.JumpAfter)
			_ = session.Configure(t.Context(), mainQueue, resuming())
		}
		jump(d)
	}
}

// monotone opens a storage whose clock stands still if Jump sets it back.
func monotone(t testing.TB, limits storage.Limits, o *Opened) {
	t.Helper()
	var ahead time.Duration
	var last time.Time
	s, err := memory.Open(memory.Config{Limits: limits, Now: func() time.Time {
		if now := time.Now().Add(ahead); now.After(last) {
			last = now
		}
		return last
	}})
	if err != nil {
		t.Fatal(err)
	}
	o.Storage, o.Again, o.Jump = s, nil, func(d time.Duration) { ahead += d }
}
