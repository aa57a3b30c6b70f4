package midge

import (
	"cmp"
	"maps"
	"reflect"
	"time"

	"github.com/midgehq/midge/storage"
)

// Option overrides, for one call, an option that the job's type declares. Its value is taken literally:
// Timeout(0) means no timeout, neither the type's nor the runner's.
type Option interface {
	// PeriodicOption is embedded because each option of a task also suits a schedule, except for
	// the options that name a moment, an id or a unique key.
	PeriodicOption
	apply(c *call)
}

// option is an Option that is a function.
type option func(c *call)

func (o option) apply(c *call)            { o(c) }
func (o option) declare(d *scheduleTerms) { o(&d.call) }

// Priority sets the task's priority among the waiting tasks of the queue: -9 to 9, the highest is
// claimed first.
func Priority(n int) Option {
	return option(func(c *call) { c.fail(checkPriority("Priority", n)); c.priority = &n })
}

// Partition sets the key of the task's partition within its queue, such as the name of a tenant, in
// place of [Options].Partition and of the answer of the type's method Partition; "" is none. The
// partitions of a queue are served in turn. A key has 1 to 128 bytes of printable UTF-8.
func Partition(key string) Option {
	return option(func(c *call) { c.fail(checkPartition("Partition", key)); c.partition = &key })
}

// Cost sets how much of the rate of its queue the start of the task uses up, 0 to 1,000,000, in place of
// [Options].Cost and of the answer of the type's method Cost. The default is 1. A cost over the N of the
// [Rate] counts as N. A task of cost 0 waits too while the rate is spent.
func Cost(n int) Option {
	return option(func(c *call) {
		cost, err := storage.CostOf("Cost", n)
		c.fail(err)
		c.cost = &cost
	})
}

// To enqueues the task in another queue than the type declares.
func To(queue string) Option {
	return option(func(c *call) { c.fail(checkQueue("To", queue)); c.queue = &queue })
}

// ID names the task within its queue. While a task with that id is kept, enqueueing the same job
// with the same parameters under the id returns the existing task, with [ErrExists] if it is
// dead or cancelled. Enqueueing anything else under the id is a *[DependencyError], whose text has
// the state and the kind of the task there. A completed task is kept only for the time of its Keep;
// with [KeepFor] an id also prevents a repeat after the completion.
func ID(id string) Option {
	return option(func(c *call) { c.fail(checkID(id)); c.id = &id; c.only("ID"); c.ofOne("ID") })
}

// In makes the task due after d. A negative d is an *[InvalidError].
func In(d time.Duration) Option { return dueIn("In", d) }

// dueIn is In for a caller whose errors have another name.
func dueIn(name string, d time.Duration) Option {
	return option(func(c *call) {
		c.moment(name)
		c.fail(checkDuration(name, d))
		c.delay = ceilMicrosecond(d)
	})
}

// At makes the task due at t, by the storage's clock. A task with a past t is due now. The zero
// time is an *[InvalidError], because somebody forgot to set it.
func At(t time.Time) Option { return dueAt("At", t) }

// dueAt is At for a caller whose errors have another name.
func dueAt(name string, t time.Time) Option {
	return option(func(c *call) {
		c.moment(name)
		c.fail(checkMoment(name, t))
		// Rounded up: a task is never early, and storages keep whole microseconds.
		c.at = t.Round(0).Add(time.Microsecond - 1).Truncate(time.Microsecond)
	})
}

// Retries sets how many times a failed task is run again before it is dead: 1 to 9,999, or None for
// no retry. 0 means the default in [Options] and is an *[InvalidError] here.
func Retries(n int) Option {
	return option(func(c *call) {
		if n != None {
			c.fail(checkRange("Retries", n, 1, storage.MaxLimit, ", or None for none"))
		}
		c.options.Retries = max(n, 0)
		c.only("Retries")
	})
}

// CrashLimit sets how many times the task may lose its runner while it runs before it is dead: 1 to
// 9,999.
func CrashLimit(n int) Option {
	return option(func(c *call) {
		c.fail(checkRange("CrashLimit", n, 1, storage.MaxLimit, ""))
		c.options.CrashLimit = n
		c.only("CrashLimit")
	})
}

// Timeout ends the context of an attempt that takes longer than d. d is a millisecond at least, or
// 0 for no timeout, whatever [RunnerConfig].Timeout is.
func Timeout(d time.Duration) Option {
	return option(func(c *call) {
		c.fail(checkSpan("Timeout", d, "0 for none"))
		c.options.Timeout = cmp.Or(d, storage.NoTimeout)
		c.only("Timeout")
	})
}

// Deadline sets the moment after which the task is of no use, by the storage's clock.
// After t no runner starts the job and no retry is made; the context of a running job ends at t,
// with [ErrExpired]. The task is dead, with reason "expired", once a runner that handles its kind
// claims it. [Client.Change] can set another deadline. The zero time is an *[InvalidError], and so
// is a t before the moment of an [At] beside it. Beside an [In], whose moment the storage computes, such a
// t is accepted, and [Client.Why] reports that the task will expire.
func Deadline(t time.Time) Option {
	return option(func(c *call) {
		if t.IsZero() {
			c.fail(storage.Invalid("Deadline", "zero time", "a moment"))
		}
		c.fail(checkMoment("Deadline", t))
		c.ofOne("Deadline")
		c.options.Headers = merged(c.options.Headers, map[string]string{storage.DeadlineHeader: momentText(t)})
	})
}

// KeepFor keeps the task for d, a millisecond at least, after it completed or was cancelled. With
// 0, the default, the task is gone at once, unless it completed with a result; then it is kept for
// an hour.
func KeepFor(d time.Duration) Option {
	return option(func(c *call) {
		c.fail(checkSpan("KeepFor", d, "0"))
		c.options.Keep = Keep{For: d}
		c.only("KeepFor")
		c.either(&c.kept, "KeepFor")
	})
}

// UntilRead keeps the completed task until [Client.Await] has returned its result to somebody, for
// seven days at most.
func UntilRead() Option {
	return option(func(c *call) {
		c.options.Keep = Keep{UntilRead: true}
		c.only("UntilRead")
		c.either(&c.kept, "UntilRead")
	})
}

// Header records a text beside the task's parameters, such as a trace id. Names that begin with
// "midge." are reserved for midge.
func Header(name, value string) Option {
	return option(func(c *call) {
		c.fail(checkHeader("name of Header", name))
		c.options.Headers = merged(c.options.Headers, map[string]string{name: value})
	})
}

// NotUnique lifts the uniqueness that the type declares.
func NotUnique() Option {
	return option(func(c *call) { c.options.Unique = nil; c.only("NotUnique") })
}

func (u Unique) apply(c *call)            { c.options.Unique = &u; c.only("Unique"); c.ofOne("Unique") }
func (u Unique) declare(d *scheduleTerms) { u.apply(&d.call) }

func (g Geometric) apply(c *call)            { c.fail(g.check()); c.backoff = &g; c.only("Geometric") }
func (g Geometric) declare(d *scheduleTerms) { g.apply(&d.call) }

// call holds the options of one call.
type call struct {
	options Options // those of the type, overridden by the call

	queue     *string
	priority  *int
	partition *string
	cost      *storage.Cost
	id        *string
	backoff   *Geometric

	kept  string // the option that set how long the task is kept
	timed string // the option that set the moment
	delay time.Duration
	at    time.Time

	enqueueOnly string // an option that has no effect on an existing task
	oneTask     string // the first option that suits a single task only, not the tasks of a schedule
	err         error  // the first error
}

func newCall(d *definition) call { return call{options: d.options} }

// read applies options and returns the first error.
func (c *call) read(opts []Option) error {
	for _, o := range opts {
		if isNil(o) {
			return storage.Invalid("option", "nil", "an option")
		}
		o.apply(c)
	}
	if c.at.IsZero() {
		return c.err
	}
	deadline := (storage.Task{Headers: c.options.Headers}).Deadline()
	if !deadline.IsZero() && deadline.Before(c.at) {
		c.fail(storage.Invalid("Deadline", deadline, "a moment after that of %s, %v", c.timed, c.at))
	}
	return c.err
}

// isNil reports whether an interface value is nil, or holds a nil function or pointer.
func isNil(given any) bool {
	v := reflect.ValueOf(given)
	return !v.IsValid() || (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil()
}

func (c *call) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// only records an option that has no effect on an existing task.
func (c *call) only(option string) { c.enqueueOnly = option }

// ofOne records an option that suits a single task only.
func (c *call) ofOne(option string) { c.oneTask = cmp.Or(c.oneTask, option) }

// either records an option in place. It refuses an option beside another option that sets the same value.
func (c *call) either(place *string, option string) {
	if *place != "" && *place != option {
		c.fail(storage.Invalid("option "+option, "beside "+*place, "one of them"))
	}
	*place = option
}

// moment records that an option sets when the task is due.
func (c *call) moment(option string) {
	if c.timed != "" {
		c.fail(storage.Invalid("option "+option, "beside "+c.timed, "one moment"))
	}
	c.timed = option
	c.ofOne(option)
}

// insert returns the insert of a task. insertOf sets the partition and the cost that the job names, and
// newInsert the unique key.
func (c *call) insert(d *definition, payload []byte) storage.Insert {
	o := &c.options
	in := storage.Insert{
		Ref: storage.Ref{Queue: d.queue, ID: storage.NewID()}, Kind: d.kind,
		Encoding: string(o.Encoding), Payload: payload, Headers: o.Headers, Priority: o.Priority,
		Partition: o.Partition, Delay: c.delay, At: c.at, MaxRetries: o.Retries, CrashLimit: o.CrashLimit,
		Timeout: o.Timeout, Keep: o.Keep, Cost: o.cost(),
	}
	if c.queue != nil {
		in.Ref.Queue = *c.queue
	}
	if c.id != nil {
		in.Ref.ID = *c.id
	}
	if c.priority != nil {
		in.Priority = *c.priority
	}
	if c.partition != nil {
		in.Partition = *c.partition
	}
	if c.cost != nil {
		in.Cost = *c.cost
	}
	if c.backoff != nil {
		in.Headers = merged(in.Headers, map[string]string{backoffHeader: c.backoff.header()})
	}
	in = in.CompleteHeaders()
	return in
}

// momentText formats a moment for a header.
func momentText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// merged returns headers with others added; others win. The result may be others itself, and neither is
// changed.
func merged(headers, others map[string]string) map[string]string {
	if len(headers) == 0 {
		return others
	}
	all := make(map[string]string, len(headers)+len(others))
	maps.Copy(all, headers)
	maps.Copy(all, others)
	return all
}

// newInsert returns the insert of a job with options. It checks everything except the storage's own
// limit of payloads.
func newInsert(d *definition, job any, opts []Option) (storage.Insert, error) {
	if len(opts) == 0 { // spares an allocation: c escapes only if an option gets a pointer to it
		c := newCall(d)
		return c.newInsert(d, job)
	}
	c := newCall(d)
	if err := c.read(opts); err != nil {
		return storage.Insert{}, err
	}
	return c.newInsert(d, job)
}

// newInsert returns the insert of a job with the options that were read.
func (c *call) newInsert(d *definition, job any) (storage.Insert, error) {
	payload, err := d.encode(string(d.options.Encoding), job)
	if err != nil {
		return storage.Insert{}, err
	}
	in, err := c.insertOf(d, job, payload)
	if err != nil {
		return storage.Insert{}, err
	}
	if u := c.options.Unique; u != nil {
		if err := u.set(&in, d, job); err != nil {
			return storage.Insert{}, err
		}
	}
	return in, storage.CheckInsert(highestLimits(), &in)
}

// insertOf returns the insert of a job, with the partition and the cost that its methods name if neither an
// option nor the options of the type do.
func (c *call) insertOf(d *definition, job any, payload []byte) (storage.Insert, error) {
	in := c.insert(d, payload)
	var err error
	if c.partition == nil && d.names {
		if in.Partition, err = d.partitionOf(job); err != nil {
			return in, err
		}
	}
	if c.cost == nil && d.costs {
		in.Cost, err = d.costOf(job)
	}
	return in, err
}

// highestLimits returns the highest limits that a storage can have. A storage checks its own, lower
// limits itself.
func highestLimits() storage.Limits { return storage.Limits{MaxPayload: storage.MaxPayloadCap} }

func ceilMicrosecond(d time.Duration) time.Duration {
	if rest := d % time.Microsecond; rest > 0 {
		return d + time.Microsecond - rest
	}
	return d
}
