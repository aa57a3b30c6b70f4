package system

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/metrics/prometheus"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/tracing/otel"
)

// watching is what is added to midge's client and runner.
type watching struct {
	client func(*midge.ClientConfig)
	runner func(*midge.RunnerConfig)
}

// watchedSystem returns midge with something around its jobs, to be compared with plain midge.
func watchedSystem(name string, watch func(storage.Storage) (watching, error)) System {
	s := midgeSystem()
	s.Name, s.Asked = name, true
	s.Open = func(ctx context.Context, at Place) (Instance, error) { return openWatched(ctx, at, watch) }
	return s
}

// hooked adds a function to OnEnd that counts.
func hooked(storage.Storage) (watching, error) {
	var ends atomic.Int64
	return watching{
		client: func(*midge.ClientConfig) {},
		runner: func(cfg *midge.RunnerConfig) {
			cfg.OnEnd = append(cfg.OnEnd, func(context.Context, midge.Ended) { ends.Add(1) })
		},
	}, nil
}

// counted adds metrics for Prometheus.
func counted(store storage.Storage) (watching, error) {
	metrics, err := prometheus.New(store, prometheus.Config{})
	if err != nil {
		return watching{}, err
	}
	return watching{client: func(*midge.ClientConfig) {}, runner: metrics.Runner}, nil
}

// traced adds traces of OpenTelemetry, none of which is sampled.
func traced(storage.Storage) (watching, error) {
	tracing, err := otel.New(otel.Config{
		TracerProvider: trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())),
	})
	if err != nil {
		return watching{}, err
	}
	return watching{client: tracing.Client, runner: tracing.Runner}, nil
}
