package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

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
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		var page bytes.Buffer
		a.std.Out = &page
		err := do(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if a.std.Terminal {
			_, _ = fmt.Fprintf(out, "\x1b[H\x1b[2J%s   %s\n\n", a.target, time.Now().Format("15:04:05"))
		}
		if _, err := io.Copy(out, &page); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
