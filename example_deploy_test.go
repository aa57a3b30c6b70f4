package midge_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// probes answers the probes of a process that uses a storage.
func probes(store storage.Storage) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if _, err := store.Describe(ctx); err != nil {
			http.Error(w, "the storage does not answer", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// A process is alive while it answers, and ready while its storage does.
func Example_probes() {
	store, err := memory.Open(memory.Config{})
	must(err)
	handler := probes(store)
	show := func() {
		for _, path := range []string{"/healthz", "/readyz"} {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			fmt.Println(path, answer.Code)
		}
	}
	show()
	must(store.Close())
	show()
	// Output:
	// /healthz 204
	// /readyz 204
	// /healthz 204
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
