package otel_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
	"github.com/midgehq/midge/tracing/otel"
)

// order is a job that fails three times, and then follows up with a mail.
type order struct{ Number int }

type mail struct{ Number int }

// tick is a job that a schedule enqueues.
type tick struct{}

var errBroken = errors.New("it is broken")

// traced is an application whose spans and metrics are kept in memory.
type traced struct {
	*testing.T
	tracing *otel.Tracing
	spans   *tracetest.SpanRecorder
	tracer  trace.Tracer
	reader  *sdkmetric.ManualReader
	client  *midge.Client
	done    chan string
}

func tracedOn(t *testing.T, store storage.Storage, child bool) *traced {
	t.Helper()
	a := &traced{T: t, spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader(), done: make(chan string, 100)}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(a.spans))
	a.tracer = provider.Tracer("shop")
	var err error
	a.tracing, err = otel.New(otel.Config{
		TracerProvider: provider, Child: child,
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(a.reader)),
	})
	a.must(err)
	var clients midge.ClientConfig
	a.tracing.Client(&clients)
	a.client, err = midge.NewClient(store, clients)
	a.must(err)
	runner, err := midge.NewRunner(store, a.config())
	a.must(err)
	a.run(runner)
	return a
}

func (a *traced) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// run runs the jobs of the runner until the test ends. The span in which it starts the runner is no part of any trace
// of a task.
func (a *traced) run(runner *midge.Runner) {
	a.Helper()
	a.must(midge.Handle(runner, func(ctx context.Context, o order) error {
		info, _ := midge.Current(ctx)
		if info.Attempt <= 3 {
			return errBroken
		}
		return midge.FollowUp(ctx, mail(o))
	}))
	a.must(midge.Handle(runner, func(context.Context, mail) error { return nil }))
	a.must(midge.Handle(runner, func(context.Context, tick) error { return nil }))
	a.must(runner.Periodic(midge.Every(time.Second), tick{}))
	ctx, start := a.tracer.Start(a.Context(), "start-up")
	start.End()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	a.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			a.Error(err)
		}
	})
}

// config returns the runner's configuration.
func (a *traced) config() midge.RunnerConfig {
	cfg := midge.RunnerConfig{Backoff: midge.Constant(20 * time.Millisecond)}
	a.tracing.Runner(&cfg)
	cfg.OnEnd = append(cfg.OnEnd, func(_ context.Context, e midge.Ended) {
		if e.Outcome == midge.OutcomeSucceeded {
			a.done <- e.Task.Kind
		}
	})
	return cfg
}

// await waits until tasks of some kinds have succeeded.
func (a *traced) await(kinds ...string) {
	a.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for len(kinds) > 0 {
		select {
		case kind := <-a.done:
			kinds = slices.DeleteFunc(kinds, func(k string) bool { return k == kind })
		case <-limit.C:
			a.Fatalf("still not done: %v", kinds)
		}
	}
}

// found returns the spans with a name and a kind of task, in the order in which they began.
func (a *traced) found(name, kind string) (spans []sdktrace.ReadOnlySpan) {
	for _, span := range a.spans.Ended() {
		if span.Name() == name && value(span, "midge.kind") == kind {
			spans = append(spans, span)
		}
	}
	slices.SortFunc(spans, func(x, y sdktrace.ReadOnlySpan) int { return x.StartTime().Compare(y.StartTime()) })
	return spans
}

func value(span sdktrace.ReadOnlySpan, name string) string {
	for _, attribute := range span.Attributes() {
		if string(attribute.Key) == name {
			return attribute.Value.String()
		}
	}
	return ""
}

// linksTo reports whether a span links to another.
func linksTo(span, to sdktrace.ReadOnlySpan) bool {
	return slices.ContainsFunc(span.Links(), func(l sdktrace.Link) bool {
		return l.SpanContext.TraceID() == to.SpanContext().TraceID() && l.SpanContext.SpanID() == to.SpanContext().SpanID()
	})
}

// isChild reports whether a span is the child of another.
func isChild(span, of sdktrace.ReadOnlySpan) bool {
	return span.Parent().SpanID() == of.SpanContext().SpanID() && span.SpanContext().TraceID() == of.SpanContext().TraceID()
}

// storages opens each storage for a test.
func storages(t *testing.T, test func(t *testing.T, store storage.Storage)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) (storage.Storage, error){
		"memory": func(*testing.T) (storage.Storage, error) { return memory.Open(memory.Config{}) },
		"redis": func(t *testing.T) (storage.Storage, error) {
			testserver.Require(t)
			return redis.Open(t.Context(), redis.Config{URL: testserver.Redis(t).URL()})
		},
		"postgres": func(t *testing.T) (storage.Storage, error) {
			testserver.RequirePostgres(t)
			server := testserver.Postgres(t, testserver.PostgresOptions{})
			cfg := postgres.Config{URL: server.URL()}
			if err := postgres.Migrate(t.Context(), cfg); err != nil {
				return nil, err
			}
			return postgres.Open(t.Context(), cfg)
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			test(t, store)
		})
	}
}

// shop enqueues an order within a request, and returns the request's span when all jobs have ended.
func (a *traced) shop() sdktrace.ReadOnlySpan {
	a.Helper()
	ctx, request := a.tracer.Start(a.Context(), "POST /orders")
	_, err := a.client.Enqueue(ctx, order{7}, midge.Header("customer", "5"))
	a.must(err)
	request.End()
	a.await("order", "mail", "tick")
	for _, span := range a.spans.Ended() {
		if span.Name() == "POST /orders" {
			return span
		}
	}
	a.Fatal("the request has no span")
	return nil
}

// All spans that follow from a request form one graph of traces, through links.
func TestAttemptsLinkToWhatEnqueuedThem(t *testing.T) {
	storages(t, func(t *testing.T, store storage.Storage) {
		a := tracedOn(t, store, false)
		request := a.shop()
		enqueued, attempts := a.found("enqueue default", "order"), a.found("process default", "order")
		followed, mails := a.found("enqueue default", "mail"), a.found("process default", "mail")
		if len(enqueued) != 1 || len(attempts) != 4 || len(followed) != 1 || len(mails) != 1 {
			t.Fatalf("got %d, %d, %d, %d spans; want 1 of the enqueue, 4 attempts, a follow-up and its attempt",
				len(enqueued), len(attempts), len(followed), len(mails))
		}
		if !isChild(enqueued[0], request) || enqueued[0].SpanKind() != trace.SpanKindProducer {
			t.Errorf("the enqueue: got the parent %v, want the request", enqueued[0].Parent())
		}
		for i, attempt := range attempts {
			if attempt.Parent().IsValid() || !linksTo(attempt, enqueued[0]) || attempt.SpanKind() != trace.SpanKindConsumer {
				t.Errorf("attempt %d: got the parent %v, the links %v; want a new trace that links to the enqueue",
					i+1, attempt.Parent(), attempt.Links())
			}
			if i > 0 && !linksTo(attempt, attempts[i-1]) {
				t.Errorf("attempt %d does not link to the one before", i+1)
			}
		}
		if !isChild(followed[0], attempts[3]) || !linksTo(mails[0], followed[0]) {
			t.Errorf("the follow-up: got the parent %v, the links %v", followed[0].Parent(), mails[0].Links())
		}
		ticks, ran := a.found("enqueue default", "tick"), a.found("process default", "tick")
		if len(ticks) == 0 || len(ran) == 0 || ticks[0].Parent().IsValid() || !linksTo(ran[0], ticks[0]) {
			t.Errorf("the schedule: got %d ticks, %d attempts; want the attempt to link to the tick", len(ticks), len(ran))
		}
		a.told(attempts)
	})
}

// told fails the test if the attributes of an order's attempts are wrong.
func (a *traced) told(attempts []sdktrace.ReadOnlySpan) {
	a.Helper()
	for i, attempt := range attempts {
		outcome, status := midge.OutcomeFailed, codes.Error
		if i == 3 {
			outcome, status = midge.OutcomeSucceeded, codes.Unset
		}
		if value(attempt, "midge.outcome") != string(outcome) || attempt.Status().Code != status {
			a.Errorf("attempt %d: got %s, %v", i+1, value(attempt, "midge.outcome"), attempt.Status())
		}
		if value(attempt, "messaging.system") != "midge" || value(attempt, "messaging.destination.name") != "default" ||
			value(attempt, "messaging.operation.type") != "process" || value(attempt, "messaging.message.id") == "" {
			a.Errorf("attempt %d: got the attributes %v", i+1, attempt.Attributes())
		}
	}
	var all metricdata.ResourceMetrics
	a.must(a.reader.Collect(a.Context(), &all))
	counted := map[string]uint64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "messaging.process.duration" {
			for _, point := range data.DataPoints {
				kind, _ := point.Attributes.Value("midge.kind")
				outcome, _ := point.Attributes.Value("midge.outcome")
				counted[kind.AsString()+" "+outcome.AsString()] += point.Count
				if len(point.Exemplars) > 0 {
					a.Errorf("%s: got the exemplars %v, want none of the start-up", kind.AsString(), point.Exemplars)
				}
			}
		}
	}
	if counted["order failed"] != 3 || counted["order succeeded"] != 1 || counted["mail succeeded"] != 1 {
		a.Errorf("messaging.process.duration: got %v", counted)
	}
}

// With Config.Child all spans that follow from a request form one tree. Each tick is a tree of its
// own.
func TestAttemptsAreChildrenOfWhatEnqueuedThem(t *testing.T) {
	storages(t, func(t *testing.T, store storage.Storage) {
		a := tracedOn(t, store, true)
		request := a.shop()
		enqueued, attempts := a.found("enqueue default", "order"), a.found("process default", "order")
		followed, mails := a.found("enqueue default", "mail"), a.found("process default", "mail")
		if len(enqueued) != 1 || len(attempts) != 4 || len(followed) != 1 || len(mails) != 1 {
			t.Fatalf("got %d, %d, %d, %d spans", len(enqueued), len(attempts), len(followed), len(mails))
		}
		for i, attempt := range attempts {
			if !isChild(attempt, enqueued[0]) {
				t.Errorf("attempt %d: got the parent %v, want the enqueue", i+1, attempt.Parent())
			}
		}
		if !isChild(enqueued[0], request) || !isChild(followed[0], attempts[3]) || !isChild(mails[0], followed[0]) {
			t.Error("request, enqueue, follow-up and its attempt are not one tree")
		}
		ticks, ran := a.found("enqueue default", "tick"), a.found("process default", "tick")
		if len(ticks) == 0 || len(ran) == 0 || ticks[0].Parent().IsValid() || !isChild(ran[0], ticks[0]) {
			t.Errorf("the schedule: got %d ticks, %d attempts; want the attempt to be a child of the tick, a root",
				len(ticks), len(ran))
		}
	})
}

// A remembered attempt is forgotten at the next attempt, at the end of the task, or after many
// other attempts.
func TestAttemptsAreForgotten(t *testing.T) {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	a := tracedOn(t, store, false)
	a.shop()
	if n := a.tracing.Remembered(); n != 0 {
		t.Errorf("an order that has succeeded left %d attempts, want none", n)
	}
	dead, err := a.client.Enqueue(t.Context(), order{8}, midge.Retries(1))
	a.must(err)
	_ = a.client.Await(t.Context(), dead.Ref, nil) // the task dies
	for a.tracing.Remembered() > 0 && t.Context().Err() == nil {
		runtime.Gosched() // the end is reported after that
	}
	for i := range 30_000 { // tasks that go on elsewhere
		a.tracing.Remember(storage.Ref{Queue: "mail", ID: strconv.Itoa(i)}, a.spans.Ended()[0].SpanContext())
	}
	if n := a.tracing.Remembered(); n < 5_000 || n > 10_000 {
		t.Errorf("of 30,000 attempts %d are remembered, want the last 5,000 to 10,000", n)
	}
}

// A task without a context, or with a broken one, runs nevertheless.
func TestATaskWithoutAContextIsATraceOfItsOwn(t *testing.T) {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, headers := range []midge.Option{midge.Header("other", "x"), midge.Header("traceparent", "broken")} {
		if _, err := plain.Enqueue(t.Context(), mail{1}, headers); err != nil {
			t.Fatal(err)
		}
	}
	a := tracedOn(t, store, true)
	a.await("mail")
	a.await("mail")
	for _, span := range a.found("process default", "mail") {
		if span.Parent().IsValid() || len(span.Links()) > 0 || !strings.HasPrefix(span.Name(), "process") {
			t.Errorf("got the parent %v, the links %v; want none", span.Parent(), span.Links())
		}
	}
}

// A task of a span that is not sampled carries its context only if an attempt may become a child
// of that span.
func TestASpanThatIsNotSampledLeavesNoHeaders(t *testing.T) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	for child, want := range map[bool]int{false: 0, true: 1} {
		tracing, err := otel.New(otel.Config{TracerProvider: provider, Child: child})
		if err != nil {
			t.Fatal(err)
		}
		var cfg midge.ClientConfig
		tracing.Client(&cfg)
		in := storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "mail"}
		err = cfg.Middleware[0](func(context.Context, []*storage.Insert) error { return errBroken })(
			t.Context(), []*storage.Insert{&in})
		if len(in.Headers) != want || !errors.Is(err, errBroken) {
			t.Errorf("child %t: got the headers %v, the error %v; want %d headers", child, in.Headers, err, want)
		}
	}
}

// ending is a job that ends in the way that its field names.
type ending struct{ How string }

// endings is an application whose jobs end in different ways.
type endings struct {
	*traced
	runner  *midge.Runner
	started chan bool // a job waits for the end of its context
	ended   chan midge.Ended
}

func newEndings(t *testing.T) *endings {
	t.Helper()
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	a := &endings{traced: tracedOn(t, store, false), started: make(chan bool, 10), ended: make(chan midge.Ended, 10)}
	cfg := midge.RunnerConfig{
		Queues: []string{"endings"}, Backoff: midge.Constant(0),
		OnEnd: []func(context.Context, midge.Ended){func(_ context.Context, e midge.Ended) { a.ended <- e }},
		Middleware: []midge.Middleware{func(next func(context.Context) error) func(context.Context) error {
			return func(ctx context.Context) error {
				if info, _ := midge.Current(ctx); info.Headers["middleware"] == "panic" && info.Attempt == 1 {
					panic("it is broken")
				}
				return next(ctx)
			}
		}},
	}
	a.tracing.Runner(&cfg)
	a.runner, err = midge.NewRunner(store, cfg)
	a.must(err)
	a.must(midge.Handle(a.runner, func(ctx context.Context, e ending) error {
		info, _ := midge.Current(ctx)
		switch {
		case e.How == "wait":
			a.started <- true
			<-ctx.Done()
			return ctx.Err()
		case e.How == "goexit" && info.Attempt == 1:
			runtime.Goexit()
		}
		return nil
	}))
	a.must(a.runner.Start(t.Context()))
	return a
}

// enqueue enqueues a task that ends in some way.
func (a *endings) enqueue(how string, opts ...midge.Option) midge.Ref {
	a.Helper()
	task, err := a.client.Enqueue(a.Context(), ending{how}, append(opts, midge.To("endings"))...)
	a.must(err)
	return task.Ref
}

// want fails the test if the last attempt of a task has another status or outcome. It returns the spans of the attempts.
func (a *endings) want(ref midge.Ref, status codes.Code, outcome midge.Outcome) []sdktrace.ReadOnlySpan {
	a.Helper()
	spans := slices.DeleteFunc(a.found("process endings", "ending"), func(span sdktrace.ReadOnlySpan) bool {
		return value(span, "messaging.message.id") != ref.ID
	})
	last := spans[len(spans)-1]
	if last.Status().Code != status || value(last, "midge.outcome") != string(outcome) {
		a.Errorf("%s: got %q, %v; want %q, %v", ref.ID, value(last, "midge.outcome"), last.Status(), outcome, status)
	}
	return spans
}

// A cancel and a shutdown end a job that has not failed.
func TestACancelAndAShutdownAreNoErrors(t *testing.T) {
	a := newEndings(t)
	cancelled := a.enqueue("wait")
	<-a.started
	_, err := a.client.Cancel(t.Context(), cancelled)
	a.must(err)
	<-a.ended
	a.want(cancelled, codes.Unset, midge.OutcomeCancelled)
	released := a.enqueue("wait", midge.ID("released"))
	<-a.started
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = a.runner.Shutdown(ctx)
	a.want(released, codes.Unset, midge.OutcomeReleased)
}

// An attempt that does not return is an error, to which the next attempt links. The place of a panic in the log
// and in the history of the task is that of the middleware.
func TestAnAttemptThatDoesNotReturnIsAnError(t *testing.T) {
	a := newEndings(t)
	for how, opts := range map[string][]midge.Option{"goexit": nil, "panic": {midge.Header("middleware", "panic")}} {
		ref := a.enqueue(how, opts...)
		e := <-a.ended
		if how == "panic" && !strings.Contains(e.Err.Error(), "otel_test.go") {
			t.Errorf("got the error %v; want the place of the panic", e.Err)
		}
		<-a.ended
		spans := a.want(ref, codes.Unset, midge.OutcomeSucceeded)
		if len(spans) != 2 || !linksTo(spans[1], spans[0]) || spans[0].Status().Code != codes.Error {
			t.Errorf("%s: got the status %v, the links %v; want an error, and a link to it",
				how, spans[0].Status(), spans[len(spans)-1].Links())
		}
	}
	a.must(a.runner.Shutdown(t.Context()))
}
