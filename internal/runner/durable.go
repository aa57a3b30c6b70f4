package runner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/internal/steps"
	"github.com/midgehq/midge/storage"
)

// durable is what an attempt knows of the steps and the checkpoint of its task. The attempt reads them once,
// and then writes them whole, one write at a time.
type durable struct {
	turn chan struct{} // capacity 1; held while the fields below are used, also during I/O

	loaded bool           // kept is what the storage has
	kept   steps.Envelope // valid if loaded
	unsure error          // of the last write if its outcome is unknown: it may still happen
	after  storage.Call   // the call of that write
	names  map[string]bool

	running atomic.Int32 // how many functions of steps run, each of which needs room for its step
}

// OwedError is an end that an attempt owes its task, whatever its job returns. The Step or the Sleep that
// causes it returns it, and so do all later ones of the attempt.
type OwedError struct {
	Ask    Ask       // Snooze, Retry or Discard; of two errors the later in this order holds
	Until  time.Time // the end of a Snooze
	Reason string    // names the step; also for Task.Reason
	Err    error     // the cause; nil for a Snooze
}

func (e *OwedError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OwedError) Unwrap() error { return e.Err }

// owe records the end that the attempt owes, and returns it. A failure outranks a sleep, which is stored: the next
// attempt goes on with the rest of it.
func (a *Attempt) owe(o *OwedError) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.extra()
	if x.owed == nil || o.Ask != Snooze && x.owed.Ask == Snooze || o.Ask == Discard && x.owed.Ask == Retry {
		x.owed = o
	}
	return o
}

// owes returns the end that the attempt owes, or nil. The mutex is held.
func (a *Attempt) owes() error {
	if a.extras == nil || a.extras.owed == nil {
		return nil
	}
	return a.extras.owed
}

// Owing adds to an error of a job, or to nil, the end that the attempt owes. It calls no method of err.
func (a *Attempt) Owing(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if owed := a.owes(); owed != nil {
		return &owingError{owed, err}
	}
	return err
}

// Instead returns another error in place of err, with the end that [Attempt.Owing] has added to err. It calls no
// method of err.
func Instead(err, other error) error {
	if e, ok := err.(*owingError); ok { //nolint:errorlint // this one: a method of another may panic
		return &owingError{e.owed, other}
	}
	return other
}

// owingError is an end that an attempt owes, with what its job has returned.
type owingError struct{ owed, returned error }

func (e *owingError) Error() string {
	switch {
	case e.returned == nil:
		return e.owed.Error()
	case errors.Is(e.returned, e.owed):
		return e.returned.Error()
	}
	return e.owed.Error() + "; the job returned: " + e.returned.Error()
}

// Unwrap returns both.
func (e *owingError) Unwrap() []error {
	if e.returned == nil {
		return []error{e.owed}
	}
	return []error{e.owed, e.returned}
}

// Unstorable buries the task because of a step that cannot be stored for the reason err, and returns the error
// of the step. A retry would run the step again, with the same end.
func (a *Attempt) Unstorable(step string, err error) error { return a.notStored(Discard, step, err) }

// notStored makes the attempt end as asked because a step is not stored.
func (a *Attempt) notStored(ask Ask, step string, err error) error {
	return a.owe(&OwedError{Ask: ask, Reason: cannotStore + step, Err: err})
}

// cannotStore begins the reason of a task that is dead because of a step.
const cannotStore = "cannot store step "

// Step returns the stored result of a step. If there is none, it calls run and stores what run returns. An
// error of run is returned as it is, and nothing is stored.
func (a *Attempt) Step(ctx context.Context, name string, run func() ([]byte, error)) (result []byte, err error) {
	d, err := a.durable()
	if err != nil {
		return nil, err
	}
	known, found, err := d.begin(ctx, a, name)
	switch {
	case err != nil:
		return nil, err
	case found:
		defer d.leave()
		if !known.Until.IsZero() {
			return nil, errOtherUse(name, "sleep")
		}
		return known.Result, nil
	}
	d.running.Add(1)
	d.leave()
	needsRoom := true
	defer func() {
		if needsRoom { // run has failed, panicked or ended the goroutine
			d.running.Add(-1)
		}
	}()
	a.called(name)
	begun := time.Now()
	if result, err = run(); err != nil {
		return nil, err
	}
	took := time.Since(begun)
	ctx, stop := outlasting(ctx, a.lease/3) // the step is done, and is stored also if the job is to end
	defer stop()
	if err := d.enter(ctx); err != nil {
		return nil, a.notStored(Retry, name, err)
	}
	defer d.leave()
	d.running.Add(-1)
	needsRoom = false
	return result, d.add(ctx, a, steps.Step{Name: name, Ended: a.storageTime(), Took: took, Result: result})
}

// outlasting returns a context that ends only some time after ctx has ended.
func outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := context.AfterFunc(ctx, func() {
		if sleep.For(lasting, by) {
			end()
		}
	})
	return lasting, func() { ended(); end() }
}

// Sleep stores the end of a sleep if none is stored. It returns nil once the end has come, and until then
// an OwedError, with which the attempt owes a snooze until the end.
func (a *Attempt) Sleep(ctx context.Context, name string, length time.Duration) error {
	d, err := a.durable()
	if err != nil {
		return err
	}
	s, found, err := d.begin(ctx, a, name)
	if err != nil {
		return err
	}
	defer d.leave()
	switch {
	case !found:
		now := a.storageTime()
		s = steps.Step{Name: name, Ended: now, Until: now.Add(max(length, 0)).Truncate(time.Microsecond)}
		a.called(name)
		if err := d.add(ctx, a, s); err != nil {
			return err
		}
	case s.Until.IsZero():
		return errOtherUse(name, "step")
	}
	if !s.Until.After(a.storageTime()) {
		return nil
	}
	reason := fmt.Sprintf("%s %s (%s)", storage.ReasonSleeps, s.Until.Format("2006-01-02 15:04:05 UTC"), name)
	return a.owe(&OwedError{Ask: Snooze, Until: s.Until, Reason: reason})
}

// Called returns the names of the steps whose functions were called in this attempt, and of the sleeps that
// began in it.
func (a *Attempt) Called() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.extras == nil {
		return nil
	}
	return a.extras.called
}

func (a *Attempt) called(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.extra()
	x.called = append(x.called, name)
}

// Checkpoint stores a checkpoint beside the steps of the task.
func (a *Attempt) Checkpoint(ctx context.Context, checkpoint []byte) error {
	d, err := a.durable()
	if err == nil {
		err = d.enter(ctx)
	}
	if err != nil {
		return err
	}
	defer d.leave()
	if err := d.load(ctx, a); err != nil {
		return err
	}
	next := steps.Envelope{Steps: d.kept.Steps, Checkpoint: checkpoint}
	if err := a.fits(next); err != nil {
		return err
	}
	return d.store(ctx, a, next)
}

// LoadCheckpoint returns the last checkpoint of the task, empty for none.
func (a *Attempt) LoadCheckpoint(ctx context.Context) ([]byte, error) {
	d, err := a.durable()
	if err == nil {
		err = d.enter(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer d.leave()
	err = d.load(ctx, a)
	return d.kept.Checkpoint, err
}

// durable returns what the attempt knows of its steps and checkpoint, or why it can store none. Once the job
// has returned, it makes no extras, because the settler reads them without the mutex.
func (a *Attempt) durable() (*durable, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.mayAddLocked(); err != nil {
		return nil, err
	}
	x := a.extra()
	if x.durable == nil {
		x.durable = &durable{turn: make(chan struct{}, 1)}
	}
	return x.durable, nil
}

// enter waits for the turn.
func (d *durable) enter(ctx context.Context) error {
	select {
	case d.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case d.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *durable) leave() { <-d.turn }

// begin begins a step or a sleep, and returns what is stored of it. Without an error it leaves the turn to
// its caller.
func (d *durable) begin(ctx context.Context, a *Attempt, name string) (known steps.Step, found bool, err error) {
	if ctx.Err() != nil { // another attempt may begin the same step
		return known, false, context.Cause(ctx)
	}
	if err := d.enter(ctx); err != nil {
		return known, false, err
	}
	if err = d.mayBegin(ctx, a, name); err == nil {
		known, found = d.kept.Find(name)
		if !found && len(d.kept.Steps)+int(d.running.Load()) >= steps.Most {
			err = a.Unstorable(name, storage.Invalid("steps", fmt.Sprintf("more than %d", steps.Most),
				"at most %d steps and sleeps of a task", steps.Most))
		}
	}
	if err != nil {
		d.leave()
	}
	return known, found, err
}

// mayBegin loads the envelope and checks whether a step of the name may begin in this attempt.
func (d *durable) mayBegin(ctx context.Context, a *Attempt, name string) error {
	a.mu.Lock()
	owed := a.owes()
	a.mu.Unlock()
	switch {
	case owed != nil:
		return owed
	case d.unsure != nil: // it may have been a step, which then runs once more
		return a.notStored(Retry, name, d.unsure)
	}
	if err := d.load(ctx, a); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return a.owe(&OwedError{Ask: Retry, Reason: "cannot read the steps before step " + name, Err: err})
	}
	if d.names[name] {
		return storage.Invalid("name of a step", name, "a name that no other step or sleep of the job has")
	}
	if d.names == nil {
		d.names = make(map[string]bool)
	}
	d.names[name] = true
	return nil
}

// errOtherUse reports a name that an earlier attempt used otherwise.
func errOtherUse(name, as string) error {
	return storage.Invalid("name of a step", name, "another name: an earlier attempt has stored a %s under it", as)
}

// load reads the envelope of the task if it is not known. If the storage is away, it waits for the
// duration of the lease at most.
func (d *durable) load(ctx context.Context, a *Attempt) error {
	if d.loaded {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, a.lease)
	defer cancel()
	t, err := a.look(call, a.Fence.Ref)
	if err != nil {
		return withCause(ctx, err)
	}
	d.kept, err = steps.Decode(t.Checkpoint)
	d.loaded = err == nil
	return err
}

// add stores a further step. The attempt fails if it is not stored.
func (d *durable) add(ctx context.Context, a *Attempt, s steps.Step) error {
	if err := d.load(ctx, a); err != nil {
		return a.notStored(Retry, s.Name, err)
	}
	next := steps.Envelope{Steps: append(d.kept.Steps, s), Checkpoint: d.kept.Checkpoint}
	if err := a.fits(next); err != nil {
		return a.Unstorable(s.Name, err)
	}
	if err := d.store(ctx, a, next); err != nil {
		return a.notStored(Retry, s.Name, err)
	}
	return nil
}

// fits returns an error for an envelope that is too large.
func (a *Attempt) fits(e steps.Envelope) error {
	if size, most := e.Size(), a.MaxPayload(); size > most {
		return storage.Invalid("steps and checkpoint", fmt.Sprintf("of %d bytes", size), "at most %d bytes", most)
	}
	return nil
}

// store writes an envelope. If that may or may not have happened, the envelope is no longer known. Once store
// has succeeded, no earlier write can happen any more.
func (d *durable) store(ctx context.Context, a *Attempt, next steps.Envelope) error {
	err := a.Store(ctx, d.after, nil, next.Encode())
	var unknown *storage.UnknownError
	switch {
	case err == nil:
		d.kept, d.unsure, d.after = next, nil, storage.Call{}
	case errors.As(err, &unknown):
		d.loaded, d.unsure, d.after = false, err, unknown.Call
	}
	return err
}
