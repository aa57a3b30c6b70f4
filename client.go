package midge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// ClientConfig configures a [Client]. The zero value works.
type ClientConfig struct {
	// Patience bounds how long a call that changes something is repeated, within its context, while
	// the storage is away or the outcome is unknown. After that the call returns an
	// [ErrUnavailable] or [ErrUnknown]. Default: 5 s; None never repeats. Calls that read, and
	// calls that must read a task before they change it, such as Requeue, return the error of the
	// read at once.
	Patience time.Duration
	// MaxPayload bounds the encoded parameters of a job, in bytes: default 1 MiB, at most 16 MiB.
	// The limits of the storage hold too.
	MaxPayload int
	// Middleware wraps each call that enqueues tasks; the first is the outermost.
	Middleware []EnqueueMiddleware
}

// Client enqueues jobs and manages tasks and queues. It is safe for concurrent
// use, holds no connection of its own and needs no closing.
//
// The errors of a Client wrap an *[InvalidError] for bad input, found before any I/O; a
// *[DependencyError] if the state of the existing tasks does not permit the call; an
// [ErrUnavailable] if the storage was not reached at all; an [ErrUnknown] if a reply was
// lost; or another error of the storage. After any of them except ErrUnknown, nothing has happened.
// The error of an [EnqueueMiddleware] may come after the task was enqueued; the call then returns the
// task with the error.
type Client struct {
	store       storage.Storage
	session     *storage.Session
	definitions *definitions
	maxPayload  int
	middleware  enqueueChain
	within      Applier // nil outside a caller's transaction
}

// check checks the configuration.
func (c *ClientConfig) check() error {
	if err := checkDurationOrNone("ClientConfig.Patience", c.Patience); err != nil {
		return err
	}
	if err := enqueueChain(c.Middleware).check("ClientConfig.Middleware"); err != nil {
		return err
	}
	return checkRange("ClientConfig.MaxPayload", c.MaxPayload, 0, storage.MaxPayloadCap, " bytes, 0 for 1 MiB")
}

// NewClient checks the configuration and returns a client on store. It does no I/O. Its errors are
// *[InvalidError].
func NewClient(store storage.Storage, cfg ClientConfig) (*Client, error) {
	if isNil(store) {
		return nil, fmt.Errorf("midge: new client: %w", storage.Invalid("store", "nil", "an opened storage"))
	}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("midge: new client: %w", err)
	}
	limits := storage.Limits{MaxPayload: cfg.MaxPayload}
	c := &Client{
		store: store, session: storage.NewSession(store, cfg.Patience), definitions: new(definitions),
		maxPayload: limits.WithDefaults().MaxPayload, middleware: slices.Clone(cfg.Middleware),
	}
	c.definitions.verify(store)
	return c, nil
}

// Applier carries out steps inside a transaction of the caller, such as one of PostgreSQL; see
// Storage.Within in that package.
type Applier = storage.Applier

// With returns a client whose Enqueue, EnqueueIn, EnqueueAt, EnqueueMany and Cancel are part of a's
// transaction: they take effect if and when the transaction commits. Its Task, Queues, Queue.Tasks
// and Queue.Page see what that transaction has written, if a can read, as the Appliers of
// PostgreSQL and SQLite can. All other methods go to the storage itself. With a nil Applier, the
// calls that enqueue and Cancel return an *[InvalidError]. A call that fails leaves the transaction as it
// was, except for EnqueueMany: the items that it does not refuse are part of the transaction.
func (c *Client) With(a Applier) *Client {
	within := *c
	within.within = a
	if isNil(a) { // a transaction that got lost must not become a call outside any transaction
		within.within = noApplier{}
	}
	return &within
}

// reader returns the source of reads: the transaction if it can read, else the storage.
func (c *Client) reader() storage.Reader {
	if r, ok := c.within.(storage.Reader); ok {
		return r
	}
	return c.store
}

// noApplier replaces a nil Applier and refuses every call.
type noApplier struct{}

func (noApplier) Apply(context.Context, storage.Call, ...storage.Tx) ([]storage.Applied, error) {
	return nil, errNoApplier()
}

func errNoApplier() error { return storage.Invalid("Applier", "nil", "store.Within(tx)") }

// Enqueue makes a task of job, a struct or a pointer to one, and returns once the storage has
// acknowledged the task. It takes effect at once, in a running job too; [FollowUp] enqueues
// together with the completion of the job.
//
// If the same job already has a task under the given [ID], nothing is enqueued and the call returns
// that task with Existing set. The error is nil if that task lives or has completed, so that a
// producer may repeat itself, and [ErrExists] if it is dead or cancelled and will not run.
func (c *Client) Enqueue(ctx context.Context, job any, opts ...Option) (Task, error) {
	in, err := c.insert(ctx, job, opts)
	if err != nil {
		return Task{}, about(err, "enqueue", in.Kind)
	}
	inserts := []storage.Insert{in}
	applied, err := c.place(ctx, inserts)
	if err != nil {
		return there(inserts, applied, 0), wrap(err, "enqueue %s", in.Kind)
	}
	task, err := enqueued(inserts[0], applied[0])
	if err != nil {
		return task, wrap(c.idTaken(ctx, &inserts[0], err), "enqueue %s", in.Kind)
	}
	return task, nil
}

// idTaken adds to the error of an insert whose id is taken the state and the kind of the task that
// has the id, if they can still be read.
func (c *Client) idTaken(ctx context.Context, in *storage.Insert, err error) error {
	var dep *DependencyError
	if !errors.As(err, &dep) || !slices.Contains(dep.Colliding, storage.Collision{Ref: in.Ref, Holder: in.Ref}) {
		return err
	}
	t, readErr := c.reader().Task(ctx, in.Ref)
	switch {
	case readErr != nil:
		return err
	case t.Kind != in.Kind:
		return fmt.Errorf("%w: it is %s, of kind %s", err, t.State, storage.PrintableText(t.Kind, storage.MaxName))
	case t.Encoding != in.Encoding:
		return fmt.Errorf("%w: it is %s, of the same kind in another encoding", err, t.State)
	}
	return fmt.Errorf("%w: it is %s, of the same kind with other parameters", err, t.State)
}

// EnqueueIn is [Client.Enqueue] of a task that is due after d; see [In].
func (c *Client) EnqueueIn(ctx context.Context, d time.Duration, job any, opts ...Option) (Task, error) {
	return c.Enqueue(ctx, job, append([]Option{dueIn("EnqueueIn", d)}, opts...)...)
}

// EnqueueAt is [Client.Enqueue] of a task that is due at t; see [At].
func (c *Client) EnqueueAt(ctx context.Context, t time.Time, job any, opts ...Option) (Task, error) {
	return c.Enqueue(ctx, job, append([]Option{dueAt("EnqueueAt", t)}, opts...)...)
}

// Item is one job of a [Client.EnqueueMany]; [New] makes it.
type Item struct {
	job  any
	opts []Option
}

// New returns an item for [Client.EnqueueMany].
func New(job any, opts ...Option) Item { return Item{job: job, opts: opts} }

// Result is the outcome of one item of [Client.EnqueueMany], or of one task of [Client.Repeat].
type Result struct {
	Task Task
	// Err is nil if Task was enqueued or existed already. Task is there too if a middleware
	// returned Err after the enqueueing. An [ErrExists] means that Task existed and will not run, an
	// ErrUnknown that the outcome of the item's part of the call is unknown,
	// and an [ErrNotSent] that the item was not sent.
	Err error
}

// These constants bound one call to the storage in EnqueueMany.
const (
	chunkItems = storage.MaxTxOps
	chunkBytes = storage.MaxTxBytes
)

// EnqueueMany enqueues each item by itself, in order. One call to the storage takes up to 1,000
// items and 4 MiB. While one call is under way, EnqueueMany encodes the items of the next, unless
// the client has middleware or a transaction. It returns one result per item, in the order of the
// items. The error is nil only if every item has its task. Otherwise it wraps the error of the
// first refused item, or the error that stopped the whole. After an unknown outcome nothing more is
// sent; [Client.Repeat] returns the outcome of the affected items.
func (c *Client) EnqueueMany(ctx context.Context, items []Item) ([]Result, error) {
	results := make([]Result, len(items))
	most := min(max((len(items)+1)/2, chunkItems/4), chunkItems)
	done := func() error { return nil } // waits for the chunk that is under way
	for last := (chunk{}); last.end < len(items); {
		next := c.chunk(ctx, items, last, most, results)
		if err := done(); err != nil {
			for i := last.end; i < len(items); i++ {
				if results[i].Err == nil {
					results[i].Err = ErrNotSent
				}
			}
			return results, wrap(err, "enqueue %d items", len(items))
		}
		last = next
		if next.end == len(items) {
			done = func() error { return c.send(ctx, next, results) }
			break
		}
		if c.within != nil || len(c.middleware) > 0 { // both need the caller's goroutine
			err := c.send(ctx, next, results)
			done = func() error { return err }
			continue
		}
		sent := make(chan error, 1)
		go func() { sent <- c.send(ctx, next, results) }() // done waits for it
		done = func() error { return <-sent }
	}
	if err := done(); err != nil {
		return results, wrap(err, "enqueue %d items", len(items))
	}
	return results, firstRefused(results)
}

// chunk holds the inserts of one call to the storage: all enqueueable items before end.
type chunk struct {
	inserts []storage.Insert
	places  []int // the index of each insert among all items
	end     int
	left    *storage.Insert // of items[end], for which the call had no room; nil for none
}

// chunk makes the inserts of the items that follow the last chunk, up to most, and as many as one call
// takes. An item that cannot be enqueued gets its error in results.
func (c *Client) chunk(ctx context.Context, items []Item, last chunk, most int, results []Result) chunk {
	k := chunk{inserts: make([]storage.Insert, 0, min(most, len(items)-last.end)), end: len(items)}
	size := 0
	for i := last.end; i < len(items); i++ {
		if len(k.inserts) == most {
			k.end = i
			break
		}
		var in storage.Insert
		var err error
		if i == last.end && last.left != nil { // its BeforeEnqueue must not be called again
			in = *last.left
		} else if in, err = c.insert(ctx, items[i].job, items[i].opts); err != nil {
			results[i].Err = about(err, "enqueue", in.Kind)
			continue
		}
		tx := storage.Tx{Inserts: []storage.Insert{in}}
		if size += tx.Bytes(); len(k.inserts) > 0 && size > chunkBytes {
			left := in
			k.end, k.left = i, &left
			break
		}
		k.inserts, k.places = append(k.inserts, in), append(k.places, i)
	}
	return k
}

// send enqueues a chunk and fills in its results. It returns the error of the call to the storage.
func (c *Client) send(ctx context.Context, k chunk, results []Result) error {
	if len(k.inserts) == 0 {
		return nil
	}
	applied, err := c.place(ctx, k.inserts)
	first := true // refused items may be many, so only the first costs a call to read which task has its id
	for n, i := range k.places {
		if err != nil {
			results[i] = Result{Task: there(k.inserts, applied, n), Err: err}
			continue
		}
		task, refused := enqueued(k.inserts[n], applied[n])
		if results[i].Task = task; refused != nil {
			if first {
				refused, first = c.idTaken(ctx, &k.inserts[n], refused), false
			}
			results[i].Err = wrap(refused, "enqueue %s", k.inserts[n].Kind)
		}
	}
	return err
}

// firstRefused returns the error of EnqueueMany after all items were answered: the error of the
// first refused item, or nil.
func firstRefused(results []Result) error {
	refused, first := 0, -1
	for i, r := range results {
		if r.Err != nil {
			if refused++; first < 0 {
				first = i
			}
		}
	}
	if refused == 0 {
		return nil
	}
	return wrap(results[first].Err, "%d of %d items were refused, items[%d]", refused, len(results), first)
}

// Repeat takes an error that wraps an [ErrUnknown] of this client. It returns the outcome of the
// failed call, or carries the call out if that never happened; nothing happens twice. The results
// have one element per task of the call. Repeat works for ten minutes after the call and then
// returns ErrUnknown again.
func (c *Client) Repeat(ctx context.Context, err error) ([]Result, error) {
	var unknown *UnknownError
	if !errors.As(err, &unknown) || len(unknown.Txs) == 0 { // of a Checkpoint
		invalid := storage.Invalid("error", "that remembers no call", "an ErrUnknown of a client")
		return nil, wrap(invalid, "repeat")
	}
	applied, err := c.session.Repeat(ctx, unknown)
	if err != nil {
		return nil, wrap(err, "repeat")
	}
	results := make([]Result, len(applied))
	for i, a := range applied {
		refused := a.Err
		switch {
		case len(unknown.Txs[i].Inserts) > 0:
			results[i].Task, refused = enqueued(unknown.Txs[i].Inserts[0], a)
		case len(a.Changed) > 0:
			at := a.Changed[0]
			results[i].Task = Task{Ref: at.Ref, State: at.State, Version: at.Version}
		}
		if refused != nil {
			results[i].Err = wrap(refused, "repeat")
		}
	}
	return results, nil
}

// insert makes and checks the insert of a job. After an error the returned insert has only its
// Kind, if the kind is known.
func (c *Client) insert(ctx context.Context, job any, opts []Option) (storage.Insert, error) {
	d, err := c.definitions.of(job)
	if err != nil {
		return storage.Insert{}, err
	}
	if job, err = d.prepare(ctx, job); err != nil {
		return storage.Insert{Kind: d.kind}, err
	}
	in, err := newInsert(d, job, opts)
	if err == nil {
		err = c.checkPayload(in.Payload)
	}
	if err != nil {
		in = storage.Insert{Kind: d.kind}
	}
	return in, err
}

func (c *Client) checkPayload(payload []byte) error {
	if n := len(payload); n > c.maxPayload {
		return storage.Invalid("parameters", fmt.Sprintf("of %d bytes", n),
			"at most %d bytes, see ClientConfig.MaxPayload", c.maxPayload)
	}
	return nil
}

func (c *Client) apply(ctx context.Context, txs ...storage.Tx) ([]storage.Applied, error) {
	if c.within == nil {
		return c.session.Apply(ctx, txs...)
	}
	return c.within.Apply(ctx, storage.Call{}, txs...)
}

// there returns the task of an insert of a failed call if it is there all the same, because a
// middleware returned the error after the insert; else the zero Task.
func there(inserts []storage.Insert, applied []storage.Applied, i int) (t Task) {
	if i < len(applied) && applied[i].Err == nil && len(applied[i].Inserted) > 0 {
		t, _ = enqueued(inserts[i], applied[i]) // the error of the call comes first
	}
	return t
}

// enqueued returns the task that an insert made or found, and an error if the task will not run.
func enqueued(in storage.Insert, applied storage.Applied) (Task, error) {
	if applied.Err != nil {
		return Task{}, applied.Err
	}
	at := applied.Inserted[0]
	t := Task{Ref: at.Ref, Kind: in.Kind, State: at.State, Version: at.Version, Existing: at.Existing}
	if at.Existing {
		var err error
		if at.Ref == in.Ref && (at.State == storage.Dead || at.State == storage.Cancelled) {
			err = fmt.Errorf("%s is %s: %w", at.Ref, at.State, ErrExists)
		}
		return t, err
	}
	t.Encoding, t.Payload, t.Headers = in.Encoding, in.Payload, maps.Clone(in.Headers)
	t.Priority, t.MaxRetries, t.CrashLimit = in.Priority, in.MaxRetries, in.CrashLimit
	t.Partition, t.Cost = in.Partition, in.Cost
	t.Timeout, t.Keep, t.Unique = in.Timeout, in.Keep, in.Unique
	t.Created = at.CreatedAt()
	switch {
	case at.State != storage.Scheduled:
	case in.At.IsZero():
		t.Due = t.Created.Add(in.Delay)
	default:
		t.Due = in.At
	}
	return t, nil
}
