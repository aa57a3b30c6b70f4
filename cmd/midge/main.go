// Command midge shows and repairs the tasks of a midge storage from a shell, for the person on call.
//
//	midge --storage redis://localhost:6379
//	midge task ls 'state:dead error:timeout'
//	midge task requeue 'state:dead error:timeout'
//
// "midge help" lists the commands; docs/operating.md teaches them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/midgehq/midge/cmd/midge/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends a command that ignores the first
	code := cli.Run(ctx, os.Args[1:], cli.Process())
	stop()
	os.Exit(code)
}
