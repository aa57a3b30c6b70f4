// Command midge shows and repairs the tasks of a midge storage from a shell, for the person on call.
//
//	midge --storage redis://localhost:6379
//	midge task ls 'state:dead error:timeout'
//	midge task requeue 'state:dead error:timeout'
//
// "midge help" lists the commands; docs/operating.md describes them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/midgehq/midge/cmd/midge/internal/cli"
	"github.com/midgehq/midge/work/command"
)

func main() {
	reaper := command.Main() // first: this process may be the reaper of another one
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends a command that ignores the first
	std := cli.Process()
	std.Reaper = reaper
	code := cli.Run(ctx, os.Args[1:], std)
	stop()
	os.Exit(code)
}
