// Command peer is a process of an application that is upgraded while it runs. It enqueues jobs
// and runs the jobs of all peers. It stops enqueueing when it reads a line from its standard
// input, and ends when the input ends. It prints a line for each acknowledged job and for each
// run:
//
//	ready
//	enqueued <id>
//	ran <id>
//
// The build tag midge_next builds the next version. With -migrate, it migrates first.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/postgres"
)

// errand is a job. If it is stubborn, its first run fails and the second succeeds.
type errand struct{ Stubborn bool }

var errStubborn = errors.New("stubborn")

func (e errand) Run(ctx context.Context) error {
	info, _ := midge.Current(ctx)
	if e.Stubborn && info.Retries == 0 {
		return midge.RetryIn(20*time.Millisecond, errStubborn)
	}
	fmt.Println("ran", info.Ref.ID)
	return nil
}

func main() {
	url, schema := flag.String("url", "", "of the server"), flag.String("schema", "", "of the storage")
	migrate := flag.Bool("migrate", false, "migrate first")
	flag.Parse()
	if err := run(context.Background(), postgres.Config{URL: *url, Schema: *schema}, *migrate); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, cfg postgres.Config, migrate bool) error {
	if migrate {
		if err := postgres.Migrate(ctx, cfg); err != nil {
			return err
		}
	}
	store, err := postgres.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	runner, err := midge.NewRunner(store, midge.RunnerConfig{Lease: time.Minute}) // a busy machine delays heartbeats
	if err != nil {
		return err
	}
	if err := midge.Register[errand](runner); err != nil {
		return err
	}
	client, err := midge.NewClient(store, midge.ClientConfig{Patience: time.Minute})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	producing, quiet := context.WithCancel(running)
	go func() { // ends with standard input
		in := bufio.NewReader(os.Stdin)
		_, _ = in.ReadString('\n')
		quiet()
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	failed := make(chan error, 1)
	go func() { // ends when producing ends
		err := produce(producing, client)
		fmt.Println("quiet")
		failed <- err
	}()
	fmt.Println("ready")
	return errors.Join(runner.Run(running), <-failed)
}

// produce enqueues jobs of all kinds every few milliseconds until ctx ends. The end of ctx
// does not cancel an enqueue, because its outcome would be unknown.
func produce(ctx context.Context, client *midge.Client) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		items := []midge.Item{
			midge.New(errand{}), midge.New(errand{Stubborn: true}), midge.New(errand{}, midge.In(50*time.Millisecond)),
			midge.New(errand{}, midge.KeepFor(time.Minute)), midge.New(errand{}, midge.Priority(n%10)),
		}
		if n%20 == 0 { // large enough for the bulk path
			for range 150 {
				items = append(items, midge.New(errand{}))
			}
		}
		results, err := client.EnqueueMany(context.WithoutCancel(ctx), items[n%5:])
		for _, r := range results {
			if r.Err == nil {
				fmt.Println("enqueued", r.Task.Ref.ID)
			}
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
