package midge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// Options are what a job's type declares by a method Options() Options, for client
// and runner alike; it is called once, on the zero value. The zero value of each field
// is its default; [Option] values at a call override them.
//
// All but the backoff are recorded with the task when it is enqueued: changing them
// changes no task that exists.
type Options struct {
	// Queue the tasks go to: default "default".
	Queue string
	// Priority among the waiting tasks of the queue, -9 to 9, higher first.
	Priority int
	// Retries is how often a failed task is run again before it is dead: default
	// 20, None for none.
	Retries int
	// CrashLimit is how often a task may lose its runner while it runs before it is
	// dead: default 3.
	CrashLimit int
	// Timeout ends the context of an attempt that takes longer: default none.
	Timeout time.Duration
	// Backoff delays retries: default the runner's.
	Backoff Backoff
	// Keep says how long a completed or cancelled task is kept: default not at all,
	// one with a result for an hour.
	Keep Keep
	// Unique keeps equal tasks from being enqueued beside each other: default nil,
	// which does not. Schedules take no notice of it; see [NoOverlap].
	Unique *Unique
	// Headers are recorded with each task beside its parameters; see [Header].
	Headers map[string]string
	// Encoding of the parameters: default MessagePack.
	Encoding Encoding
}

// Defaults of Options.
const (
	defaultRetries    = 20
	defaultCrashLimit = 3
)

// Keep says how long a completed or cancelled task is kept; see storage.Keep.
type Keep = storage.Keep

// Register registers a job type that has a method Run(context.Context) error, on the
// value or the pointer. The parameters of a task are its exported fields.
//
// A job type may have two methods more, which surround each attempt within the middleware.
// BeforeRun(context.Context) error comes before Run: its error fails the attempt, and Run is not
// called. AfterRun(context.Context, error) is called with what the attempt came to, BeforeRun's
// error included: it changes nothing of it, and a panic is logged. Both share the timeout of the
// attempt, and their context is the job's. A third, BeforeEnqueue(context.Context) error, is
// called before the job is enqueued, also as a follow-up: it may fill in fields, and its error
// refuses the job. Ticks of schedules do not call it: any runner may make them, of parameters that
// were stored with the schedule. What has to be so at each tick belongs into BeforeRun, or into the
// runner's [EnqueueMiddleware], which ticks pass.
//
// A type whose kind was renamed tells its earlier kinds by a method Aliases() []string, the oldest
// first. Tasks of those kinds run on it, and logs show them under its kind of today. Unique keys
// and names of schedules are made of the oldest kind, so that a rename lets no duplicate in while
// programs of before it still run.
//
// Register returns an *[InvalidError] for a type or options that do not do, and for a
// kind that is registered already, and [ErrRunning] once the runner has been started.
func Register[J any, P interface {
	*J
	Run(ctx context.Context) error
}](r *Runner) error {
	return handle(r, func(ctx context.Context, job *J) error { return P(job).Run(ctx) })
}

// Handle registers a function for a job type, a struct: a closure brings the
// dependencies that parameters cannot hold. Errors, and the methods BeforeRun and AfterRun of
// the type, are those of [Register].
func Handle[J any](r *Runner, fn func(ctx context.Context, job J) error) error {
	if fn == nil {
		return fmt.Errorf("midge: register: %w", storage.Invalid("function", "nil", "a function of a job"))
	}
	return handle(r, func(ctx context.Context, job *J) error { return fn(ctx, *job) })
}

func handle[J any](r *Runner, fn func(context.Context, *J) error) error {
	if r == nil {
		return fmt.Errorf("midge: register: %w", storage.Invalid("runner", "nil", "one made by NewRunner"))
	}
	typ := reflect.TypeFor[J]()
	if typ.Kind() != reflect.Struct {
		return fmt.Errorf("midge: register: %w", storage.Invalid("job type", typ.String(), "a struct type"))
	}
	d, err := r.jobs.definitions.ofType(typ)
	if err != nil {
		return wrap(err, "register")
	}
	return r.add(&handler{
		definition: d,
		decode: func(encoding string, payload []byte) (any, error) {
			job := new(J)
			if err := d.codec.Decode(encoding, payload, job); err != nil {
				return nil, cannotDecode(err)
			}
			return job, nil
		},
		run: func(ctx context.Context, job any) error {
			j, _ := job.(*J) // decode made it
			return fn(ctx, j)
		},
	})
}

// handler is a job kind and how to run it.
type handler struct {
	*definition
	decode func(encoding string, payload []byte) (any, error)
	run    func(ctx context.Context, job any) error

	looked atomic.Int32 // how many tasks were looked at for fields that are not read
	unread sync.Map     // the fields that were found, and logged
	found  atomic.Int32 // how many those are
}

// Of each kind so many tasks are looked at for fields that the job does not read, and of all others
// one in so many.
const (
	looksFirst  = 256
	looksSeldom = 64
	mostUnread  = 100 // fields of a kind that are logged
)

// lookForUnread logs a stored field that is not read, once for each.
func (h *handler) lookForUnread(a *runner.Attempt) {
	switch {
	case h.looked.Load() < looksFirst:
		h.looked.Add(1)
	case rand.Uint32N(looksSeldom) > 0:
		return
	}
	for _, field := range h.codec.Unread(a.Encoding, a.Payload) {
		if h.found.Load() >= mostUnread {
			return
		}
		if _, known := h.unread.LoadOrStore(field, true); !known {
			h.found.Add(1)
			a.Unread(field)
		}
	}
}

// Encoding names how a job's parameters are written. It is recorded with each task,
// so that tasks of both encodings can stand in one queue and a kind can change from
// one to the other while tasks of it wait. A task's result and checkpoint have the
// encoding of its parameters.
type Encoding string

// The encodings. Both write exported fields alone, tolerate fields that they do not
// know, and write equal values as equal bytes, with the keys of maps sorted.
//
// A field that was renamed tells its earlier names by a tag, the oldest first, as the encoding wrote
// them: `midge:"was=to,was=recipient"`. Tasks that wait are read under them, also in structs, and
// slices of structs, within the job. A runner logs stored fields that fit nowhere in the job, once for
// each kind and field; it looks at the first 256 tasks of a kind, and at one in 64 of the others.
const (
	// MessagePack is the default: small and fast. Fields are renamed, or left out,
	// by the tag `msgpack:"name"`; json tags mean nothing to it. A time.Time keeps
	// its instant but not its zone: it is read in the local one. What stands in a field
	// of an interface type comes back as another: an int as an int64.
	MessagePack Encoding = "msgpack"
	// JSON is encoding/json, for parameters that people or other languages read. A
	// time.Time keeps its offset but not the name of its zone.
	JSON Encoding = "json"
)

// kindOf gives the kind of a job type: what its method Kind says, else its name in
// snake case.
func kindOf(typ reflect.Type, zero any) (string, error) {
	if k, ok := zero.(interface{ Kind() string }); ok {
		kind, err := ask(typ, "Kind", k.Kind)
		if err != nil {
			return "", err
		}
		if err := storage.CheckName("kind", kind); err != nil {
			return "", fmt.Errorf("%v: %w", typ, err)
		}
		return kind, nil
	}
	name := typ.Name()
	kind := snakeCase(name)
	if storage.CheckName("kind", kind) != nil { // generic types, unnamed ones, other alphabets
		return "", storage.Invalid("job type", typ.String(),
			"a type whose name makes a kind, or a method Kind() string")
	}
	return kind, nil
}

// aliasesOf gives what the method Aliases of a job type says: its earlier kinds.
func aliasesOf(typ reflect.Type, zero any, kind string) ([]string, error) {
	a, ok := zero.(interface{ Aliases() []string })
	if !ok {
		return nil, nil
	}
	aliases, err := ask(typ, "Aliases", a.Aliases)
	if err != nil {
		return nil, err
	}
	for i, alias := range aliases {
		if err := storage.CheckName("alias", alias); err != nil {
			return nil, fmt.Errorf("%v: %w", typ, err)
		}
		if alias == kind || slices.Contains(aliases[:i], alias) {
			return nil, fmt.Errorf("%v: %w", typ, storage.Invalid("alias", alias, "earlier kinds, each once"))
		}
	}
	return slices.Clone(aliases), nil
}

// ask calls a method that a job type declares, on its zero value.
func ask[T any](typ reflect.Type, method string, call func() T) (answer T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = storage.Invalid("job type", typ.String(),
				"a method %s that works on the zero value, not a panic: %v", method, p)
		}
	}()
	return call(), nil
}

// snakeCase turns HTTPPing into http_ping.
func snakeCase(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && runes[i-1] != '_' {
			before := runes[i-1]
			begins := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if !unicode.IsUpper(before) || begins {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
