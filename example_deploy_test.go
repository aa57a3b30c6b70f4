package midge_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
)

// probes answers the probes of a process that runs a runner.
func probes(runner *midge.Runner) http.Handler {
	answer := func(ask func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := ask(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(runner.Healthy))
	mux.HandleFunc("GET /readyz", answer(runner.Ready))
	return mux
}

// A process is alive while the loops of its runner go on, and ready while that claims tasks.
func Example_probes() {
	runner, _ := set()
	must(midge.Register[SendGreeting](runner))
	handler := probes(runner)
	show := func() {
		for _, path := range []string{"/healthz", "/readyz"} {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			fmt.Println(path, answer.Code)
		}
	}
	must(runner.Start(context.Background()))
	show()
	must(runner.Shutdown(context.Background()))
	show()
	// Output:
	// /healthz 200
	// /readyz 200
	// /healthz 200
	// /readyz 503
}

// SendNote is the job before its rename.
type SendNote struct{ UserID int64 }

// SendGreeting was SendNote before, and still has the unique keys and the schedules of that.
type SendGreeting struct{ UserID int64 }

func (SendGreeting) Aliases() []string { return []string{"send_note"} }

func (j SendGreeting) Run(context.Context) error {
	fmt.Println("greet", j.UserID)
	return nil
}

// A kind is renamed: tasks of its earlier name run too.
func Example_aliases() {
	runner, client := set()
	must(midge.Register[SendGreeting](runner))
	ctx, stop := start(runner)
	defer stop()
	old, err := client.Enqueue(ctx, SendNote{UserID: 42}, midge.KeepFor(time.Minute))
	must(err)
	must(client.Await(ctx, old.Ref, nil))
	// Output: greet 42
}

// SendInvoice has a field that was Recipient before, and is stored under that name.
type SendInvoice struct {
	To string `msgpack:"Recipient"` // json:"Recipient" if Options.Encoding is JSON
}

// SendInvoiceBefore is the job of a program that still runs.
type SendInvoiceBefore struct{ Recipient string }

func (SendInvoiceBefore) Kind() string { return "send_invoice" }

// A field is renamed while programs of before run: they read the tasks of the new program.
func Example_renamedField() {
	runner, client := set()
	must(midge.Handle(runner, func(_ context.Context, job SendInvoiceBefore) error {
		fmt.Println("invoice for", job.Recipient)
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, SendInvoice{To: "ann"}, midge.KeepFor(time.Minute))
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	// Output: invoice for ann
}

// Charge must not run with a field empty.
type Charge struct{ Cents int64 }

func (Charge) Options() midge.Options { return midge.Options{Strict: true} }

// ChargeNext is Charge in the next program, which has renamed the field in storage too.
type ChargeNext struct {
	Amount int64 `midge:"was=Cents"`
}

func (ChargeNext) Kind() string { return "charge" }

// A strict job leaves tasks with a field that it does not know to a program that does.
func ExampleOptions_strict() {
	store, err := memory.Open(memory.Config{})
	must(err)
	ended := make(chan midge.Ended, 1)
	tell := func(_ context.Context, e midge.Ended) { ended <- e }
	runner, err := midge.NewRunner(store, midge.RunnerConfig{
		OnEnd: []func(context.Context, midge.Ended){tell}, Slog: slog.New(slog.DiscardHandler),
	})
	must(err)
	must(midge.Handle(runner, func(_ context.Context, job Charge) error {
		fmt.Println("charge", job.Cents)
		return nil
	}))
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	ctx, stop := start(runner)
	defer stop()
	_, err = client.Enqueue(ctx, ChargeNext{Amount: 500})
	must(err)
	fmt.Println((<-ended).Err)
	// Output: midge_test.Charge from msgpack: got a field "Amount", which midge_test.Charge does not have
}
