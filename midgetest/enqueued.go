package midgetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/storage"
)

// Enqueued is a task that was enqueued and has not ended, with its job.
type Enqueued[J any] struct {
	midge.Task

	Job J
}

// RequireEnqueued returns the one task with a job of type J that matches. It fails the test at once
// if there is none, or more than one. With [Times] it requires that number of tasks and returns
// the first of them. The failure lists the enqueued tasks. A task of the kind of J whose parameters do
// not fit J fails the test too, because it may match, unless a match other than [Params] and [Where]
// excludes it.
//
// It reads the tasks of all queues that have not ended: tasks that wait, are scheduled, wait for
// a retry or run. A client made by [midge.Client.With] also sees the tasks that the open
// transaction has enqueued, on PostgreSQL and SQLite.
func RequireEnqueued[J any](t testing.TB, client *midge.Client, matches ...Match) Enqueued[J] {
	t.Helper()
	s := searchOf[J](t, client, matches)
	times := 1
	for _, m := range matches {
		if m.counts {
			times = m.times
		}
	}
	found := found[J](s)
	if unread := s.unread(); len(found) != times || unread != "" {
		t.Fatalf("midgetest: want %s, found %d%s%s", s.wanted(times), len(found), unread, s.listing())
	}
	if times == 0 {
		return Enqueued[J]{}
	}
	return found[0]
}

// RequireJob is [RequireEnqueued] for tasks with the parameters of job, as [Params] compares them.
// The type need not be named:
//
//	midgetest.RequireJob(t, client, SendWelcome{UserID: 42})
func RequireJob[J any](t testing.TB, client *midge.Client, job J, matches ...Match) Enqueued[J] {
	t.Helper()
	return RequireEnqueued[J](t, client, append([]Match{Params(job)}, matches...)...)
}

// RequireNone fails the test at once if a task with a job of type J matches; see
// [RequireEnqueued]. The failure lists what was enqueued.
func RequireNone[J any](t testing.TB, client *midge.Client, matches ...Match) {
	t.Helper()
	RequireEnqueued[J](t, client, append(slices.Clone(matches), Times(0))...)
}

// All returns the tasks with jobs of type J that match, in the order in which they were enqueued;
// see [RequireEnqueued]. Tasks of the same moment, as all are while the clock of a kit stands still,
// come by their ids: ids that midge chooses ascend. It ignores [Times].
func All[J any](t testing.TB, client *midge.Client, matches ...Match) []Enqueued[J] {
	t.Helper()
	return found[J](searchOf[J](t, client, matches))
}

// Match selects tasks. If there are several, a task must match them all.
type Match struct {
	text   string
	typ    reflect.Type // of the jobs that it can match; nil for any
	counts bool         // times is set
	times  int
	err    error                           // an invalid argument
	read   func(ctx context.Context) Match // returns the actual match; nil if this is it
	// why returns what differs, "" if the task matches. Without typ, job may be nil: it does not fit.
	why func(t *midge.Task, job any) string
}

// Params matches the tasks whose job has these parameters after storing and reading them; fields
// that are not exported are not compared.
func Params[J any](job J) Match {
	return Match{
		text: fmt.Sprintf("the parameters %+v", job), typ: reflect.TypeFor[J](),
		why: func(t *midge.Task, got any) string {
			want := new(J)
			c := codec.ParametersOf(reflect.TypeFor[J]())
			data, err := c.Encode(t.Encoding, job)
			if err == nil {
				err = c.Decode(t.Encoding, data, want)
			}
			switch {
			case err != nil:
				return "the parameters wanted cannot be stored: " + err.Error()
			case !reflect.DeepEqual(*want, got):
				return "other parameters"
			}
			return ""
		},
	}
}

// Where matches the tasks whose job accepts returns true for.
func Where[J any](accepts func(job J) bool) Match {
	m := Match{text: "a job that Where accepts", typ: reflect.TypeFor[J]()}
	if accepts == nil {
		m.err = storage.Invalid("Where", "nil", "a function of a job")
	}
	m.why = func(_ *midge.Task, job any) string {
		if j, _ := job.(J); !accepts(j) {
			return "Where does not accept it"
		}
		return ""
	}
	return m
}

// Times requires n tasks instead of one; see [RequireEnqueued].
func Times(n int) Match {
	m := Match{counts: true, times: n}
	if n < 0 {
		m.err = storage.Invalid("Times", strconv.Itoa(n), "0 or more")
	}
	return m
}

// search holds the matches that a call of this package searches for, and the tasks that it searches.
type search struct {
	name    string // of the job's type
	matches []Match
	tasks   []seen
}

// seen is a task, with the reason why it does not match.
type seen struct {
	midge.Task

	job    any // nil if it is of another type, or does not fit
	differ string
	unread bool // it does not fit, so that it may match
}

// searchOf lists all tasks that have not ended and decides for each whether it matches.
func searchOf[J any](t testing.TB, client *midge.Client, matches []Match) *search {
	t.Helper()
	typ := reflect.TypeFor[J]()
	ctx := context.WithoutCancel(t.Context()) // the context of t has ended in a Cleanup
	s := &search{name: typ.String()}
	if client == nil {
		t.Fatalf("midgetest: invalid client nil: want one made by midge.NewClient")
	}
	if typ.Kind() != reflect.Struct {
		t.Fatalf("midgetest: invalid job type %v: want a struct, as it was registered", typ)
	}
	for _, m := range matches {
		if m.read != nil {
			m = m.read(ctx)
		}
		s.matches = append(s.matches, m)
		if m.err != nil {
			t.Fatalf("midgetest: %v", m.err)
		}
		if m.typ != nil && m.typ != typ {
			t.Fatalf("midgetest: a match of %v was given where tasks of %v are looked for", m.typ, typ)
		}
	}
	tasks, err := live(ctx, client)
	if err != nil {
		t.Fatalf("midgetest: read what was enqueued: %v", err)
	}
	for _, task := range tasks {
		one := seen{Task: task}
		job := new(J)
		switch err := midge.Decode(task, job); {
		case err == nil:
			one.job, one.differ = *job, s.differs(&task, *job)
		case isOther(err):
			one.differ = "another kind"
		default:
			one.differ = fmt.Sprintf("its parameters do not fit %v: %v", typ, err)
			one.unread = s.differs(&task, nil) == ""
		}
		s.tasks = append(s.tasks, one)
	}
	return s
}

// isOther reports whether a task is of another kind than the type that it was decoded into.
func isOther(err error) bool {
	var invalid *midge.InvalidError
	return errors.As(err, &invalid) && invalid.What == "kind"
}

// live returns the tasks of all queues that have not ended, in the order in which they were
// enqueued.
func live(ctx context.Context, client *midge.Client) ([]midge.Task, error) {
	var all []midge.Task
	for queue, err := range client.Queues(ctx, "") {
		if err != nil {
			return nil, err
		}
		for _, state := range storage.StatesWhere(storage.State.Live) {
			for task, err := range client.Queue(queue).Tasks(ctx, state) {
				if err != nil {
					return nil, err
				}
				if task.Cursor == nil {
					all = append(all, task)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b midge.Task) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// differs returns how a task differs, "" if it matches. If job is nil, because it does not fit, differs
// ignores the matches that depend on it.
func (s *search) differs(t *midge.Task, job any) string {
	for _, m := range s.matches {
		if m.why == nil || job == nil && m.typ != nil {
			continue
		}
		if why := m.why(t, job); why != "" {
			return why
		}
	}
	return ""
}

// found returns the tasks that match.
func found[J any](s *search) []Enqueued[J] {
	var all []Enqueued[J]
	for _, one := range s.tasks {
		if job, ok := one.job.(J); ok && one.differ == "" {
			all = append(all, Enqueued[J]{Task: one.Task, Job: job})
		}
	}
	return all
}

// unread counts in words the tasks that may match, because they do not fit. It returns "" for none.
func (s *search) unread() string {
	n := 0
	for _, one := range s.tasks {
		if one.unread {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d whose parameters do not fit", n)
}

// wanted describes the tasks that are searched for.
func (s *search) wanted(times int) string {
	text := fmt.Sprintf("%d tasks of %s", times, s.name)
	switch times {
	case 0:
		text = "no task of " + s.name
	case 1:
		text = "1 task of " + s.name
	}
	with := " with "
	for _, m := range s.matches {
		if m.text != "" {
			text += with + m.text
			with = " and "
		}
	}
	return text
}

// These constants bound a listing.
const (
	listedMost     = 20
	parametersMost = 300 // bytes
)

// listing lists what was enqueued: first the tasks that match, then the other tasks of the type,
// then the rest.
func (s *search) listing() string {
	if len(s.tasks) == 0 {
		return "; nothing was enqueued that has not ended"
	}
	rank := func(one seen) int {
		switch {
		case one.differ == "":
			return 0
		case one.job != nil, one.unread:
			return 1
		}
		return 2
	}
	tasks := slices.Clone(s.tasks)
	slices.SortStableFunc(tasks, func(a, b seen) int { return cmp.Compare(rank(a), rank(b)) })
	text := strings.Builder{}
	text.WriteString("; enqueued and not ended:")
	for i, one := range tasks {
		if i == listedMost {
			fmt.Fprintf(&text, "\n  and %d more", len(tasks)-i)
			break
		}
		text.WriteString("\n  " + one.line())
	}
	return text.String()
}

// line describes a task in a listing.
func (one *seen) line() string {
	text := fmt.Sprintf("%s %s %s", one.Kind, one.Ref, one.State)
	if !one.Due.IsZero() {
		text += " until " + one.Due.Format("2006-01-02T15:04:05.999999Z07:00")
	}
	if one.Partition != "" {
		text += " partition " + one.Partition
	}
	if n := one.Cost.N(); n != 1 {
		text += fmt.Sprintf(" cost %d", n)
	}
	if one.Priority != 0 {
		text += fmt.Sprintf(" priority %d", one.Priority)
	}
	text += " " + storage.PrintableText(one.parameters(), parametersMost)
	if one.job != nil && one.differ != "" || one.job == nil && one.differ != "another kind" {
		text += ": " + one.differ
	}
	return text
}

// parameters prints the parameters; those of a job of another type with their stored names.
func (one *seen) parameters() string {
	if one.job != nil {
		return fmt.Sprintf("%+v", one.job)
	}
	var fields any
	if err := codec.Decode(one.Encoding, one.Payload, &fields); err != nil {
		return fmt.Sprintf("(%d bytes of %s)", len(one.Payload), one.Encoding)
	}
	return fmt.Sprintf("%v", fields)
}
