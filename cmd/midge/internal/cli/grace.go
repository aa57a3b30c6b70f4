package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// grace is the time in which a call that changes the storage may end after the command was interrupted or
// its time was over.
const grace = 2 * time.Second

// graceful is a storage whose changing calls have the grace. Without it most commands would stop in the
// middle of a call, and could not report the changes of this call.
type graceful struct{ storage.Storage }

// Apply does the same as the storage's Apply, with the grace.
func (g graceful) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	ctx, stop, err := withGrace(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	return g.Storage.Apply(ctx, call, txs...)
}

// Configure does the same as the storage's Configure, with the grace.
func (g graceful) Configure(
	ctx context.Context, call storage.Call, queue string, settings storage.Settings,
) error {
	ctx, stop, err := withGrace(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return g.Storage.Configure(ctx, call, queue, settings)
}

// withGrace returns a context that ends with ctx, or a grace later if ctx ends because the command has to. It
// returns an error if ctx has ended: the call must not be sent then.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("%w: %w", storage.ErrUnavailable, context.Cause(ctx))
	}
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unwatch := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if errors.Is(ctx.Err(), context.Canceled) || errors.Is(cause, errTimeout) {
			sleep.For(late, grace)
		}
		cancel(cause)
	})
	return late, func() {
		unwatch()
		cancel(nil)
	}, nil
}
