// Ratelimit shows limits of partitions: each customer has a quota at a service, and a job of one customer
// never waits for the quota of another. The storage keeps each customer below a rate and a number of jobs at
// once, in all processes together. A job that asks for several pages costs as many starts. If the service
// refuses a call all the same, with the status 429 and the header Retry-After, the job returns
// midge.Throttle: its task goes back uncharged, and its customer rests, while all others go on.
//
// You will see a line for each call: when it was made, for which customer, and what the service answered.
// "big" has the most jobs, and shares its quota with another program, so that the service refuses it at
// first. "small" comes last, and does not wait for "big". The program starts the service itself, on a free
// port of this machine, and ends by itself after about three seconds.
//
//	go run ./examples/ratelimit
//	go run ./examples/ratelimit -redis redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/examples/internal/store"
	"github.com/midgehq/midge/storage"
)

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "ratelimit:", err)
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

const queue = "ratelimit"

// The service admits quota pages of a customer in a window. The limit leaves room for a customer's other
// programs, and for calls that come late: see "The storage counts starts" in docs/limits.md.
const (
	quota  = 5
	window = time.Second
)

// limit is that of the queue: what holds for all customers together, and for each of them.
var limit = midge.Limit{
	Concurrency: 8,
	Partition:   midge.PartitionLimit{Concurrency: 2, Rate: midge.Rate{N: quota - 1, Per: window}},
}

// Sync is the job of a customer: it fetches pages from the service.
type Sync struct {
	Customer string
	Pages    []int
}

// Options names the queue.
func (Sync) Options() midge.Options { return midge.Options{Queue: queue} }

// Partition names the customer, whose jobs share a line, a rate and a number of slots.
func (s Sync) Partition() string { return s.Customer }

// Cost is how much of the customer's rate the job uses up.
func (s Sync) Cost() int { return len(s.Pages) }

// fetcher runs the jobs, and prints a line for each call on out.
type fetcher struct {
	service string
	begun   time.Time

	mu  sync.Mutex // guards out
	out io.Writer
}

// sync calls the service. If it refuses the call, the customer rests for as long as the service asks for.
func (f *fetcher) sync(ctx context.Context, s Sync) error {
	url := fmt.Sprintf("%s/%s?pages=%d", f.service, s.Customer, len(s.Pages))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	f.printf("%-5s pages %v: %s", s.Customer, s.Pages, res.Status)
	switch res.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusTooManyRequests:
		return midge.Throttle(retryAfter(res))
	}
	return fmt.Errorf("the service answered %s", res.Status)
}

// retryAfter returns how long the service asks to wait: a second if it names no time.
func retryAfter(res *http.Response) time.Duration {
	seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		return time.Second
	}
	return time.Duration(seconds) * time.Second
}

func (f *fetcher) printf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = fmt.Fprintf(f.out, "%5.2fs  "+format+"\n", append([]any{time.Since(f.begun).Seconds()}, args...)...)
}

// run starts the service and a runner, enqueues the jobs, and waits until all of them are done.
func run(ctx context.Context, opened storage.Storage, out io.Writer) error {
	service, err := listen(ctx)
	if err != nil {
		return err
	}
	defer service.close()
	client, err := midge.NewClient(opened, midge.ClientConfig{})
	if err != nil {
		return err
	}
	f := &fetcher{service: service.url, begun: time.Now(), out: out}
	runner, err := midge.NewRunner(opened, midge.RunnerConfig{
		Queues: []string{queue}, QueueLimits: map[string]midge.Limit{queue: limit},
	})
	if err == nil {
		err = midge.Handle(runner, f.sync)
	}
	if err != nil {
		return err
	}
	service.use("big", quota) // by another program of this customer
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(running) }()

	told := f.tell(ctx, client)
	stop() // Run lets running jobs finish
	return errors.Join(told, <-ended, client.Queue(queue).Remove(context.WithoutCancel(ctx)))
}

// tell enqueues the jobs, and waits for their ends.
func (f *fetcher) tell(ctx context.Context, client *midge.Client) error {
	jobs := []Sync{
		{"big", []int{1}},
		{"big", []int{2, 3, 4}},
		{"big", []int{5}},
		{"big", []int{6, 7}},
		{"mid", []int{1}},
		{"mid", []int{2}},
		{"mid", []int{3}},
		{"mid", []int{4}},
		{"small", []int{1}},
	}
	refs := make([]midge.Ref, 0, len(jobs))
	for _, s := range jobs {
		task, err := client.Enqueue(ctx, s, midge.KeepFor(time.Minute))
		if err != nil {
			return err
		}
		refs = append(refs, task.Ref)
	}
	for _, ref := range refs {
		if err := client.Await(ctx, ref, nil); err != nil {
			return err
		}
	}
	f.printf("all %d jobs are done, and none of them has lost a retry", len(refs))
	return nil
}
