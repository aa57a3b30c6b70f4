// Longjob runs very long jobs, each in a child process of its own. The runner keeps
// their leases alive for as long as they take: three leases here, and days if
// necessary. A child reports each frame, the job stores that as progress, and anybody
// can read it. Each tenth frame is a checkpoint from which the next attempt continues.
//
// You will see three films encoded at once, watched by another goroutine. The child of
// the second film is killed in the middle, as the kernel does when memory runs out. Its
// job fails with an error that reports it, and the retry continues at the checkpoint.
// The third film is cancelled: the context of its job ends, and its child is killed
// with all processes that it has started. At the end the program prints how each task ended.
//
//	go run ./examples/longjob
//	go run ./examples/longjob -redis redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/examples/internal/store"
	"github.com/midgehq/midge/storage"
)

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "longjob:", err)
		os.Exit(1)
	}
}

func start() error {
	if os.Getenv(envChild) != "" {
		return childMain(os.Stdin, os.Stdout)
	}
	url := store.Flag()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opened, err := store.Open(ctx, *url)
	if err != nil {
		return err
	}
	return errors.Join(run(ctx, opened, 20*time.Millisecond, os.Stdout), opened.Close())
}

// run encodes three films, with one frame in each pace, and prints the story on out.
func run(ctx context.Context, opened storage.Storage, pace time.Duration, out io.Writer) error {
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{
		TimeKey: "time", EncodeTime: zapcore.TimeEncoderOfLayout("15:04:05.000"), MessageKey: "message",
		LevelKey: "level", EncodeLevel: zapcore.CapitalLevelEncoder, ConsoleSeparator: "  ",
	}), zapcore.Lock(zapcore.AddSync(out)), zapcore.InfoLevel))
	client, err := midge.NewClient(opened, midge.ClientConfig{})
	if err != nil {
		return err
	}
	runner, err := midge.NewRunner(opened, midge.RunnerConfig{
		Queues: []string{queue}, Concurrency: 3, Logger: log,
		Lease: time.Second, // shorter than these jobs
		Grace: time.Second,
	})
	if err != nil {
		return err
	}
	if err := midge.Handle(runner, encode); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(running) }()

	s := &studio{client: client, say: log.Sugar()}
	told := s.encodeAll(ctx, pace)
	stop()
	ran := <-ended
	return errors.Join(told, ran, client.Queue(queue).Remove(context.WithoutCancel(ctx)))
}
