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

// Options are declared by a job type with a method Options() Options, for client and runner alike.
// The method is called once, on the zero value. A zero field has its default; [Option] values
// override the options for one call.
//
// All options except the backoff and Strict are recorded with the task when it is enqueued, so that
// a change of them does not affect existing tasks.
type Options struct {
	// Queue is the queue of the tasks: default "default".
	Queue string
	// Priority orders the waiting tasks of the queue: -9 to 9, the highest is claimed first.
	Priority int
	// Partition is the key of the partition of the tasks within their queue: default none. The
	// partitions of a queue are served in turn; see [Partition]. A type whose jobs differ in their
	// partition has a method Partition instead, which this field overrules: see [Register].
	Partition string
	// Cost is how much of the rate of its queue the start of a task uses up: default 1, at most 1,000,000,
	// None for nothing; see [Cost]. A type whose jobs differ in their cost has a method Cost instead, which
	// this field overrules: see [Register].
	Cost int
	// Retries is how many times a failed task is run again before it is dead: default 20, None for
	// no retry.
	Retries int
	// CrashLimit is how many times a task may lose its runner while it runs before it is dead:
	// default 3.
	CrashLimit int
	// Timeout ends the context of an attempt that takes longer, at least a millisecond: default the
	// runner's, storage.NoTimeout for none.
	Timeout time.Duration
	// Backoff delays retries: default the runner's.
	Backoff Backoff
	// Keep is how long a completed or cancelled task is kept: default not at all, but an hour for
	// a task with a result.
	Keep Keep
	// Unique keeps equal tasks from being enqueued beside each other: default nil, which allows
	// them. Schedules ignore it; see [NoOverlap].
	Unique *Unique
	// Headers are recorded with each task beside its parameters; see [Header].
	Headers map[string]string
	// Encoding is the encoding of the parameters: default MessagePack.
	Encoding Encoding
	// Strict makes a runner put off a task whose parameters hold a field that the type does not
	// have, as it puts off parameters that do not fit: the task waits for a program that has the
	// field, 24 hours at most. Default: the value is ignored, and logged once, if
	// the runner notices it; see [Encoding]. Set it if a
	// job must not run with a field empty, such as an amount. It is a matter of the program that
	// runs the job, so that it protects a rolling deploy only if the old program already has it.
	Strict bool
}

// These are the defaults of Options.
const (
	defaultRetries    = 20
	defaultCrashLimit = 3
)

// Keep is how long a completed or cancelled task is kept; see storage.Keep.
type Keep = storage.Keep

// Register registers a job type that has a method Run(context.Context) error, on the value or the
// pointer. The parameters of a task are the exported fields of the type.
//
// A job type may have further methods. BeforeRun(context.Context) error and
// AfterRun(context.Context, error) surround each attempt within the middleware. BeforeRun is called
// before Run; if it returns an error, the attempt has failed and Run is not called. AfterRun is
// called with the error of the attempt, which may be that of BeforeRun. It cannot change the
// outcome, and its panic is logged. Both share the context and the timeout of the attempt.
//
// BeforeEnqueue(context.Context) error is called before the job is enqueued, also as a follow-up, and by
// [Client.ChangeJob].
// It may fill in fields, and its error refuses the job. It is not called for the ticks of
// schedules, because any runner may enqueue them, with the parameters that were stored with the
// schedule. Checks for each tick belong in BeforeRun, or in the runner's [EnqueueMiddleware],
// which ticks pass.
//
// Partition() string returns the key of the partition to which the task of a job belongs, such as its
// tenant, or "" for none: the partitions of a queue are served in turn, so that the tasks of one do
// not wait for all tasks of another. It is called on each job after BeforeEnqueue, with the fields as
// they are enqueued, and by [Client.ChangeJob]. A schedule stores the answer for its ticks. The method
// must be fast and must not panic.
//
// Cost() int returns how much of the rate of its queue the start of the task of a job uses up, 0 to
// 1,000,000, such as the number of mails that the job sends: see [Rate]. It is called as Partition is.
//
// A type whose kind was renamed returns its earlier kinds from a method Aliases() []string, the
// oldest first. Tasks of those kinds run on the type, and logs show them under its current kind.
// Unique keys and names of schedules are made of the oldest kind, so that a rename lets no
// duplicate in while older versions of the program still run.
//
// Register returns an *[InvalidError] for an unsuitable type, invalid options, and a kind that is
// registered already, and [ErrRunning] once the runner has been started.
func Register[J any, P interface {
	*J
	Run(ctx context.Context) error
}](r *Runner) error {
	return handle(r, func(ctx context.Context, job *J) error { return P(job).Run(ctx) })
}

// Handle registers a function for a job type, which is a struct. A closure can hold dependencies
// that parameters cannot. Its errors, and the methods BeforeRun, AfterRun, BeforeEnqueue,
// Partition and Cost of the type, are those of [Register].
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
	decode := d.codec.Decode
	if d.options.Strict {
		decode = d.codec.DecodeStrict
	}
	return r.add(&handler{
		definition: d,
		decode: func(encoding string, payload []byte) (any, error) {
			job := new(J)
			if err := decode(encoding, payload, job); err != nil {
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

// handler runs the jobs of one type.
type handler struct {
	*definition
	decode func(encoding string, payload []byte) (any, error)
	run    func(ctx context.Context, job any) error

	looked atomic.Int32 // how many tasks were checked for unread fields
	unread sync.Map     // the unread fields that were found and logged
	found  atomic.Int32 // how many fields unread has
}

// Of each job type the first looksFirst tasks are checked for fields that the job does not read,
// and one in looksSeldom of the others.
const (
	looksFirst  = 256
	looksSeldom = 64
	mostUnread  = 100 // bounds the logged fields of a job type
)

// lookForUnread logs a stored field that the job does not read, once for each field.
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

// Encoding is the encoding of a job's parameters. It is recorded with each task, so that a queue
// can hold tasks of both encodings, and a kind can change its encoding while tasks of it wait. A
// task's result and checkpoint have the encoding of its parameters.
type Encoding string

// Both encodings write only exported fields, ignore stored fields that the type does not have, and
// write equal values as equal bytes, with the keys of maps sorted.
//
// A renamed field lists its earlier names in a tag, the oldest first, as the encoding wrote them:
// `midge:"was=to,was=recipient"`. Tasks that wait are read under these names too, also in structs
// within the job, and in lists and maps of them. Older programs do not have the tag:
// docs/deploying.md has the order in which a rename is safe while both run. A runner logs stored
// fields that the job does not have, once for each kind and field; it checks the first 256 tasks of
// a kind, and one in 64 of the others. A tag that is anything else, such as `midge:"wsa=to"`, or stands at a
// field that is not stored, is an *[InvalidError].
//
// A value comes back as it was, or is refused before any I/O. A type is refused, by an *[InvalidError] that
// names the field, if a field of it has only unexported fields and no methods that its encoding calls; if a
// method promoted from an embedded type hides other fields; if two fields have one name; if the option
// omitempty of MessagePack would leave out values that are not empty, because their type hides its content
// and has no method IsZero; or if a field cannot be decoded, as an interface with methods, or encoded, as a
// channel or a function. Unexported fields, empty structs and fields with the tag "-" are left out. The same
// holds for a value in a field of type any, for results, checkpoints and progress; these accept a nil
// interface with methods. A value that contains itself, is nested deeper than 100 levels, has a map with two
// keys that are stored alike, an embedded pointer to a struct of which nothing is stored, a pointer to nil or
// to a zero that a tag leaves out as nil, or an any with a zero or an empty list, map or text that the option
// omitempty of MessagePack leaves out as nil, is refused too. A method of your own that encodes its value is
// trusted: if it calls itself without end, it ends the process.
const (
	// MessagePack is the default: small and fast. The tag `msgpack:"name"` renames a field or
	// leaves it out; json tags have no effect. It calls EncodeMsgpack, MarshalMsgpack,
	// MarshalBinary or MarshalText. A time.Time keeps its instant but not its zone; it is decoded in
	// UTC, where its date may be another one. A value in a field of type any may come back with
	// another type: an integer as an int64, or as a uint64 if it is larger than that; a float32 as a
	// float64; a []byte or an array of bytes as a string; a struct as a map.
	MessagePack Encoding = "msgpack"
	// JSON is encoding/json, for parameters that people or other languages read. It calls
	// MarshalJSON or MarshalText. A time.Time keeps its offset, of whole minutes, but not the name of
	// its zone. Text must be UTF-8. A number in a field of type any comes back as a json.Number, with
	// all its digits; an empty json.Number comes back as "0".
	JSON Encoding = "json"
)

// cost returns the cost of a start that the options declare.
func (o *Options) cost() storage.Cost {
	switch o.Cost {
	case 1:
		return 0
	case None:
		return storage.NoCost
	}
	return storage.Cost(o.Cost)
}

// kindOf returns the kind of a job type: the answer of its method Kind, or else its name in snake
// case.
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
	if storage.CheckName("kind", kind) != nil { // generic types, unnamed types, other alphabets
		return "", storage.Invalid("job type", typ.String(),
			"a type whose name makes a kind, or a method Kind() string")
	}
	return kind, nil
}

// aliasesOf returns the earlier kinds of a job type, which its method Aliases returns.
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

// ask calls a declaring method of a job type on its zero value. A panic of the method is an
// *InvalidError.
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
