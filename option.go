package midge

import (
	"cmp"
	"maps"
	"reflect"
	"time"

	"github.com/midgehq/midge/storage"
)

// Option overrides, for one call, what the job's type declares. An option says exactly
// what it says: Timeout(0) is no timeout.
type Option interface {
	// PeriodicOption says that each option of a task goes with a schedule too,
	// except for those that name a moment, an id or a unique key.
	PeriodicOption
	apply(c *call)
}

// option is an Option made of a function.
type option func(c *call)

func (o option) apply(c *call)            { o(c) }
func (o option) declare(d *scheduleTerms) { o(&d.call) }

// Priority is the task's priority among the waiting, -9 to 9, higher first.
func Priority(n int) Option {
	return option(func(c *call) { c.fail(checkPriority("Priority", n)); c.priority = &n })
}

// To sends the task to another queue than the type's.
func To(queue string) Option {
	return option(func(c *call) { c.fail(checkQueue("To", queue)); c.queue = &queue })
}

// ID names the task, within its queue. As long as a task of that id is kept, enqueueing the
// same job with the same parameters under it gives that task, with [ErrExists] where it is
// dead or cancelled; anything else is a *[DependencyError]. A completed task is kept only as
// its Keep says: with [KeepFor] an id guards against a repeat after the completion too.
func ID(id string) Option {
	return option(func(c *call) { c.fail(checkID(id)); c.id = &id; c.only("ID"); c.ofOne("ID") })
}

// In makes the task due after d. A negative d is an *[InvalidError].
func In(d time.Duration) Option { return dueIn("In", d) }

// dueIn is In under the name that the caller used.
func dueIn(name string, d time.Duration) Option {
	return option(func(c *call) {
		c.moment(name)
		c.fail(checkDuration(name, d))
		c.delay = ceilMicrosecond(d)
	})
}

// At makes the task due at t, by the storage's clock. A past moment is due now; the zero
// time, which is a moment that somebody forgot to set, is an *[InvalidError].
func At(t time.Time) Option { return dueAt("At", t) }

// dueAt is At under the name that the caller used.
func dueAt(name string, t time.Time) Option {
	return option(func(c *call) {
		c.moment(name)
		c.fail(checkMoment(name, t))
		// Never early, and storages keep whole microseconds.
		c.at = t.Round(0).Add(time.Microsecond - 1).Truncate(time.Microsecond)
	})
}

// Retries is how often a failed task is run again before it is dead: 1 to 9,999, None for
// none. 0, which means the default in [Options], is an *[InvalidError] here.
func Retries(n int) Option {
	return option(func(c *call) {
		if n != None {
			c.fail(checkRange("Retries", n, 1, storage.MaxLimit, ", or None for none"))
		}
		c.options.Retries = max(n, 0)
		c.only("Retries")
	})
}

// CrashLimit is how often the task may lose its runner while it runs before it is dead, 1 to
// 9,999.
func CrashLimit(n int) Option {
	return option(func(c *call) {
		c.fail(checkRange("CrashLimit", n, 1, storage.MaxLimit, ""))
		c.options.CrashLimit = n
		c.only("CrashLimit")
	})
}

// Timeout ends the context of an attempt that takes longer, a millisecond at least; 0 is
// none.
func Timeout(d time.Duration) Option {
	return option(func(c *call) {
		c.fail(checkSpan("Timeout", d, "0 for none"))
		c.options.Timeout = d
		c.only("Timeout")
	})
}

// Deadline is the moment behind which nobody wants the task any more, by the storage's clock: no
// runner starts its job behind t, the context of a running one ends then, with [ErrExpired], and no
// retry comes behind it. The task is dead, reason "expired", once a runner that knows its kind comes
// to it. A [Client.Change] may give a task another deadline. The zero time is an *[InvalidError].
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

// KeepFor keeps the task for so long after it completed or was cancelled, a millisecond at
// least. With 0, the default, it is gone at once, unless it completed with a result: then it
// is kept for an hour.
func KeepFor(d time.Duration) Option {
	return option(func(c *call) {
		c.fail(checkSpan("KeepFor", d, "0"))
		c.options.Keep = Keep{For: d}
		c.only("KeepFor")
		c.either(&c.kept, "KeepFor")
	})
}

// UntilRead keeps the completed task until [Client.Await] has given its result to
// someone, for seven days at most.
func UntilRead() Option {
	return option(func(c *call) {
		c.options.Keep = Keep{UntilRead: true}
		c.only("UntilRead")
		c.either(&c.kept, "UntilRead")
	})
}

// Header records a text beside the task's parameters, such as a trace. Names that
// begin with "midge." are midge's own.
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

// call is what the options of one call say.
type call struct {
	options Options // the type's, overridden

	queue    *string
	priority *int
	id       *string
	backoff  *Geometric

	kept  string // the option that said how long the task is kept
	timed string // the option that named the moment
	delay time.Duration
	at    time.Time

	enqueueOnly string // an option that does nothing to a task that exists
	oneTask     string // the first option that can hold for one task alone, not for those of a schedule
	err         error  // the first thing wrong
}

func newCall(d *definition) call { return call{options: d.options} }

// read takes in options.
func (c *call) read(opts []Option) error {
	for _, o := range opts {
		if isNil(o) {
			return storage.Invalid("option", "nil", "an option")
		}
		o.apply(c)
	}
	return c.err
}

// isNil reports whether what was given as an interface is nil, or a nil function or pointer.
func isNil(given any) bool {
	v := reflect.ValueOf(given)
	return !v.IsValid() || (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil()
}

func (c *call) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// only notes an option that does nothing to a task that exists.
func (c *call) only(option string) { c.enqueueOnly = option }

// ofOne notes an option that can hold for one task alone.
func (c *call) ofOne(option string) { c.oneTask = cmp.Or(c.oneTask, option) }

// either notes an option in place and refuses it beside another that says the same thing.
func (c *call) either(place *string, option string) {
	if *place != "" && *place != option {
		c.fail(storage.Invalid("option "+option, "beside "+*place, "one of them"))
	}
	*place = option
}

// moment notes that an option names when the task is due.
func (c *call) moment(option string) {
	if c.timed != "" {
		c.fail(storage.Invalid("option "+option, "beside "+c.timed, "one moment"))
	}
	c.timed = option
	c.ofOne(option)
}

// insert makes the insert of a task without payload and id.
func (c *call) insert(d *definition, payload []byte) storage.Insert {
	o := &c.options
	in := storage.Insert{
		Ref: storage.Ref{Queue: d.queue, ID: storage.NewID()}, Kind: d.kind,
		Encoding: string(o.Encoding), Payload: payload, Headers: o.Headers, Priority: o.Priority,
		Delay: c.delay, At: c.at, MaxRetries: o.Retries, CrashLimit: o.CrashLimit,
		Timeout: o.Timeout, Keep: o.Keep,
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
	if c.backoff != nil {
		in.Headers = merged(in.Headers, map[string]string{backoffHeader: c.backoff.header()})
	}
	switch {
	case !c.at.IsZero():
		in.Headers = merged(in.Headers, map[string]string{storage.DueHeader: momentText(c.at)})
	case c.delay > 0:
		in.Headers = merged(in.Headers, map[string]string{storage.DueHeader: c.delay.String()})
	}
	return in
}

// momentText is a moment as a header has it.
func momentText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// merged gives a copy of headers with others, which win.
func merged(headers, others map[string]string) map[string]string {
	all := make(map[string]string, len(headers)+len(others))
	maps.Copy(all, headers)
	maps.Copy(all, others)
	return all
}

// newInsert makes the insert of a job with options, checked against everything but
// the storage's own limit of payloads.
func newInsert(d *definition, job any, opts []Option) (storage.Insert, error) {
	if len(opts) == 0 { // spares an allocation: no option is given a pointer to it
		c := newCall(d)
		return c.newInsert(d, job)
	}
	c := newCall(d)
	if err := c.read(opts); err != nil {
		return storage.Insert{}, err
	}
	return c.newInsert(d, job)
}

// newInsert is the insert of a job with the options that were read.
func (c *call) newInsert(d *definition, job any) (storage.Insert, error) {
	payload, err := d.encode(job)
	if err != nil {
		return storage.Insert{}, err
	}
	in := c.insert(d, payload)
	if u := c.options.Unique; u != nil {
		if err := u.set(&in, d, job); err != nil {
			return storage.Insert{}, err
		}
	}
	return in, storage.CheckInsert(highestLimits(), &in)
}

// highestLimits are the highest that a storage can have. What its own limits forbid it says itself.
func highestLimits() storage.Limits { return storage.Limits{MaxPayload: storage.MaxPayloadCap} }

func ceilMicrosecond(d time.Duration) time.Duration {
	if rest := d % time.Microsecond; rest > 0 {
		return d + time.Microsecond - rest
	}
	return d
}
