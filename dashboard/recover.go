package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// recovering is a storage that returns an error if a call panics, and tasks without the values that the
// dashboard hides in their errors. The dashboard also calls the storage in
// goroutines of its own, where a panic would end the process of the application. net/http recovers only the
// panics of handlers.
type recovering struct {
	storage.Storage

	log    *slog.Logger
	redact *access.Redaction

	mu     sync.Mutex
	logged map[string]bool // the calls whose first panic is in the log
}

// panicError is the error of a call in which the storage panicked.
type panicError struct {
	call  string
	value any
}

func (e *panicError) Error() string {
	return fmt.Sprintf("the storage panicked: %s: %v", e.call, e.value)
}

// recovered turns a panic of a call into an error. It logs the first panic of each call, with its stack.
func (s *recovering) recovered(ctx context.Context, call string, err *error) {
	v := recover()
	if v == nil {
		return
	}
	*err = &panicError{call, v}
	s.mu.Lock()
	first := !s.logged[call]
	if s.logged == nil {
		s.logged = map[string]bool{}
	}
	s.logged[call] = true
	s.mu.Unlock()
	if first {
		s.log.LogAttrs(ctx, slog.LevelError, "midge: the storage panicked under the dashboard",
			slog.String("call", call), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
	}
}

func (s *recovering) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) (applied []storage.Applied, err error) {
	defer s.recovered(ctx, "Apply", &err)
	return s.Storage.Apply(ctx, call, txs...)
}

func (s *recovering) Task(ctx context.Context, ref storage.Ref) (t storage.Task, err error) {
	defer s.recovered(ctx, "Task", &err)
	t, err = s.Storage.Task(ctx, ref)
	s.conceal(&t)
	return t, err
}

func (s *recovering) Tasks(ctx context.Context, q storage.TasksQuery) (page storage.TasksPage, err error) {
	defer s.recovered(ctx, "Tasks", &err)
	page, err = s.Storage.Tasks(ctx, q)
	for i := range page.Tasks {
		s.conceal(&page.Tasks[i])
	}
	return page, err
}

// conceal replaces hidden values of the task in the texts that its job wrote, before any page or search sees
// them.
func (s *recovering) conceal(t *storage.Task) {
	if s.redact == nil || len(t.Attempts) == 0 && t.Reason == "" && t.Stack == "" {
		return
	}
	texts := []string{t.Reason, t.Stack}
	for i := range t.Attempts {
		texts = append(texts, t.Attempts[i].Error)
	}
	texts = s.redact.Conceal(partsOf(*t), t.Headers, texts...)
	t.Reason, t.Stack, t.Attempts = texts[0], texts[1], slices.Clone(t.Attempts)
	for i := range t.Attempts {
		t.Attempts[i].Error = texts[2+i]
	}
}

// partsOf returns the JSON of the parts that a task has, for Conceal. A list of tasks has their parameters
// alone. What cannot be read is nil, which hides all texts if a rule may name something in it.
func partsOf(t storage.Task) map[string][]byte {
	parts := map[string][]byte{}
	for _, part := range payload.Parts(t) {
		if len(part.Data) > 0 || part.Name == access.PartParams {
			parts[part.Name], _ = part.JSON()
		}
	}
	steps, err := payload.Steps(t, nil)
	if err != nil { // the checkpoint stands beside the steps
		parts[access.PartStep], parts[access.PartCheckpoint] = nil, nil
	}
	for _, step := range steps {
		if len(step.Result) > 0 || step.Problem != "" {
			parts[access.PartStep+"."+step.Name] = step.Result
		}
	}
	return parts
}

func (s *recovering) Queues(ctx context.Context, q storage.QueuesQuery) (page storage.QueuesPage, err error) {
	defer s.recovered(ctx, "Queues", &err)
	return s.Storage.Queues(ctx, q)
}

func (s *recovering) Stats(ctx context.Context, queues ...string) (stats []storage.Stats, err error) {
	defer s.recovered(ctx, "Stats", &err)
	return s.Storage.Stats(ctx, queues...)
}

func (s *recovering) Partitions(
	ctx context.Context, q storage.PartitionsQuery,
) (page storage.PartitionsPage, err error) {
	defer s.recovered(ctx, "Partitions", &err)
	return s.Storage.Partitions(ctx, q)
}

func (s *recovering) Runners(ctx context.Context) (runners []storage.RunnerInfo, err error) {
	defer s.recovered(ctx, "Runners", &err)
	return s.Storage.Runners(ctx)
}

func (s *recovering) Configure(
	ctx context.Context, call storage.Call, queue string, settings storage.Settings,
) (err error) {
	defer s.recovered(ctx, "Configure", &err)
	return s.Storage.Configure(ctx, call, queue, settings)
}

func (s *recovering) Describe(ctx context.Context) (d storage.Description, err error) {
	defer s.recovered(ctx, "Describe", &err)
	return s.Storage.Describe(ctx)
}

// Spans returns the result of storage.Spans for the storage.
func (s *recovering) Spans(queues ...string) bool { return storage.Spans(s.Storage, queues...) }
