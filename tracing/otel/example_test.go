package otel_test

import (
	"context"
	"fmt"

	global "go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/tracing/otel"
)

// Client and runner are traced by one line each, before they are made.
func ExampleNew() {
	spans := tracetest.NewSpanRecorder() // an application has an exporter
	global.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	store, err := memory.Open(memory.Config{})
	if err != nil {
		panic(err)
	}

	tracing, err := otel.New(otel.Config{})
	if err != nil {
		panic(err)
	}
	var clients midge.ClientConfig
	tracing.Client(&clients)
	client, err := midge.NewClient(store, clients)
	if err != nil {
		panic(err)
	}
	var runners midge.RunnerConfig
	tracing.Runner(&runners)
	runner, err := midge.NewRunner(store, runners)
	if err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	if _, err := client.Enqueue(ctx, mail{7}); err != nil {
		panic(err)
	}
	err = midge.Handle(runner, func(context.Context, mail) error {
		stop()
		return nil
	})
	if err != nil {
		panic(err)
	}
	if err := runner.Run(ctx); err != nil {
		panic(err)
	}
	for _, span := range spans.Ended() {
		fmt.Println(span.Name())
	}
	// Output:
	// enqueue default
	// process default
}
