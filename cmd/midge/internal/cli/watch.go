package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/storage"
)

// watchFlag adds --watch to a command.
func watchFlag(cmd *cobra.Command) *span {
	every := &span{}
	cmd.Flags().VarP(every, "watch", "w",
		"show it anew each `time`, 2s where none is given, until interrupted")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return every
}

// leastWatch keeps a watcher from being a load.
const leastWatch = 200 * time.Millisecond

// watched makes the function of a command that can be watched.
func (a *app) watched(
	every *span, do func(ctx context.Context, args []string) error,
) func(*cobra.Command, []string) error {
	return a.either(every, do, func(ctx context.Context, args []string) error {
		return a.repeat(ctx, every.Duration, func(ctx context.Context) error { return do(ctx, args) })
	})
}

// either makes the function of a command that does one thing once, and another one where it is watched.
func (a *app) either(
	every *span, once, watched func(ctx context.Context, args []string) error,
) func(*cobra.Command, []string) error {
	quick, long := a.quick(once), a.long(watched)
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed("watch"):
			return quick(cmd, args)
		case every.Duration < leastWatch:
			return storage.Invalid("--watch", every.Duration, "%v or more", leastWatch)
		}
		return long(cmd, args)
	}
}

// repeat does something until the user interrupts it or the time of --timeout is over, which is no
// failure. On a terminal each turn takes the place of the one before.
func (a *app) repeat(ctx context.Context, every time.Duration, do func(ctx context.Context) error) error {
	out := a.std.Out
	defer func() { a.std.Out = out }()
	return a.turns(ctx, every, func(ctx context.Context) error {
		var page bytes.Buffer
		a.std.Out = &page
		if err := do(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		if a.std.Terminal {
			_, _ = fmt.Fprintf(out, "\x1b[H\x1b[2J%s   %s\n\n", a.target, time.Now().Format("15:04:05"))
		}
		_, err := io.Copy(out, &page)
		return err
	})
}

// turns does something each time, until ctx ends. Where the storage cannot be reached any more, it says so
// and goes on: whoever watches an outage wants to see its end.
func (a *app) turns(ctx context.Context, every time.Duration, do func(ctx context.Context) error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for answered := false; ; {
		err := do(ctx)
		away := errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			answered = true
		case away && answered:
			a.notef("%s cannot be reached: %s", a.target.Address(), show.Text(err.Error()))
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
