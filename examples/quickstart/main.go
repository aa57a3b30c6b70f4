// Quickstart shows what midge does, in five seconds: jobs that run at once, after a
// delay and at a moment; a job that fails, is retried and succeeds; a job that fails
// for good, is dead, and is requeued after its cause is mended; a unique job; a job
// with a result; and a schedule that ticks each second.
//
// You will see the program's own lines, marked », a line of the runner for each
// attempt, and at the end the number of tasks in each state. It ends by itself.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -redis redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/examples/internal/store"
	"github.com/midgehq/midge/storage"
)

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func start() error {
	url := store.Flag()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	opened, err := store.Open(ctx, *url)
	if err != nil {
		return err
	}
	return errors.Join(run(ctx, opened, os.Stdout), opened.Close())
}

// run starts a runner, runs the story, and stops the runner.
func run(ctx context.Context, opened storage.Storage, out io.Writer) error {
	log := logger(out)
	client, err := midge.NewClient(opened, midge.ClientConfig{})
	if err != nil {
		return err
	}
	var mended atomic.Bool
	runner, err := newRunner(opened, log, &mended)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(running) }()

	s := &story{client: client, say: log.Sugar(), mended: &mended}
	told := s.tell(ctx)
	stop() // Run lets running jobs finish
	ran := <-ended
	return errors.Join(told, ran, client.Queue(queue).Remove(context.WithoutCancel(ctx)))
}

// newRunner returns a runner that knows the jobs of this example.
func newRunner(opened storage.Storage, log *zap.Logger, mended *atomic.Bool) (*midge.Runner, error) {
	runner, err := midge.NewRunner(opened, midge.RunnerConfig{Queues: []string{queue}, Logger: log})
	if err != nil {
		return nil, err
	}
	return runner, errors.Join(
		midge.Register[SendWelcome](runner),
		midge.Register[ChargeCard](runner),
		midge.Register[AddUp](runner),
		midge.Register[Tick](runner),
		midge.Handle(runner, importFile(mended)),
		runner.Periodic(midge.Every(time.Second), Tick{}),
	)
}

// logger returns a logger that prints lines for people: the time, the level, the text.
func logger(out io.Writer) *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{
		TimeKey: "time", EncodeTime: zapcore.TimeEncoderOfLayout("15:04:05.000"),
		LevelKey: "level", EncodeLevel: zapcore.CapitalLevelEncoder,
		MessageKey: "message", ConsoleSeparator: "  ",
	})
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(out)), zapcore.InfoLevel))
}
