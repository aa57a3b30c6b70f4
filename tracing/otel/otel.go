// Package otel traces tasks with OpenTelemetry: from the request that enqueues a task through its
// attempts to its follow-ups, and from the tick of a schedule on. It is a separate module, so that
// only applications that use it download OpenTelemetry.
//
//	tracing, err := otel.New(otel.Config{})
//	…
//	tracing.Client(&clientConfig) // before midge.NewClient
//	tracing.Runner(&runnerConfig) // before midge.NewRunner
//
// # Spans
//
//	enqueue mail   producer   around the call that enqueues, a follow-up or a tick; tasks carry its
//	                          context in their headers
//	process mail   consumer   an attempt, around the runner's other middleware
//
// Each attempt is a trace of its own, because a task may wait for days, and be retried for weeks.
// The attempt links to the span that enqueued its task and, if the previous attempt ran in the
// same process, to that attempt. With Config.Child an attempt is instead a child of the span that
// enqueued its task, so that one trace holds everything that followed from a request.
//
// Spans have the messaging attributes of OpenTelemetry's semantic conventions, and midge.kind,
// midge.attempt and midge.outcome. The span of a failed attempt has the status Error, and its error
// as an event; a snooze, a throttle, a cancel or a shutdown is not an error. An attempt that ended by a
// panic of a middleware or by runtime.Goexit has the status Error and no outcome.
//
// # Metrics
//
// A traced runner records messaging.process.duration, a histogram in seconds, by queue, kind and
// outcome. Tasks of kinds that no runner handled share the kind "unknown".
package otel

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// scope names the instrumentation.
const scope = "github.com/midgehq/midge/tracing/otel"

// Config configures [New]. The zero value works.
type Config struct {
	// TracerProvider makes the spans. Default: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider records the metrics. Default: the global one.
	MeterProvider metric.MeterProvider
	// Propagator writes the context of a span into the headers of a task, and reads it from there.
	// Default: W3C trace context, in the headers traceparent and tracestate; without Child, it is
	// written only for sampled spans. A propagator that also writes baggage, which may be large,
	// adds to the headers of each task; an enqueue whose headers are too large is refused.
	Propagator propagation.TextMapPropagator
	// Child makes each attempt a child of the span that enqueued its task, in the same trace.
	// Without it, an attempt has its own trace, which links to that span.
	Child bool
}

// Tracing traces the tasks of one process. Its methods are safe for concurrent use.
type Tracing struct {
	cfg      Config
	always   bool // also writes the context of a span that is not sampled
	tracer   trace.Tracer
	duration metric.Float64Histogram
	sends    cache[string, start]                // spans of enqueue calls, by queue
	attempts cache[string, start]                // spans of attempts, by queue
	points   cache[point, []metric.RecordOption] // of the duration

	remembers atomic.Bool // last or older is not empty
	mu        sync.Mutex
	// last and older hold the failed attempts of this process, by their tasks, until the next
	// attempt or the end of the task. When last is full it replaces older, so that a task that goes
	// on elsewhere is not remembered for ever.
	last, older map[storage.Ref]trace.SpanContext
}

// mostLast bounds Tracing.last.
const mostLast = 5_000

// New returns the tracing of a process. It returns an error if the MeterProvider makes no instrument.
func New(cfg Config) (*Tracing, error) {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	always := cfg.Child || cfg.Propagator != nil
	if cfg.Propagator == nil {
		cfg.Propagator = propagation.TraceContext{}
	}
	duration, err := cfg.MeterProvider.Meter(scope).Float64Histogram("messaging.process.duration",
		metric.WithUnit("s"), metric.WithDescription("How long jobs ran."),
		metric.WithExplicitBucketBoundaries(.005, .015, .05, .15, .5, 1.5, 5, 15, 60, 300, 1200, 3600))
	if err != nil {
		return nil, err
	}
	return &Tracing{
		cfg: cfg, always: always, tracer: cfg.TracerProvider.Tracer(scope), duration: duration,
		last: make(map[storage.Ref]trace.SpanContext),
	}, nil
}

// Client makes all clients of a configuration traced, by adding the outermost middleware.
func (t *Tracing) Client(cfg *midge.ClientConfig) {
	cfg.Middleware = append([]midge.EnqueueMiddleware{t.enqueue}, cfg.Middleware...)
}

// Runner makes all runners of a configuration traced: their attempts, their follow-ups and their
// ticks. It adds the outermost middleware of both kinds, and a function to OnEnd.
func (t *Tracing) Runner(cfg *midge.RunnerConfig) {
	cfg.Middleware = append([]midge.Middleware{t.run}, cfg.Middleware...)
	cfg.EnqueueMiddleware = append([]midge.EnqueueMiddleware{t.enqueueOfRunner}, cfg.EnqueueMiddleware...)
	cfg.OnEnd = append(slices.Clip(cfg.OnEnd), t.ended)
}

// enqueue makes the span of an enqueue call, and writes the span's context into the headers of each
// task. A schedule is not traced, but its ticks are.
func (t *Tracing) enqueue(
	next func(context.Context, []*storage.Insert) error,
) func(context.Context, []*storage.Insert) error {
	return func(ctx context.Context, inserts []*storage.Insert) error {
		if len(inserts) == 0 {
			return next(ctx, inserts)
		}
		send := t.sends.of(inserts[0].Ref.Queue, newSend)
		ctx, span := t.tracer.Start(ctx, send.name, send.options...)
		defer span.End()
		if span.IsRecording() {
			span.SetAttributes(of(inserts)...)
		}
		if t.always || span.SpanContext().IsSampled() { // nobody links to a span that is not kept
			t.inject(ctx, inserts)
		}
		err := next(ctx, inserts)
		failed(span, err)
		return err
	}
}

// enqueueOfRunner is enqueue for the ticks and the follow-ups of a runner.
func (t *Tracing) enqueueOfRunner(
	next func(context.Context, []*storage.Insert) error,
) func(context.Context, []*storage.Insert) error {
	traced := t.enqueue(next)
	return func(ctx context.Context, inserts []*storage.Insert) error {
		if _, inJob := midge.Current(ctx); !inJob {
			ctx = withoutSpan(ctx)
		}
		return traced(ctx, inserts)
	}
}

// withoutSpan returns the context of a runner's work without a span. A runner keeps the values of the
// context in which it was started, and so the span that started it.
func withoutSpan(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// of returns the attributes of an enqueue call.
func of(inserts []*storage.Insert) []attribute.KeyValue {
	attributes := []attribute.KeyValue{attribute.String("midge.kind", inserts[0].Kind)}
	if n := len(inserts); n > 1 {
		return append(attributes, attribute.Int("messaging.batch.message_count", n))
	}
	return append(attributes, attribute.String("messaging.message.id", inserts[0].Ref.ID))
}

// inject writes the context of a span into the headers of tasks. It copies the headers, which
// belong to the caller.
func (t *Tracing) inject(ctx context.Context, inserts []*storage.Insert) {
	carrier := propagation.MapCarrier{}
	t.cfg.Propagator.Inject(ctx, carrier)
	for _, in := range inserts {
		headers := maps.Clone(in.Headers)
		if headers == nil {
			headers = make(map[string]string, len(carrier))
		}
		maps.Copy(headers, carrier)
		in.Headers = headers
	}
}

// run makes the span of an attempt.
func (t *Tracing) run(next func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		info, ok := midge.Current(ctx)
		if !ok {
			return next(ctx)
		}
		from := withoutSpan(ctx)
		if len(info.Headers) > 0 {
			from = t.cfg.Propagator.Extract(from, propagation.MapCarrier(info.Headers))
		}
		attempt := t.attempts.of(info.Ref.Queue, newAttempt)
		options := attempt.options // its capacity is its length, so that append copies
		if before, ok := t.forget(info.Ref); ok {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: before}))
		}
		if enqueued := trace.SpanContextFromContext(from); !t.cfg.Child && enqueued.IsValid() {
			options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: enqueued}))
		}
		ctx, span := t.tracer.Start(from, attempt.name, options...)
		if !span.IsRecording() {
			defer span.End()
			return next(ctx)
		}
		span.SetAttributes(attribute.String("messaging.message.id", info.Ref.ID),
			attribute.String("midge.kind", info.Kind), attribute.Int("midge.attempt", info.Attempt))
		returned := false
		defer func() { // not span.End itself, which would panic again, and so hide the place of a panic
			if !returned {
				span.SetStatus(codes.Error, "a panic of a middleware, or runtime.Goexit")
				t.remember(info.Ref, span.SpanContext())
			}
			span.End()
		}()
		err := next(ctx)
		returned = true
		outcome := midge.OutcomeOf(err)
		span.SetAttributes(attribute.String("midge.outcome", string(outcome)))
		if isError(outcome) {
			failed(span, err)
		}
		if err != nil && outcome != midge.OutcomeDiscarded {
			t.remember(info.Ref, span.SpanContext())
		}
		return err
	}
}

// isError reports whether an attempt with an outcome failed. A cancel or a shutdown is no failure of the job.
func isError(outcome midge.Outcome) bool {
	switch outcome {
	case midge.OutcomeSnoozed, midge.OutcomeThrottled, midge.OutcomeCancelled, midge.OutcomeReleased:
		return false
	default:
		return true
	}
}

// ended records how long a job ran, and forgets an ended task.
func (t *Tracing) ended(ctx context.Context, e midge.Ended) {
	if e.Final {
		t.forget(e.Task.Ref)
	}
	if e.Took <= 0 || !t.duration.Enabled(ctx) {
		return
	}
	kind := e.Task.Kind
	if e.Outcome == midge.OutcomeUnknownKind {
		kind = "unknown"
	}
	labels := t.points.of(point{e.Task.Queue, kind, e.Outcome}, newPoint)
	t.duration.Record(withoutSpan(ctx), e.Took.Seconds(), labels...)
}

// start holds the name and the options of the spans of a queue.
type start struct {
	name    string
	options []trace.SpanStartOption
}

func newSend(queue string) start { return newStart("enqueue", "send", trace.SpanKindProducer, queue) }

func newAttempt(queue string) start {
	return newStart("process", "process", trace.SpanKindConsumer, queue)
}

func newStart(name, operation string, kind trace.SpanKind, queue string) start {
	options := []trace.SpanStartOption{
		trace.WithSpanKind(kind), trace.WithAttributes(about(queue, operation, name)...),
	}
	return start{name: name + " " + queue, options: slices.Clip(options)}
}

// point holds the labels of a recorded duration.
type point struct {
	queue, kind string
	outcome     midge.Outcome
}

func newPoint(p point) []metric.RecordOption {
	attributes := append(about(p.queue, "process", "process"),
		attribute.String("midge.kind", p.kind), attribute.String("midge.outcome", string(p.outcome)))
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attributes...))}
}

// cache caches values that are made from names, up to mostMade of them. The zero value works.
type cache[K comparable, V any] struct {
	mu   sync.RWMutex
	made map[K]V
}

// mostMade bounds a cache. A full cache is emptied.
const mostMade = 1000

// of returns the value for a key, and builds it if it is not cached.
func (c *cache[K, V]) of(key K, build func(K) V) V {
	c.mu.RLock()
	value, ok := c.made[key]
	c.mu.RUnlock()
	if ok {
		return value
	}
	value = build(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil || len(c.made) >= mostMade {
		c.made = make(map[K]V)
	}
	c.made[key] = value
	return value
}

// about returns the attributes for messaging of the semantic conventions 1.37.
func about(queue, operation, name string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "midge"), attribute.String("messaging.destination.name", queue),
		attribute.String("messaging.operation.type", operation), attribute.String("messaging.operation.name", name),
	}
}

// failed records an error in a span.
func failed(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
}

// remember keeps an attempt for the next attempt of its task.
func (t *Tracing) remember(ref storage.Ref, attempt trace.SpanContext) {
	if !attempt.IsSampled() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remembers.Store(true)
	if len(t.last) >= mostLast {
		t.last, t.older = make(map[storage.Ref]trace.SpanContext), t.last
	}
	t.last[ref] = attempt
}

// forget removes and returns the last failed attempt of a task.
func (t *Tracing) forget(ref storage.Ref) (attempt trace.SpanContext, ok bool) {
	if !t.remembers.Load() {
		return attempt, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range []map[storage.Ref]trace.SpanContext{t.older, t.last} { // last has the later one
		if before, there := of[ref]; there {
			attempt, ok = before, true
			delete(of, ref)
		}
	}
	t.remembers.Store(len(t.last)+len(t.older) > 0)
	return attempt, ok
}
