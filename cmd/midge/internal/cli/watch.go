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
		"repeat the output after each `time` (2s if you give no time), until interrupted")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return every
}

// leastWatch is the least interval between two outputs. It bounds the load that a watching command puts on
// the storage.
const leastWatch = 200 * time.Millisecond

// watched makes the function of a command that runs do once, or again and again with --watch.
func (a *app) watched(
	every *span, do func(ctx context.Context, args []string) error,
) func(*cobra.Command, []string) error {
	return a.either(every, do, func(ctx context.Context, args []string) error {
		return a.repeat(ctx, every.Duration, func(ctx context.Context) error { return do(ctx, args) })
	})
}

// either makes the function of a command that runs once, or watched if --watch is set.
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

// repeat runs do again and again until the user interrupts it or the time of --timeout is over; neither is
// a failure. On a terminal each output replaces the previous one.
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

// turns runs do once per interval until ctx ends. After the first success, it reports that the storage
// cannot be reached and continues, because the user who watches an outage wants to see its end. It returns
// any other error.
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
			a.notef("%s cannot be reached: %s", a.target.Address(), show.Text(a.unreached(err)))
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
