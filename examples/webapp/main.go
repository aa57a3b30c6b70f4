// Webapp is an HTTP server that enqueues from a handler and runs the jobs in the same
// process. On SIGTERM or an interrupt it stops taking requests, lets running jobs
// finish, and ends.
//
//	go run ./examples/webapp
//	curl -d to=ann localhost:8080/welcome          # 202 and the task
//	curl localhost:8080/tasks/mail/TASK            # how it stands
//	curl localhost:8080/stats
//
// With -demo it listens on a free port, makes these requests itself, and ends itself as
// SIGTERM would. You will see each request, the lines of the runner, and the drain: a
// mail that is being sent at that moment is still sent.
//
//	go run ./examples/webapp -demo
//	go run ./examples/webapp -redis redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/examples/internal/store"
	"github.com/midgehq/midge/storage"
)

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "webapp:", err)
		os.Exit(1)
	}
}

func start() error {
	url := store.Flag()
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	demo := flag.Bool("demo", false, "make a few requests and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return serve(ctx, *url, *addr, *demo)
}

func serve(ctx context.Context, url, addr string, demo bool) error {
	log, err := zap.NewDevelopment(zap.WithCaller(false), zap.AddStacktrace(zap.FatalLevel))
	if err != nil {
		return fmt.Errorf("make a logger: %w", err)
	}
	opened, err := store.Open(ctx, url)
	if err != nil {
		return err
	}
	if demo {
		addr = "127.0.0.1:0"
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), opened.Close())
	}
	log.Info("listening on http://" + listener.Addr().String())
	if !demo {
		return errors.Join(run(ctx, opened, listener, log), opened.Close())
	}
	ctx, terminate := context.WithCancel(ctx)
	defer terminate()
	shown := make(chan error, 1)
	go func() {
		shown <- show(ctx, "http://"+listener.Addr().String(), log)
		log.Info("demo: as if by SIGTERM")
		terminate()
	}()
	err = run(ctx, opened, listener, log)
	return errors.Join(err, <-shown, opened.Close())
}

// run serves until ctx ends, then drains: first the requests, which may enqueue, then
// the jobs.
func run(ctx context.Context, opened storage.Storage, listener net.Listener, log *zap.Logger) error {
	client, err := midge.NewClient(opened, midge.ClientConfig{})
	if err != nil {
		return err
	}
	runner, err := midge.NewRunner(opened, midge.RunnerConfig{Queues: []string{"mail"}, Logger: log})
	if err != nil {
		return err
	}
	mailer := &mailer{log: log, handshake: 200 * time.Millisecond}
	if err := midge.Handle(runner, mailer.send); err != nil {
		return err
	}

	jobs, drainJobs := context.WithCancel(context.WithoutCancel(ctx))
	defer drainJobs()
	ran := make(chan error, 1)
	go func() { ran <- runner.Run(jobs) }()

	server := &http.Server{Handler: handler(client), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	select {
	case err = <-served: // Serve always returns an error
	case err = <-ran:
		ran <- err
	case <-ctx.Done():
	}
	log.Info("draining")
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(shutdown))
	drainJobs()
	return errors.Join(err, <-ran)
}
