package storagetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

func settleMutants() []mutant {
	return []mutant{
		{name: "settles with stale fences", rules: []string{
			"settle/stale fence", "recover/fence ends", "sharing/one settle wins",
		}, wrap: func(m *mind) *fault {
			return &fault{claim: remembering(m), apply: lenient(m)}
		}},
		{name: "extends with stale fences", rules: []string{"extend/stale fence"}, wrap: func(m *mind) *fault {
			return &fault{claim: remembering(m), extend: extending(func(e *storage.Extension) { e.Fence = m.fence(e.Fence) })}
		}},
		{name: "lost leases not told", rules: []string{"extend/stale fence", "extend/each by itself"}, wrap: func(*mind) *fault {
			return &fault{extend: extended(func(x *storage.Extended) { x.Lost = nil })}
		}},
		{name: "one lost lease spoils the rest", rules: []string{"extend/each by itself"}, wrap: func(m *mind) *fault {
			return &fault{extend: func(next extendFunc) extendFunc {
				return func(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
					plain := req
					plain.Leases = nil
					for _, e := range req.Leases {
						plain.Leases = append(plain.Leases, storage.Extension{Fence: e.Fence})
					}
					if x, err := next(ctx, plain); err != nil || len(x.Lost) > 0 {
						return x, err
					}
					req.Call = storage.Call{}
					return next(ctx, req)
				}
			}}
		}},
		{name: "follow-ups outlive a refused settle", rules: []string{
			"settle/with follow-ups", "apply/all or nothing", "sharing/one settle wins",
		}, wrap: func(m *mind) *fault { return &fault{apply: leaking(m)} }},
		{name: "each operation by itself", rules: []string{"apply/all or nothing", "settle/all or none"},
			wrap: func(m *mind) *fault { return &fault{apply: piecemeal(m)} }},
		{name: "only the first of what is wrong", rules: []string{"apply/lists everything"}, wrap: func(*mind) *fault {
			return &fault{apply: answering(func(_ storage.Tx, a *storage.Applied) {
				var dep *storage.DependencyError
				if errors.As(a.Err, &dep) && len(dep.Stale) > 1 {
					a.Err = &storage.DependencyError{Stale: dep.Stale[:1]}
				}
			})}
		}},
		{name: "one refusal stops the call", rules: []string{"apply/independent"}, wrap: func(*mind) *fault {
			return &fault{apply: func(next applyFunc) applyFunc {
				return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
					for i := range txs {
						applied, err := next(ctx, storage.Call{}, txs[i])
						if err != nil || applied[0].Err != nil {
							rest := make([]storage.Applied, len(txs))
							for n := range rest {
								rest[n].Err = applied[0].Err
							}
							return rest, err
						}
					}
					return next(ctx, call, txs...)
				}
			}}
		}},
		{name: "retries not counted", rules: []string{"settle/fail", "settle/out of retries"}, wrap: func(*mind) *fault {
			return &fault{apply: settles(func(s *storage.Settle) {
				if s.Outcome == storage.Fail {
					s.Outcome = storage.Snooze
				}
			})}
		}},
		{name: "one retry too many", rules: []string{"settle/out of retries", "settle/no retries"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.MaxRetries++ })}
		}},
		{name: "snoozes are charged", rules: []string{"settle/snooze"}, wrap: func(*mind) *fault {
			return &fault{apply: settles(func(s *storage.Settle) {
				if s.Outcome == storage.Snooze {
					s.Outcome = storage.Fail
				}
			})}
		}},
		{name: "snoozes never counted", rules: []string{"settle/snoozes in a row"}, wrap: func(*mind) *fault {
			return &fault{task: shown(func(t *storage.Task) { t.Snoozes, t.SnoozedSince = 0, time.Time{} })}
		}},
		{name: "a release is charged", rules: []string{"settle/release"}, wrap: func(*mind) *fault {
			return &fault{apply: settles(func(s *storage.Settle) {
				if s.Outcome == storage.Release {
					s.Outcome = storage.Fail
				}
			})}
		}},
		{name: "a cancel beats a completion", rules: []string{"settle/complete beats a cancel", "cancel/races a settle"},
			wrap: func(m *mind) *fault { return &fault{apply: cancelling(m)} }},
		{name: "an expired lease cannot settle", rules: []string{"recover/late settle"}, wrap: func(m *mind) *fault {
			return &fault{apply: func(next applyFunc) applyFunc {
				return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
					for _, tx := range txs {
						for _, s := range tx.Settles {
							if t, err := m.Task(ctx, s.Fence.Ref); err == nil && t.LeaseUntil.Before(time.Now()) {
								return []storage.Applied{{Err: &storage.DependencyError{Lost: []storage.Ref{s.Fence.Ref}}}}, nil
							}
						}
					}
					return next(ctx, call, txs...)
				}
			}}
		}},
		{name: "history of one", rules: []string{"settle/history"}, wrap: func(*mind) *fault {
			return &fault{task: shown(func(t *storage.Task) {
				t.Attempts = t.Attempts[max(0, len(t.Attempts)-1):]
			})}
		}},
		{name: "the full error is lost", rules: []string{"settle/fail", "settle/history", "texts/bounded"}, wrap: func(*mind) *fault {
			return &fault{apply: settles(func(s *storage.Settle) { s.Error = storage.CleanText(s.Error, storage.MaxAttemptError) })}
		}},
		{name: "texts not cleaned", rules: []string{"texts/cleaned"}, wrap: func(m *mind) *fault {
			return &fault{
				apply: settles(func(s *storage.Settle) { m.locked(func() { m.texts[s.Fence.Ref] = s.Error }) }),
				task: shown(func(t *storage.Task) {
					m.locked(func() {
						if text, ok := m.texts[t.Ref]; ok && len(t.Attempts) > 0 {
							t.Attempts[len(t.Attempts)-1].Error = text
						}
					})
				}),
			}
		}},
		{name: "long texts refused", rules: []string{"texts/bounded"}, wrap: func(*mind) *fault {
			return &fault{apply: func(next applyFunc) applyFunc {
				return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
					for _, tx := range txs {
						for _, s := range tx.Settles {
							if len(s.Stack) > 1<<20 {
								return nil, fmt.Errorf("too long: %w", storage.Invalid("stack", len(s.Stack), "less"))
							}
						}
					}
					return next(ctx, call, txs...)
				}
			}}
		}},
		{name: "checkpoint ends with its attempt", rules: []string{"settle/checkpoint stays"}, wrap: func(*mind) *fault {
			return &fault{task: shown(func(t *storage.Task) {
				if t.State != storage.Pending {
					t.Checkpoint = nil
				}
			})}
		}},
		{name: "progress is lost", rules: []string{"extend/progress and checkpoint"}, wrap: func(*mind) *fault {
			return &fault{extend: extending(func(e *storage.Extension) { e.Progress = nil })}
		}},
		{name: "extend grows the version", rules: []string{"claim/versions grow", "extend/charges nothing"}, wrap: func(m *mind) *fault {
			return &fault{
				extend: extending(func(*storage.Extension) { m.locked(func() { m.count++ }) }),
				task:   shown(func(t *storage.Task) { m.locked(func() { t.Version += int64(m.count) }) }),
			}
		}},
	}
}

// remembering makes a claim that notes its fences.
func remembering(m *mind) func(claimFunc) claimFunc {
	return given(func(_ storage.ClaimRequest, c *storage.Claimed) { m.remember(*c) })
}

// lenient makes an apply that settles whatever the fence, and calls it done where
// even that is refused.
func lenient(m *mind) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		edited := settles(func(s *storage.Settle) { s.Fence = m.fence(s.Fence) })(next)
		return answering(func(tx storage.Tx, a *storage.Applied) {
			if len(tx.Settles) > 0 && errors.Is(a.Err, storage.ErrLeaseLost) {
				*a = storage.Applied{Settled: make([]storage.Placed, len(tx.Settles)), Inserted: make([]storage.Placed, len(tx.Inserts))}
			}
		})(edited)
	}
}

// leaking makes an apply that inserts although the settles beside were refused.
func leaking(m *mind) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			applied, err := next(ctx, call, txs...)
			for i, a := range applied {
				if errors.Is(a.Err, storage.ErrLeaseLost) && len(txs[i].Inserts) > 0 {
					if _, err := m.Apply(ctx, storage.Call{}, storage.Tx{Inserts: txs[i].Inserts}); err != nil {
						return nil, err
					}
				}
			}
			return applied, err
		}
	}
}

// piecemeal makes an apply that does each settle and insert in a step of its own
// where the whole was refused.
func piecemeal(m *mind) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			applied, err := next(ctx, call, txs...)
			for i, a := range applied {
				if a.Err == nil {
					continue
				}
				var single []storage.Tx
				for _, s := range txs[i].Settles {
					single = append(single, storage.Tx{Settles: []storage.Settle{s}})
				}
				for _, j := range txs[i].Inserts {
					single = append(single, storage.Tx{Inserts: []storage.Insert{j}})
				}
				if _, err := m.Apply(ctx, storage.Call{}, single...); err != nil {
					return nil, err
				}
			}
			return applied, err
		}
	}
}

// cancelling makes an apply that cancels what completes after a cancel was asked.
func cancelling(m *mind) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			return settles(func(s *storage.Settle) {
				if t, err := m.Task(ctx, s.Fence.Ref); err == nil && t.CancelAsked {
					s.Outcome, s.Result = storage.Cancel, nil
				}
			})(next)(ctx, call, txs...)
		}
	}
}

// extended makes an extend that alters its answer.
func extended(edit func(*storage.Extended)) func(extendFunc) extendFunc {
	return func(next extendFunc) extendFunc {
		return func(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
			x, err := next(ctx, req)
			edit(&x)
			return x, err
		}
	}
}
