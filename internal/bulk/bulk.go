// Package bulk does one action to many tasks: to named tasks, or to all tasks that match a filter. The
// command and the dashboard use it to requeue, delete, cancel, move, prioritise, reschedule and edit.
//
// Each task is changed in a step of its own, at the version at which it matched. A task that somebody has
// changed meanwhile is left alone and counted. Only the state of a task shows whether the action was done to
// it, so a run that was killed can be repeated and does the rest. A run never does it twice to a task, even
// if the task comes back into the state in which it matched.
package bulk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// Target is one task. Version is the version at which a person saw the task, or 0 for any version.
type Target struct {
	storage.Ref

	Version int64
}

// Target returns the target of an action that a person confirms for a task as it is shown. A Cancel is meant
// for the task whatever it does meanwhile: also if it starts, or fails and is due again.
func (a *Action) Target(t *storage.Task) Target {
	if a.Verb == Cancel {
		return Target{Ref: t.Ref}
	}
	return Target{Ref: t.Ref, Version: t.Version}
}

// fresh reports whether a task was enqueued after the preview that a person confirmed, and stale whether it
// was enqueued or changed after it.
func (r *Request) fresh(t *storage.Task) bool { return r.Seen != 0 && t.Created.UnixMicro() > r.Seen }

func (r *Request) stale(t *storage.Task) bool {
	return r.fresh(t) || r.Seen != 0 && r.Action.Target(t).Version > r.Seen
}

// Refs returns targets for refs, at any version.
func Refs(refs ...storage.Ref) []Target {
	targets := make([]Target, len(refs))
	for i, r := range refs {
		targets[i].Ref = r
	}
	return targets
}

// Request is an action and the tasks to which it is done.
type Request struct {
	Action Action
	// Tasks are named tasks. If there are none, the action is done to all tasks that Scan matches.
	Tasks []Target
	// Scan chooses tasks by its Filter, Queues and States. Its bounds and its cursor are ignored. If neither
	// States nor the filter names states, the states are those of Action.Default. States in which the action
	// cannot be done to a task are left out.
	Scan scan.Request
	// Seen is [Preview.Seen] of the preview that a person confirmed, 0 for none. Tasks that match and were
	// enqueued after it are left out. Named tasks that were enqueued after it count as Changed, and so do all
	// tasks that changed after it, except for a Cancel, which is done to them. The masters of a Redis Cluster
	// have a clock each: there "after" is as exact as these clocks agree.
	Seen int64
	// Limit is the largest number of tasks to which the action is done, 0 for no bound.
	Limit int
	// Rate is the largest number of tasks a second to which the action is done, 0 for no bound.
	Rate float64
	// Canary makes a Requeue begin with one task, the canary. The others follow if its first attempt completes,
	// snoozes, or runs for longer than a minute and than the canary's earlier attempts. Otherwise, and if more
	// than a tenth of the last 20 first attempts after it failed, the run ends with a [CanaryError].
	Canary bool
	// Backup gets each task before it is deleted, as a line of JSON with a [Record], and a second line if the
	// task was then not deleted: see [Record.NotDeleted]. A task has no second line if the outcome of its call
	// is not known. If Backup has a method Sync() error, as a file has, that method is called before each call
	// to the storage.
	Backup io.Writer
	// Progress gets the counts after each call to the storage, and while tasks are searched. It may be nil.
	// Only one goroutine calls it at a time.
	Progress func(Result)
}

// Result counts what happened to the tasks.
type Result struct {
	Matched int64 // tasks that were named or matched, without those to which the action was done before
	Done    int64 // tasks to which the action was done
	Asked   int64 // of these, running tasks that Cancel asked to stop, and that still run
	Changed int64 // tasks that somebody changed meanwhile, and that were left alone
	Gone    int64 // tasks that do not exist, or no longer
	Kept    int64 // tasks to which the action cannot be done: see Reasons
	// Reasons has the reasons for the first five tasks that were left alone: kept tasks, named tasks that do not
	// exist, and records of loads and imports that a filter matched. These records count nowhere.
	Reasons []Reason
	// Refs are the tasks to which the action was done: all of them if the tasks are named, or the first MaxRefs.
	Refs []storage.Ref
	// Searched is how many of Total tasks were searched, or were read if the tasks are named.
	Searched, Total int64
	// Canary is the task that was requeued first, zero until then. Passed reports that the others follow it.
	Canary storage.Ref
	Passed bool
}

// Reason is the reason for which the action cannot be done to a task.
type Reason struct {
	Ref  storage.Ref
	Text string
}

// maxReasons bounds Result.Reasons.
const maxReasons = 5

// MaxRefs bounds Result.Refs if the tasks are not named.
const MaxRefs = 100

// IDs returns Refs as texts.
func (r *Result) IDs() []string { return IDs(r.Refs) }

// IDs returns refs as texts.
func IDs(refs []storage.Ref) []string {
	ids := make([]string, len(refs))
	for i, ref := range refs {
		ids[i] = ref.String()
	}
	return ids
}

// check validates the request, and sets the states of its scan.
func (r *Request) check() error {
	if err := r.Action.Check(); err != nil {
		return err
	}
	switch {
	case r.Action.Verb == Edit && len(r.Action.Set) == 0 && len(r.Tasks) != 1:
		return storage.Invalid("tasks to edit", fmt.Sprintf("%d", len(r.Tasks)), "one task that is named")
	case r.Canary && r.Action.Verb != Requeue:
		return storage.Invalid("canary", string(r.Action.Verb), "a requeue")
	case r.Limit < 0:
		return storage.Invalid("limit", r.Limit, "0 or more")
	case r.Rate < 0 || math.IsNaN(r.Rate):
		return storage.Invalid("rate", r.Rate, "0 or more tasks a second")
	}
	for _, t := range r.Tasks {
		if err := storage.CheckRef(t.Ref); err != nil {
			return err
		}
	}
	if len(r.Tasks) > 0 {
		return nil
	}
	otherwise := r.Scan.States
	if otherwise == nil {
		otherwise = r.Action.Default()
	}
	named := r.Scan.Filter.States(otherwise...)
	able := r.Action.States()
	r.Scan.States = slices.DeleteFunc(able, func(s storage.State) bool { return !slices.Contains(named, s) })
	if len(r.Scan.States) == 0 { // the filter may name values of parameters, and the log would have the error
		return storage.Invalid("states of tasks to "+string(r.Action.Verb), wordsOf(named),
			"some of %s", wordsOf(r.Action.States()))
	}
	return nil
}

// wordsOf lists states as people read them.
func wordsOf(states []storage.State) string {
	words := make([]string, len(states))
	for i, s := range states {
		words[i] = filter.StateWord(s)
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// prepare checks a request. It leaves out a task that is named again, and replaces a moment of Reschedule
// that has passed by "now", so that waiting tasks count as tasks to which the action was done before.
func (r *Request) prepare(ctx context.Context, session *storage.Session) error {
	r.Tasks = distinct(r.Tasks)
	if err := r.check(); err != nil || r.Action.At.IsZero() {
		return err
	}
	now, err := session.Now(ctx)
	if err != nil {
		return fmt.Errorf("ask for the time: %w", err)
	}
	if !r.Action.At.After(now) {
		r.Action.At = time.Time{}
	}
	return nil
}

// distinct returns the targets, each task once.
func distinct(targets []Target) (once []Target) {
	seen := make(map[storage.Ref]bool, len(targets))
	for _, t := range targets {
		if !seen[t.Ref] {
			seen[t.Ref], once = true, append(once, t)
		}
	}
	return once
}

// Run does the action and counts. An error ends the run, and the result counts what was done until then. Run
// returns a *[storage.InvalidError] for bad input, and does nothing then. If the outcome of a call is not
// known, the error is a [storage.ErrUnknown], and a repeat of the run does the rest.
func Run(ctx context.Context, session *storage.Session, req Request) (Result, error) {
	if err := req.prepare(ctx, session); err != nil {
		return Result{}, err
	}
	w := &worker{req: req, session: session, chunk: storage.MaxPage}
	if req.Rate > 0 {
		w.chunk = max(1, int(min(float64(w.chunk), req.Rate/4)))
	}
	if req.Canary {
		w.canary = &canary{session: session}
	}
	err := session.ApplyEach(ctx, storage.EachTx{
		Tasks: w.tasks(ctx), Chunk: w.chunk, Before: w.before, After: w.after,
		Tx: func(t storage.Task) (storage.Tx, bool) {
			tx, ok := w.step(ctx, t)
			if ok && w.canary != nil && !w.result.Passed {
				w.err = w.lead(ctx, &t, tx)
				return tx, false
			}
			return tx, ok
		},
	})
	w.tell()
	if werr := w.finish(err); err == nil {
		err = werr
	}
	if err == nil {
		err = w.err
	}
	if err != nil {
		return w.result, fmt.Errorf("%s: %w", req.Action.Verb, err)
	}
	return w.result, nil
}

// worker is a run under way.
type worker struct {
	req     Request
	session *storage.Session
	chunk   int
	begun   time.Time
	acted   int // tasks to which the action was done or is being done
	result  Result
	backup  bytes.Buffer // lines of tasks that are about to be deleted, which are not written yet
	kept    bytes.Buffer // lines of tasks that were not deleted, which are not written yet
	torn    bool         // the backup may end within a line
	err     error        // ends the run
	canary  *canary      // nil without a canary

	recorded []storage.Ref // the tasks of the lines in backup
	unheard  []storage.Ref // tasks whose lines are written, and whose call has not succeeded

	seen       int64     // when the search began, as a version
	budget     int       // how many tasks may be searched, 0 or less for no bound
	until      time.Time // when the search ends, zero for no bound
	unsearched bool      // budget or until ended the search before the last task
}

// rest returns the bounds of the next step of the search: the default bounds of a scan, or what remains of
// the budget if that is less.
func (w *worker) rest() (tasks int, of time.Duration) {
	tasks, of = scan.DefaultTasks, scan.DefaultTime
	if w.budget > 0 {
		tasks = max(1, min(tasks, w.budget-int(w.result.Searched)))
	}
	if !w.until.IsZero() {
		of = max(1, min(of, time.Until(w.until)))
	}
	return tasks, of
}

// late ends the search if its budget or its time is used up, and reports whether it is. Only a search that
// has tasks left asks.
func (w *worker) late() bool {
	w.unsearched = w.budget > 0 && w.result.Searched >= int64(w.budget) ||
		!w.until.IsZero() && time.Now().After(w.until)
	return w.unsearched
}

// tell reports progress.
func (w *worker) tell() {
	if w.req.Progress != nil {
		w.req.Progress(w.result)
	}
}

func (w *worker) keep(ref storage.Ref, reason string) {
	w.result.Kept++
	w.reason(ref, reason)
}

func (w *worker) reason(ref storage.Ref, reason string) {
	if len(w.result.Reasons) < maxReasons {
		w.result.Reasons = append(w.result.Reasons, Reason{ref, reason})
	}
}

// tasks yields the tasks for the action, at the rate of the request and up to its limit.
func (w *worker) tasks(ctx context.Context) iter.Seq2[storage.Task, error] {
	from := w.matching(ctx)
	if len(w.req.Tasks) > 0 {
		from = w.named(ctx)
	}
	return func(yield func(storage.Task, error) bool) {
		w.begun = time.Now()
		for t, err := range from {
			if err == nil && !w.wait(ctx) {
				err = ctx.Err()
			}
			if err == nil && w.result.Passed {
				err = w.canary.check(ctx)
			}
			if err != nil {
				yield(t, err)
				return
			}
			if !yield(t, nil) || w.req.Limit > 0 && w.acted >= w.req.Limit || w.err != nil {
				return
			}
		}
	}
}

// wait waits until the rate allows another task. It reports false if ctx ends first.
func (w *worker) wait(ctx context.Context) bool {
	if w.req.Rate == 0 {
		return true
	}
	const longest = 100 * 365 * 24 * time.Hour
	due := min(float64(w.acted)/w.req.Rate, longest.Seconds())
	ahead := time.Until(w.begun.Add(time.Duration(due * float64(time.Second))))
	return ahead <= 0 || sleep.For(ctx, ahead)
}

// named yields the named tasks.
func (w *worker) named(ctx context.Context) iter.Seq2[storage.Task, error] {
	return func(yield func(storage.Task, error) bool) {
		w.result.Total = int64(len(w.req.Tasks))
		for _, target := range w.req.Tasks {
			if w.late() {
				return
			}
			w.result.Searched++
			t, err := w.session.Storage().Task(ctx, target.Ref)
			switch {
			case errors.Is(err, storage.ErrNotFound):
				w.result.Matched++
				w.result.Gone++
				w.reason(target.Ref, "there is no such task")
				continue
			case errors.Is(err, storage.ErrDamaged):
				w.result.Matched++
				w.keep(target.Ref, "its record is damaged")
				continue
			case err == nil && target.Version != 0 && target.Version != t.Version:
				w.result.Matched++
				w.result.Changed++
				continue
			}
			if !yield(t, err) || err != nil {
				return
			}
		}
	}
}

// matching yields the tasks that match.
func (w *worker) matching(ctx context.Context) iter.Seq2[storage.Task, error] {
	return func(yield func(storage.Task, error) bool) {
		req := w.req.Scan
		req.Limit, req.Cursor, req.Count = storage.MaxPage, "", false
		for {
			req.Tasks, req.Time = w.rest()
			page, err := scan.Next(ctx, w.session.Storage(), req)
			if err != nil {
				yield(storage.Task{}, err)
				return
			}
			if w.result.Total == 0 {
				w.result.Total = page.Total
			}
			w.seen = max(w.seen, page.Now.UnixMicro())
			w.result.Searched = page.Searched
			w.tell()
			for _, t := range page.Tasks {
				if !yield(t, nil) {
					return
				}
			}
			if req.Cursor = page.Cursor; page.Done() {
				return
			}
			if w.late() {
				return
			}
		}
	}
}

// step returns the Tx for one task, and reports false if there is none to apply. It counts the task unless
// the action was done to it before.
func (w *worker) step(ctx context.Context, t storage.Task) (storage.Tx, bool) {
	tx, done, err := w.req.Action.step(&t)
	if done {
		return tx, false
	}
	if w.req.fresh(&t) && len(w.req.Tasks) == 0 { // nobody saw it
		return tx, false
	}
	if errors.Is(err, recordErrors[t.Kind]) && len(w.req.Tasks) == 0 { // nobody meant it by the filter
		w.reason(t.Ref, err.Error())
		return tx, false
	}
	var kept keptError
	w.result.Matched++
	switch {
	case errors.As(err, &kept):
		w.keep(t.Ref, kept.Error())
		return tx, false
	case err != nil:
		w.err = err
		return tx, false
	case w.req.stale(&t):
		w.result.Changed++
		return tx, false
	case w.req.Action.Verb == Delete && w.req.Backup != nil && !w.record(ctx, t.Ref):
		return tx, false
	}
	w.acted++
	return tx, true
}

// lead requeues the canary, and waits until the others may follow. If the canary was changed meanwhile, the
// next task is the canary.
func (w *worker) lead(ctx context.Context, t *storage.Task, tx storage.Tx) error {
	completed, err := completedOf(ctx, w.session.Storage(), t.Queue)
	if err != nil {
		return err
	}
	applied, err := w.session.Apply(ctx, tx)
	if err != nil {
		return err
	}
	if w.after(*t, applied[0]); w.result.Done == 0 {
		return nil
	}
	w.result.Canary = t.Ref
	if err := w.canary.await(ctx, t, completed, w.tell); err != nil {
		return err
	}
	w.result.Passed, w.begun = true, time.Now() // the rate counts from here
	return nil
}

// record adds the line of a task to the backup. It reports false if the task is gone or cannot be read.
func (w *worker) record(ctx context.Context, ref storage.Ref) bool {
	t, err := w.session.Storage().Task(ctx, ref) // a listing leaves out the stack and the result
	switch {
	case errors.Is(err, storage.ErrNotFound):
		w.result.Gone++
		return false
	case err == nil:
		err = RecordOf(t).write(&w.backup)
	}
	if err != nil {
		w.err = fmt.Errorf("back up %s: %w", ref, err)
		return false
	}
	w.recorded = append(w.recorded, ref)
	return true
}

// before writes the backup before each call to the storage. The call before has ended.
func (w *worker) before() error {
	w.tell()
	w.unheard, w.recorded = w.recorded, nil
	return w.write(&w.kept, &w.backup)
}

// finish writes the last lines of the backup. failed is the error that ended the run: unless the outcome of
// the last call is not known, that call deleted no task.
func (w *worker) finish(failed error) error {
	if failed != nil && !errors.Is(failed, storage.ErrUnknown) {
		for _, ref := range w.unheard {
			w.notDeleted(ref)
		}
	}
	return w.write(&w.kept)
}

// notDeleted adds the line of a task that was not deleted.
func (w *worker) notDeleted(ref storage.Ref) {
	_ = json.NewEncoder(&w.kept).Encode(notDeleted{ref.Queue, ref.ID, true}) //nolint:errchkjson // a buffer takes it
}

// write writes lines to the backup. After a write that failed it writes nothing, because a restore refuses a
// backup that has a broken line before other lines.
func (w *worker) write(lines ...*bytes.Buffer) error {
	var text []byte
	for _, b := range lines {
		text = append(text, b.Bytes()...)
		b.Reset()
	}
	if len(text) == 0 || w.torn {
		return nil
	}
	_, err := w.req.Backup.Write(text)
	w.torn = err != nil
	if f, ok := w.req.Backup.(interface{ Sync() error }); ok && err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return nil
}

// after counts what happened to one task.
func (w *worker) after(t storage.Task, a storage.Applied) {
	w.unheard = nil // the call succeeded, and its other tasks follow
	var dep *storage.DependencyError
	switch errors.As(a.Err, &dep); {
	case a.Err == nil:
		if w.result.Done++; w.result.Passed {
			w.canary.follow(&t)
		}
		if len(w.req.Tasks) > 0 || len(w.result.Refs) < MaxRefs {
			w.result.Refs = append(w.result.Refs, t.Ref)
		}
		if w.req.Action.Verb == Cancel && t.State == storage.Pending {
			w.result.Asked++
		}
	case dep != nil && len(dep.Missing) > 0:
		w.result.Gone++
	case w.req.Action.Verb == Cancel && dep != nil && slices.Contains(dep.Barred, storage.Barred{
		Ref: t.Ref, State: storage.Pending,
	}):
		w.keep(t.Ref, "a transaction of its job keeps it locked")
	case dep != nil && (len(dep.Stale) > 0 || len(dep.Barred) > 0):
		w.result.Changed++
	default:
		w.keep(t.Ref, a.Err.Error())
	}
	if a.Err != nil && w.req.Backup != nil && w.req.Action.Verb == Delete {
		w.notDeleted(t.Ref)
	}
}
