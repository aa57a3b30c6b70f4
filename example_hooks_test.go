package midge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
)

// OnEnd is called for each attempt once the storage has acknowledged its end: the place for metrics, and
// for an alert if a task is dead.
func ExampleEnded() {
	store, err := memory.Open(memory.Config{})
	must(err)
	ended := make(chan midge.Ended, 10)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{
		OnEnd: []func(context.Context, midge.Ended){
			func(_ context.Context, e midge.Ended) { ended <- e },
		},
	})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	must(midge.Handle(runner, func(_ context.Context, _ Resize) error {
		return midge.RetryIn(time.Millisecond, errors.New("the disk is full"))
	}))
	ctx, stop := start(runner)
	_, err = client.Enqueue(ctx, Resize{Path: "cat.png"}, midge.Retries(1))
	must(err)
	for range 2 {
		e := <-ended
		fmt.Println(e.Task.Kind, e.Outcome, e.Err, "final:", e.Final, e.Task.State, "retry in", e.RetryIn)
	}
	stop()
	// Output:
	// resize failed the disk is full final: false retry retry in 1ms
	// resize failed the disk is full final: true dead retry in 0s
}

// A middleware learns in a word how the attempt ends.
func ExampleOutcomeOf() {
	fmt.Println(midge.OutcomeOf(nil))
	fmt.Println(midge.OutcomeOf(errors.New("the disk is full")))
	fmt.Println(midge.OutcomeOf(fmt.Errorf("resize: %w", midge.Discard(errors.New("no picture")))))
	fmt.Println(midge.OutcomeOf(midge.Snooze(time.Hour)))
	fmt.Println(midge.OutcomeOf(&midge.PanicError{Value: "index out of range"}))
	// Output:
	// succeeded
	// failed
	// discarded
	// snoozed
	// panicked
}

// Export writes a report.
type Export struct{ Report string }

// BeforeRun comes before Run: its error fails the attempt.
func (e Export) BeforeRun(context.Context) error {
	if e.Report == "" {
		return midge.Discard(errors.New("no report is named"))
	}
	return nil
}

// Run does the work.
func (e Export) Run(context.Context) error {
	fmt.Println("exporting", e.Report)
	return nil
}

// AfterRun receives the outcome of the attempt.
func (e Export) AfterRun(_ context.Context, err error) {
	fmt.Println(midge.OutcomeOf(err), err)
}

// Methods of the job type surround each of its attempts.
func ExampleRegister_hooks() {
	runner, client := set()
	must(midge.Register[Export](runner))
	ctx, stop := start(runner)
	task, err := client.Enqueue(ctx, Export{Report: "sales"}, midge.KeepFor(time.Minute))
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	stop()
	// Output:
	// exporting sales
	// succeeded <nil>
}

// A code that is good for a minute is not sent an hour later.
func ExampleDeadline() {
	runner, client := set()
	must(midge.Handle(runner, func(context.Context, Resize) error {
		fmt.Println("sent")
		return nil
	}))
	ctx := context.Background()
	task, err := client.Enqueue(ctx, Resize{Path: "code"}, midge.Deadline(time.Now().Add(-time.Hour)))
	must(err)
	_, stop := start(runner) // it comes too late
	defer stop()
	var dead *midge.DeadError
	errors.As(client.Await(ctx, task.Ref, nil), &dead)
	fmt.Println(dead.Reason)
	// Output: expired
}

// A program that has more to start than a runner starts it, and shuts it down with the rest.
func ExampleRunner_Start() {
	runner, client := set()
	must(midge.Handle(runner, func(_ context.Context, job Resize) error {
		fmt.Println("resized", job.Path)
		return nil
	}))
	starting, cancel := context.WithTimeout(context.Background(), 10*time.Second) // for the start alone
	defer cancel()
	must(runner.Start(starting))
	task, err := client.Enqueue(context.Background(), Resize{Path: "cat.png"})
	must(err)
	must(client.Await(context.Background(), task.Ref, nil))
	stopping, cancel := context.WithTimeout(context.Background(), 20*time.Second) // of the grace period
	defer cancel()
	must(runner.Shutdown(stopping))
	// Output: resized cat.png
}

// The two probes of a container.
func ExampleRunner_Ready() {
	runner, _ := set()
	probe := func(ask func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := ask(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/livez", probe(runner.Healthy))
	mux.Handle("/readyz", probe(runner.Ready))
	for _, path := range []string{"/livez", "/readyz"} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(strings.TrimSpace(fmt.Sprint(path, " ", answer.Code, " ", answer.Body)))
	}
	// Output:
	// /livez 200
	// /readyz 503 midge: the runner has not been started
}

// A logger of slog gets the lines, their parts beside them.
func ExampleRunnerConfig_slog() {
	store, err := memory.Open(memory.Config{})
	must(err)
	plain := func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey, "took", "runner", "task": // they differ from run to run
			return slog.Attr{}
		}
		return a
	}
	runner, err := midge.NewRunner(store, midge.RunnerConfig{
		Slog: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: plain})),
	})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	must(midge.Handle(runner, func(context.Context, Resize) error { return midge.Discard(errors.New("no picture")) }))
	ctx, stop := start(runner)
	task, err := client.Enqueue(ctx, Resize{Path: "cat.txt"}, midge.ID("cat"))
	must(err)
	_ = client.Await(ctx, task.Ref, nil) // its error is that the task is dead
	stop()
	// Output: level=ERROR msg="is dead, discarded: no picture" kind=resize queue=default attempt=1 outcome=discarded
}
