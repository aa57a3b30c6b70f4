package midge_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/midgehq/midge"
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
