package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// sorted returns the names of headers in order.
func sorted(headers map[string]string) []string { return slices.Sorted(maps.Keys(headers)) }

// value formats a value of a task for people: as JSON, or as the reason why it cannot be decoded.
func value(part payload.Part) string {
	if len(part.Data) == 0 {
		return ""
	}
	text, err := part.JSON()
	if err != nil {
		return show.Text(err.Error())
	}
	return string(text)
}

// progress formats the progress of a task for people. Progress that counts has its share and the time left.
func progress(p *show.Printer, t storage.Task) string {
	text := value(payload.Progress(t))
	c, ok := payload.CountedOf([]byte(text))
	if !ok {
		return text
	}
	text += fmt.Sprintf("\n%.0f%%", math.Floor(100*c.Share()))
	if left := c.Left(t, p.Now); left > 0 {
		text += ", about " + show.Span(left) + " left"
	}
	return text
}

// oneTask accepts arguments that name one task. They may be the words of a line of a log, but not several
// refs.
func oneTask(cmd *cobra.Command, args []string) error {
	const what = "one task: its ref, its id, or a line of a log"
	isRef := func(word string) bool {
		_, err := refOf(word)
		return err == nil
	}
	if len(args) > 1 && !slices.ContainsFunc(args, func(word string) bool { return !isRef(word) }) {
		return usage(cmd, "unexpected argument %q: %s wants %s", args[1], cmd.CommandPath(), what)
	}
	return wants(1, -1, what)(cmd, args)
}

func (a *app) taskShow() *cobra.Command {
	return &cobra.Command{
		Use: "show TASK", Short: "Show everything about a task",
		Long: "show shows a task with its parameters, attempts, last stack, progress and\n" +
			"result. Name the task by its ref (queue/id), its id, or a whole line of a log.",
		Example: "  midge task show mail/01JABCDEF\n  midge task show 01JABCDEF\n  midge task show " +
			"'{\"level\":\"error\",\"queue\":\"mail\",\"task\":\"01JABCDEF\"}'",
		Args: oneTask,
		RunE: a.quick(func(ctx context.Context, args []string) error {
			if err := a.open(ctx); err != nil {
				return err
			}
			t, err := a.find(ctx, strings.Join(args, " "))
			if err != nil {
				return err
			}
			p, err := a.shown(ctx)
			if err != nil {
				return err
			}
			if !p.People() {
				return p.One(t.Ref.String(), show.TaskOf(t))
			}
			why := ""
			// the task may be gone by now
			if v, err := storage.Why(ctx, a.store, t.Ref); err == nil && !t.State.Ended() {
				why = payload.Why(t, v.String())
			}
			if err := show.Fields(p, taskFields(p, t, why)...); err != nil {
				return err
			}
			a.notef("\n%s", nextOf(t))
			return nil
		}),
	}
}

// nextOf returns the line with the command that a user may type after seeing a task.
func nextOf(t storage.Task) string {
	ref := t.Ref.String()
	switch {
	case storage.RecordKind(t.Kind):
		return "next: " + recordNext(t.Kind, t.Ref)
	case t.State == storage.Dead:
		if scan.Discarded(t) { // a requeue alone would fail again
			return "next: midge task edit " + ref + " --requeue"
		}
		return "next: midge task requeue " + ref + "   (or edit it first: midge task edit " + ref + ")"
	case t.State.Ended():
		return "next: midge task requeue " + ref
	case t.State == storage.Pending:
		return "next: midge task cancel " + ref
	}
	return "next: midge task why " + ref
}

// find finds the task that a text names: by a ref, by an id, or in a line of a log.
func (a *app) find(ctx context.Context, text string) (storage.Task, error) {
	tried, ids := scan.Mentioned(text)
	for _, ref := range tried {
		if t, err := a.store.Task(ctx, ref); !errors.Is(err, storage.ErrNotFound) {
			return t, err
		}
	}
	if text = strings.TrimSpace(text); slices.Contains(ids, text) {
		return a.findID(ctx, text)
	}
	if len(tried) == 0 {
		return storage.Task{}, storage.Invalid("task", text,
			"a ref such as mail/01JABCDEF, an id, or a line of a log that has one")
	}
	return storage.Task{}, a.noTask(tried[0].String())
}

// noTask returns the error for a task that does not exist, with the possible reasons.
func (a *app) noTask(name string) error {
	return notFound("midge task ls 'state:all id:"+name[strings.LastIndexByte(name, '/')+1:]+"'",
		"task %q not found on %s: it never existed, or its retention expired", show.Text(name), a.target)
}

// findID finds the only task with an id, in any queue.
func (a *app) findID(ctx context.Context, id string) (storage.Task, error) {
	var refs []storage.Ref
	for queue, err := range storage.EachQueue(ctx, a.store, "") {
		if err != nil {
			return storage.Task{}, err
		}
		refs = append(refs, storage.Ref{Queue: queue, ID: id})
	}
	tasks := make([]storage.Task, len(refs))
	err := survey.Concurrently(len(refs), func(i int) (err error) {
		if tasks[i], err = a.store.Task(ctx, refs[i]); errors.Is(err, storage.ErrNotFound) {
			return nil
		}
		return err
	})
	if err != nil {
		return storage.Task{}, err
	}
	found := slices.DeleteFunc(tasks, func(t storage.Task) bool { return t.ID == "" })
	switch len(found) {
	case 0:
		return storage.Task{}, a.noTask(id)
	case 1:
		return found[0], nil
	}
	return storage.Task{}, badInput("%d queues have a task %s: %s and %s among them; name one by its ref",
		len(found), id, found[0].Ref, found[1].Ref)
}

// refOf parses a ref, such as mail/01JABCDEF.
func refOf(text string) (storage.Ref, error) {
	queue, id, ok := strings.Cut(text, "/")
	ref := storage.Ref{Queue: queue, ID: id}
	if !ok || storage.CheckRef(ref) != nil {
		return storage.Ref{}, storage.Invalid("task", text, "a ref such as mail/01JABCDEF")
	}
	return ref, nil
}

func (a *app) taskResult() *cobra.Command {
	return &cobra.Command{
		Use: "result TASK", Short: "Print the result of a completed task as JSON", Args: wants(1, 1, "a task"),
		RunE: a.quick(func(ctx context.Context, args []string) error {
			if err := a.open(ctx); err != nil {
				return err
			}
			t, err := a.find(ctx, args[0])
			switch {
			case err != nil:
				return err
			case t.State.Ended() && t.State != storage.Completed:
				return &exitError{
					code: Failed, text: t.Ref.String() + " has no result: it is " + filter.TaskWord(&t),
					next: "midge task show " + t.Ref.String(),
				}
			case t.State != storage.Completed:
				return &exitError{
					code: Failed, text: t.Ref.String() + " has no result: it is " + filter.TaskWord(&t),
					next: "midge task wait " + t.Ref.String(),
				}
			case t.Result == nil:
				return &exitError{code: Failed, text: t.Ref.String() + " is completed, and wrote no result"}
			}
			text, err := payload.Result(t).JSON()
			if err != nil {
				return err
			}
			_, err = a.std.Out.Write(payload.Printable(append(text, '\n')))
			return err
		}),
	}
}

// The shortest and the longest pause between two reads of a task that is awaited.
const (
	waitFirst = 20 * time.Millisecond
	waitMost  = time.Second
)

func (a *app) taskWait() *cobra.Command {
	return &cobra.Command{
		Use: "wait TASK...", Short: "Wait until tasks have ended",
		Long: "wait waits until all tasks have ended. It exits with 0 if all tasks completed,\n" +
			"with 1 if a task is dead or cancelled, and with 3 if a task does not exist or\n" +
			"its retention expired. --timeout bounds the wait.",
		Example: "  midge task wait --timeout 5m mail/01JABCDEF", Args: wants(1, -1,
			"the refs of tasks, or - for refs on standard input"),
		RunE: a.long(func(ctx context.Context, args []string) error {
			refs, err := a.refs(args)
			if err != nil {
				return err
			}
			if err := a.open(ctx); err != nil {
				return err
			}
			return a.await(ctx, refs)
		}),
	}
}

// refs parses the refs of the command line, or of standard input.
func (a *app) refs(args []string) ([]storage.Ref, error) {
	texts, err := a.arguments(args)
	if err != nil {
		return nil, err
	}
	refs := make([]storage.Ref, len(texts))
	for i, text := range texts {
		if refs[i], err = refOf(text); err != nil {
			return nil, err
		}
	}
	return refs, nil
}

// await waits for the end of tasks, one after the other. It returns an error if a task did not complete.
func (a *app) await(ctx context.Context, refs []storage.Ref) error {
	failed := 0
	for _, ref := range refs {
		t, err := a.awaitOne(ctx, ref)
		if err != nil {
			return err
		}
		a.notef("%s %s", ref, t.State)
		if t.State != storage.Completed {
			failed++
		}
	}
	if failed > 0 {
		return &exitError{code: Failed, text: show.Count(int64(failed), "task") + " did not complete"}
	}
	return nil
}

func (a *app) awaitOne(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	seen := false
	for pause := waitFirst; ; pause = min(pause+pause/2, waitMost) {
		t, err := a.store.Task(ctx, ref)
		switch {
		case err == nil && t.State.Ended():
			return t, nil
		case errors.Is(err, storage.ErrNotFound) && seen:
			return t, notFound("", "%s has ended, and its retention expired", ref)
		case errors.Is(err, storage.ErrNotFound):
			return t, a.noTask(ref.String())
		case err != nil:
			return t, err
		}
		seen = true
		select {
		case <-ctx.Done():
			return t, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// indented formats JSON for a user who edits it.
func indented(text []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, text, "", "  ") != nil {
		return text
	}
	return append(b.Bytes(), '\n')
}
