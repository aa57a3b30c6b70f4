package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

func settleMutants() []mutant {
	return []mutant{
		breaks("retries not counted", fault{apply: turning(storage.Fail, storage.Snooze)},
			"settle/fail", "settle/out of retries"),
		breaks("one retry too many", fault{apply: inserts(func(j *storage.Insert) { j.MaxRetries++ })},
			"settle/out of retries", "settle/no retries"),
		breaks("snoozes are charged", fault{apply: turning(storage.Snooze, storage.Fail)}, "settle/snooze"),
		breaks("snoozes never counted",
			fault{task: shown(func(t *storage.Task) { t.Snoozes, t.SnoozedSince = 0, time.Time{} })},
			"settle/snoozes in a row"),
		breaks("a release is charged", fault{apply: turning(storage.Release, storage.Fail)}, "settle/release"),
		breaks("a burial has no reason", fault{apply: settles(func(s *storage.Settle) { s.Reason = "" })},
			"settle/bury", "texts/odd but valid"),
		breaks("the history knows failures alone", fault{apply: settles(func(s *storage.Settle) { s.As = "" })},
			"settle/as the caller says"),
		breaks("a cancel completes", fault{apply: turning(storage.Cancel, storage.Complete)}, "settle/cancel"),
		knowing("a cancel beats a completion", func(m *mind) *fault { return &fault{apply: cancelling(m)} },
			"settle/complete beats a cancel", "cancel/races a settle"),
		breaks("the holder stays", fault{task: shown(func(t *storage.Task) { t.Runner = runner })},
			"settle/clears the claim"),
		breaks("history of one", fault{task: shown(func(t *storage.Task) {
			t.Attempts = t.Attempts[max(0, len(t.Attempts)-1):]
		})}, "settle/history"),
		breaks("the full error is lost", fault{apply: settles(func(s *storage.Settle) {
			s.Error = storage.CleanText(s.Error, storage.MaxAttemptError)
		})}, "settle/fail", "settle/history", "texts/bounded"),
		breaks("a success leaves no trace", fault{task: shown(func(t *storage.Task) {
			t.Attempts = slices.DeleteFunc(t.Attempts, func(a storage.Attempt) bool {
				return a.Outcome == storage.AttemptSucceeded
			})
		})}, "settle/success of a kept task"),
		breaks("a success clears the stack", fault{task: shown(func(t *storage.Task) {
			if t.State == storage.Completed {
				t.Stack = ""
			}
		})}, "settle/success of a kept task"),
		breaks("checkpoint ends with its attempt", fault{task: shown(func(t *storage.Task) {
			if t.State != storage.Pending {
				t.Checkpoint = nil
			}
		})}, "settle/checkpoint stays"),
		breaks("results not kept", fault{apply: settles(func(s *storage.Settle) { s.Result = nil })},
			"keep/result by default", "keep/result of any bytes"),
		knowing("texts not cleaned", func(m *mind) *fault {
			return &fault{
				apply: settles(func(s *storage.Settle) { m.locked(func() { m.texts[s.Fence.Ref] = s.Error }) }),
				task:  shown(func(t *storage.Task) { m.locked(func() { restore(t, m.texts) }) }),
			}
		}, "texts/cleaned"),
		breaks("texts in ASCII", fault{apply: settles(func(s *storage.Settle) {
			s.Error = fmt.Sprintf("%+q", s.Error)
		})}, "texts/odd but valid"),
		breaks("long texts refused", fault{apply: refusing(func(txs []storage.Tx) error {
			if len(txs[0].Settles) > 0 && len(txs[0].Settles[0].Stack) > 1<<20 {
				return storage.Invalid("stack", len(txs[0].Settles[0].Stack), "less")
			}
			return nil
		})}, "texts/bounded"),
	}
}

// restore makes the last attempt's error the uncut text of its settle.
func restore(t *storage.Task, texts map[storage.Ref]string) {
	if text, ok := texts[t.Ref]; ok && len(t.Attempts) > 0 {
		t.Attempts[len(t.Attempts)-1].Error = text
	}
}

// cancelling makes an Apply that cancels a task whose cancel was asked, whatever the outcome of its settle.
func cancelling(m *mind) func(applyFunc) applyFunc {
	return settles(func(s *storage.Settle) {
		if t, err := m.Task(context.Background(), s.Fence.Ref); err == nil && t.CancelAsked {
			s.Outcome, s.Result = storage.Cancel, nil
		}
	})
}

func fenceMutants() []mutant {
	return []mutant{
		knowing("settles with stale fences", func(m *mind) *fault {
			return &fault{claim: remembering(m), apply: lenient(m)}
		}, "settle/stale fence", "settle/once", "settle/earlier life", "recover/fence ends", "sharing/one settle wins"),
		knowing("extends with stale fences", func(m *mind) *fault {
			return &fault{
				claim:  remembering(m),
				extend: extending(func(e *storage.Extension) { e.Fence = m.fence(e.Fence) }),
			}
		}, "extend/stale fence"),
		breaks("lost leases not told", fault{extend: extended(func(x *storage.Extended) { x.Lost = nil })},
			"extend/stale fence", "extend/each by itself"),
		breaks("one lost lease spoils the rest", fault{extend: spoilsport}, "extend/each by itself"),
		breaks("progress is lost", fault{extend: extending(func(e *storage.Extension) { e.Progress = nil })},
			"extend/progress and checkpoint"),
		breaks("cancels are not told to holders",
			fault{extend: extended(func(x *storage.Extended) { x.CancelAsked = nil })},
			"extend/cancel asked"),
		breaks("extensions tell another time",
			fault{extend: extended(func(x *storage.Extended) { x.Now = x.Now.Add(time.Hour) })},
			"extend/time"),
		knowing("extend grows the version", func(m *mind) *fault {
			return &fault{
				extend: extending(func(*storage.Extension) { m.locked(func() { m.count++ }) }),
				task:   shown(func(t *storage.Task) { m.locked(func() { t.Version += int64(m.count) }) }),
			}
		}, "claim/versions grow", "extend/charges nothing"),
		breaks("runners live for ever",
			fault{extend: heartbeats(func(x *storage.ExtendRequest) { x.Runner.For = time.Hour })},
			"runners/heartbeat"),
		breaks("each heartbeat replaces the vitals", fault{extend: heartbeats(func(x *storage.ExtendRequest) {
			if len(x.Runner.Vitals) == 0 && x.Runner.ID == "r2" {
				x.Runner.Vitals = []byte("none")
			}
		})}, "runners/vitals"),
		breaks("each heartbeat replaces the schedules", fault{extend: heartbeats(func(x *storage.ExtendRequest) {
			if len(x.Runner.Schedules) == 0 && x.Runner.ID == "r2" {
				x.Runner.Schedules = []storage.Declared{{Ref: in("cursor.none"), Hash: "none"}}
			}
		})}, "runners/schedules"),
		breaks("runners cannot leave", fault{extend: heartbeats(func(x *storage.ExtendRequest) {
			if x.Runner.Leaving {
				x.Runner.Leaving, x.Runner.For = false, time.Hour
			}
		})}, "runners/leaving"),
		breaks("nameless runners", fault{extend: heartbeats(func(x *storage.ExtendRequest) {
			if x.Runner.ID == "" {
				x.Runner.ID, x.Runner.For = "anonymous", time.Hour
			}
		})}, "runners/no heartbeat without an id"),
	}
}

// spoilsport makes an Extend that extends no lease if one lease is lost.
func spoilsport(next extendFunc) extendFunc {
	return func(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
		plain := storage.ExtendRequest{}
		for _, e := range req.Leases {
			plain.Leases = append(plain.Leases, storage.Extension{Fence: e.Fence})
		}
		if x, err := next(ctx, plain); err != nil || len(x.Lost) > 0 {
			return x, err
		}
		return next(ctx, req)
	}
}

// lenient makes an Apply that settles with any fence, and reports success if even that is
// refused.
func lenient(m *mind) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		edited := settles(func(s *storage.Settle) { s.Fence = m.fence(s.Fence) })(next)
		return answering(func(tx storage.Tx, a *storage.Applied) {
			if len(tx.Settles) > 0 && errors.Is(a.Err, storage.ErrLeaseLost) {
				*a = storage.Applied{
					Settled: make([]storage.Placed, len(tx.Settles)), Inserted: make([]storage.Placed, len(tx.Inserts)),
				}
			}
		})(edited)
	}
}

func applyMutants() []mutant {
	return []mutant{
		knowing("follow-ups outlive a refused settle", func(m *mind) *fault { return &fault{apply: leaking(m)} },
			"settle/with follow-ups", "apply/all or nothing", "sharing/one settle wins"),
		knowing("each operation by itself", func(m *mind) *fault { return &fault{apply: piecemeal(m)} },
			"apply/all or nothing", "settle/all or none"),
		knowing("spans that are not whole", func(m *mind) *fault { return &fault{apply: halved(m)} },
			"settle/across queues", "apply/refused in each queue", "change/move"),
		breaks("only the first of what is wrong", fault{apply: answering(func(_ storage.Tx, a *storage.Applied) {
			var dep *storage.DependencyError
			if errors.As(a.Err, &dep) && len(dep.Stale) > 1 {
				a.Err = &storage.DependencyError{Stale: dep.Stale[:1]}
			}
		})}, "apply/lists everything"),
		breaks("one refusal stops the call", fault{apply: applies(func(
			ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
		) ([]storage.Applied, error) {
			applied, err := next(ctx, call, txs...)
			for i := range applied[min(1, len(applied)):] {
				if applied[i].Err != nil {
					applied[i+1] = storage.Applied{Err: applied[i].Err}
				}
			}
			return applied, err
		})}, "apply/independent"),
		breaks("last Tx first", fault{apply: backwards}, "apply/in order"),
		breaks("one queue a call", fault{apply: refusing(func(txs []storage.Tx) error {
			for i := range txs {
				if txs[i].Queues()[0] != txs[0].Queues()[0] {
					return storage.ErrSpan
				}
			}
			return nil
		})}, "apply/many queues", "identity/several Txs"),
		breaks("settles stand alone", fault{apply: refusing(func(txs []storage.Tx) error {
			if len(txs[0].Settles) > 0 && txs[0].Ops() > len(txs[0].Settles) {
				return storage.Invalid("transaction", "with a settle and more", "a settle alone")
			}
			return nil
		})}, "apply/everything at once"),
	}
}

// backwards makes an Apply that carries out the Txs of a call in reverse order.
func backwards(next applyFunc) applyFunc {
	return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
		n := len(txs)
		reversed := make([]storage.Tx, n)
		for i, tx := range txs {
			reversed[n-1-i] = tx
		}
		applied, err := next(ctx, call, reversed...)
		if err != nil {
			return nil, err
		}
		answers := make([]storage.Applied, n)
		for i, a := range applied {
			answers[n-1-i] = a
		}
		return answers, nil
	}
}

// leaking makes an Apply that carries out the inserts of a Tx although its settles were refused.
func leaking(m *mind) func(applyFunc) applyFunc {
	return answering(func(tx storage.Tx, a *storage.Applied) {
		if errors.Is(a.Err, storage.ErrLeaseLost) && len(tx.Inserts) > 0 {
			_, _ = m.Apply(context.Background(), storage.Call{}, storage.Tx{Inserts: tx.Inserts})
		}
	})
}

// piecemeal makes an Apply that carries out each settle and insert in a step of its own if
// the whole Tx was refused.
func piecemeal(m *mind) func(applyFunc) applyFunc {
	return answering(func(tx storage.Tx, a *storage.Applied) {
		if a.Err == nil {
			return
		}
		for _, s := range tx.Settles {
			_, _ = m.Apply(context.Background(), storage.Call{}, storage.Tx{Settles: []storage.Settle{s}})
		}
		for _, j := range tx.Inserts {
			_, _ = m.Apply(context.Background(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{j}})
		}
	})
}

// halved makes an Apply that carries out only the first insert of a Tx across queues.
func halved(m *mind) func(applyFunc) applyFunc {
	return applies(func(
		ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
	) ([]storage.Applied, error) {
		for i := range txs {
			if len(txs[i].Queues()) < 2 {
				continue
			}
			if len(txs[i].Inserts) > 0 {
				if _, err := m.Apply(ctx, storage.Call{}, storage.Tx{Inserts: txs[i].Inserts[:1]}); err != nil {
					return nil, err
				}
			}
			return nil, errors.New("half of it was done")
		}
		return next(ctx, call, txs...)
	})
}
