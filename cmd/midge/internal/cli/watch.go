package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// watchFlag adds --watch to a command.
func watchFlag(cmd *cobra.Command) *time.Duration {
	every := cmd.Flags().DurationP("watch", "w", 0,
		"show it anew each `time`, 2s where none is given, until interrupted")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return every
}

// leastWatch keeps a watcher from being a load.
const leastWatch = 200 * time.Millisecond

// watched makes the function of a command that can be watched.
func (a *app) watched(
	every *time.Duration, do func(ctx context.Context, args []string) error,
) func(*cobra.Command, []string) error {
	once, repeatedly := a.quick(do), a.long(func(ctx context.Context, args []string) error {
		return a.repeat(ctx, *every, func(ctx context.Context) error { return do(ctx, args) })
	})
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed("watch"):
			return once(cmd, args)
		case *every < leastWatch:
			return usage(cmd, "--watch wants %v or more, and got %v", leastWatch, *every)
		}
		return repeatedly(cmd, args)
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
