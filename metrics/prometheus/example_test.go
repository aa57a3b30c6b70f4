package prometheus_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/metrics/prometheus"
	"github.com/midgehq/midge/storage/memory"
)

// An application needs three lines: the metrics, the counters of attempts, and a handler.
func ExampleNew() {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		panic(err)
	}
	metrics, err := prometheus.New(store, prometheus.Config{})
	if err != nil {
		panic(err)
	}
	var cfg midge.RunnerConfig
	metrics.Runner(&cfg)
	runner, err := midge.NewRunner(store, cfg)
	if err != nil {
		panic(err)
	}
	http.Handle("/metrics", metrics.Handler())

	cfg.OnEnd[0](context.Background(), midge.Ended{ // as the runner does
		Task: midge.Task{Ref: midge.Ref{Queue: "mail"}, Kind: "sendMail"}, Outcome: midge.OutcomeSucceeded,
		Runner: runner.ID(),
	})
	answer := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "midge_attempts_total") || strings.HasPrefix(line, "midge_runners") {
			fmt.Print(line)
		}
	}
	// Output:
	// midge_attempts_total{kind="sendMail",outcome="succeeded",queue="mail"} 1
	// midge_runners 0
}
