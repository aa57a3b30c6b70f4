// Way counts the functions of midge on the way of one call: of an enqueue, and of the whole life of a task, which is
// enqueued, claimed, run and completed. The program has to be built with coverage; tools/way.sh does that and prints
// the counts. It counts functions of Go, and not functions in the scripts of Redis.
//
//	usage: way memory|redis DIR
//
// It writes the counters of the two ways into DIR/enqueue and DIR/life.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/coverage"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/redis"
)

type job struct{ N int }

func (job) Kind() string { return "job" }

func main() {
	if err := count(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "way:", err)
		os.Exit(1)
	}
}

func count(kind, dir string) error {
	ctx := context.Background()
	s, err := open(ctx, kind)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // the counts are written
	client, err := midge.NewClient(s, midge.ClientConfig{})
	if err != nil {
		return err
	}
	for range 3 { // the first calls make the queue and the lane, and bring the scripts
		if _, err := client.Enqueue(ctx, job{}); err != nil {
			return err
		}
	}
	if err := ways(filepath.Join(dir, "enqueue"), func() error {
		_, err := client.Enqueue(ctx, job{N: 1})
		return err
	}); err != nil {
		return err
	}
	ran := make(chan struct{}, 10)
	runner, err := midge.NewRunner(s, midge.RunnerConfig{Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	if err := midge.Handle(runner, func(context.Context, job) error {
		ran <- struct{}{}
		return nil
	}); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(running) }()
	for range 4 {
		<-ran
	}
	return ways(filepath.Join(dir, "life"), func() error {
		if _, err := client.Enqueue(ctx, job{N: 1}); err != nil {
			return err
		}
		<-ran
		stop()
		return <-ended
	})
}

// ways writes into dir which code a call reaches.
func ways(dir string, call func() error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	if err := coverage.WriteMetaDir(dir); err != nil {
		return err
	}
	return coverage.WriteCountersDir(dir)
}

func open(ctx context.Context, kind string) (storage.Storage, error) {
	if kind == "memory" {
		return memory.Open(memory.Config{})
	}
	server, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	return redis.Open(ctx, redis.Config{URL: "redis://" + server.Addr()})
}
