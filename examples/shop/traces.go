package main

import (
	"context"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/trace"
)

// newTraces returns a provider that sends spans to an OTLP server by its URL, or to standard
// output. If to is empty, it records none. This part belongs to OpenTelemetry: midge only needs
// the provider.
func newTraces(ctx context.Context, to string) (*trace.TracerProvider, error) {
	var exporter trace.SpanExporter
	var err error
	switch to {
	case "":
		return trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())), nil
	case "stdout":
		exporter, err = stdouttrace.New()
	default:
		exporter, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to))
	}
	if err != nil {
		return nil, err
	}
	return trace.NewTracerProvider(trace.WithBatcher(exporter)), nil
}
