package storagetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// forgetful makes an Apply that carries out a call a second time, without identity, if redo returns true.
func forgetful(redo func([]storage.Applied, error) bool) func(applyFunc) applyFunc {
	return applies(func(
		ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
	) ([]storage.Applied, error) {
		applied, err := next(ctx, call, txs...)
		if redo(applied, err) {
			return next(ctx, storage.Call{}, txs...)
		}
		return applied, err
	})
}

// misnamed makes an Apply that alters the identity of its calls.
func misnamed(edit func(*storage.Call)) func(applyFunc) applyFunc {
	return applies(func(
		ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
	) ([]storage.Applied, error) {
		edit(&call)
		return next(ctx, call, txs...)
	})
}

func identityMutants() []mutant {
	none := func(c *storage.Call) { *c = storage.Call{} }
	return []mutant{
		breaks("apply forgets lanes", fault{apply: misnamed(none)},
			"identity/insert", "identity/settle", "identity/several Txs", "identity/beside others"),
		breaks("claim forgets lanes", fault{claim: asked(func(c *storage.ClaimRequest) { none(&c.Call) })},
			"identity/claim", "identity/claim of nothing", "identity/at once"),
		breaks("extend forgets lanes", fault{extend: heartbeats(func(x *storage.ExtendRequest) { none(&x.Call) })},
			"identity/extend"),
		breaks("configure forgets lanes",
			fault{configure: configured(func(c *storage.Call, _ *storage.Settings) { none(c) })},
			"identity/configure"),
		breaks("refusals are not remembered", fault{apply: forgetful(func(a []storage.Applied, err error) bool {
			return err == nil && len(a) > 0 && a[0].Err != nil
		})}, "identity/refusal"),
		breaks("smaller numbers are executed", fault{apply: forgetful(func(_ []storage.Applied, err error) bool {
			return errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrLaneExpired)
		})}, "identity/smaller number"),
		breaks("expired lanes are good", fault{apply: forgetful(func(_ []storage.Applied, err error) bool {
			return errors.Is(err, storage.ErrLaneExpired)
		})}, "identity/lane expired", "identity/end of a lane"),
		breaks("expired lanes are good for claims", fault{claim: asked(func(c *storage.ClaimRequest) {
			if time.Since(c.Call.Lane.Opened) > storage.LaneLife {
				none(&c.Call)
			}
		})}, "identity/lane expired"),
		breaks("a gap in the numbers is unknown", fault{apply: applies(func(
			ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
		) ([]storage.Applied, error) {
			if call.Seq > 500 {
				return nil, fmt.Errorf("gap: %w", storage.ErrUnknown)
			}
			return next(ctx, call, txs...)
		})}, "identity/numbers with gaps"),
		knowing("no identity is an identity", func(*mind) *fault {
			lane := storage.Lane{ID: storage.NewToken(), Opened: time.Now()}
			return &fault{apply: misnamed(func(c *storage.Call) {
				if c.IsZero() {
					*c = storage.Call{Lane: lane, Seq: 1}
				}
			})}
		}, "identity/none"),
		knowing("one lane for all", func(*mind) *fault {
			lane := storage.Lane{ID: storage.NewToken(), Opened: time.Now()}
			return &fault{apply: misnamed(func(c *storage.Call) { c.Lane = lane })}
		}, "identity/lanes apart"),
		knowing("each handle remembers for itself", func(*mind) *fault {
			own := storage.NewToken()
			return &fault{apply: misnamed(func(c *storage.Call) {
				for i := range own {
					c.Lane.ID[i] ^= own[i]
				}
			})}
		}, "identity/another handle"),
	}
}

// openMutants are mutants in the way the storage is opened: its handles and limits.
func openMutants() []mutant {
	return []mutant{
		{
			name:  "each handle has a storage of its own",
			rules: []string{"sharing/handles", "sharing/durable", "wait/another handle", "identity/another handle"},
			opened: func(_ testing.TB, limits storage.Limits, o *Opened) {
				o.Again = func(t testing.TB) storage.Storage {
					t.Helper()
					s, err := memory.Open(memory.Config{Limits: limits})
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
			},
		},
		{
			name: "payloads unchecked",
			rules: []string{
				"limits/insert", "limits/payload by default", "limits/change", "limits/extend", "describe/limits",
			},
			limits: func(l storage.Limits) storage.Limits {
				l.MaxPayload = storage.MaxPayloadCap
				return l
			},
		},
		{
			name: "limits cannot be raised", rules: []string{"limits/payload raised", "claim/4 MiB"},
			limits: func(l storage.Limits) storage.Limits {
				l.MaxPayload = 0
				return l
			},
		},
		{
			name:   "dead not trimmed",
			rules:  []string{"keep/dead for a time", "keep/dead at most so many", "keep/dead of a crash loop"},
			limits: func(storage.Limits) storage.Limits { return storage.Limits{} },
		},
		{
			name: "no limit is the default", rules: []string{"keep/dead without limit"},
			limits: func(l storage.Limits) storage.Limits {
				l.DeadMax = max(l.DeadMax, 2)
				return l
			},
		},
		breaks("evicted not counted", fault{stats: func(next statsFunc) statsFunc {
			return func(ctx context.Context, queues ...string) ([]storage.Stats, error) {
				all, err := next(ctx, queues...)
				for i := range all {
					all[i].Totals.Evicted = 0
				}
				return all, err
			}
		}}, "keep/dead at most so many", "keep/dead of a crash loop"),
		breaks("every dead task that goes is evicted", fault{stats: func(next statsFunc) statsFunc {
			return func(ctx context.Context, queues ...string) ([]storage.Stats, error) {
				all, err := next(ctx, queues...)
				for i := range all {
					all[i].Totals.Evicted = all[i].Totals.Dead - all[i].Dead
				}
				return all, err
			}
		}}, "keep/evicted stays counted"),
	}
}
