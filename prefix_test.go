package midge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// An error names the action and its subject once, wherever the error was found.
func TestAnErrorSaysEachThingOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		b.ended()
		none, dead, done := ref("default", "none"), ref("default", "dead"), ref("default", "completed")
		c, q := b.client, b.client.Queue("default")
		for want, err := range map[string]error{
			"midge: requeue default/none: task not found":                                      c.Requeue(b.ctx, none),
			"midge: delete default/none: task not found":                                       c.Delete(b.ctx, none),
			"midge: cancel default/none: task not found":                                       second(c.Cancel(b.ctx, none)),
			"midge: change default/none: task not found":                                       c.Change(b.ctx, none, midge.Priority(1)),
			"midge: change default/none: invalid option ID \"in a change\": want":              c.Change(b.ctx, none, midge.ID("x")),
			`midge: change default/dead: invalid kind "stranger": want the task's own, "work"`: c.ChangeJob(b.ctx, dead, stranger{1}),
			"midge: change default/dead: is dead":                                              c.Change(b.ctx, dead, midge.Priority(1)),
			"midge: change default/completed: is completed":                                    c.Change(b.ctx, done, midge.Priority(1)),
			"midge: cancel default/completed: is completed":                                    second(c.Cancel(b.ctx, done)),
			"midge: enqueue stranger: default/dead: another task has this id: it is dead, of kind work": second(
				c.Enqueue(b.ctx, stranger{1}, midge.ID("dead"))),
			"midge: enqueue work: default/dead: another task has this id: it is dead, of the same kind with other parameters": second(
				c.Enqueue(b.ctx, work{"secret"}, midge.ID("dead"))),
			"midge: enqueue work: default/dead is dead: the task of this id will not run": second(c.Enqueue(b.ctx, work{"dead"}, midge.ID("dead"))),
			`midge: enqueue work: invalid Priority 10: want`:                              second(c.Enqueue(b.ctx, work{}, midge.Priority(10))),
			`midge: enqueue: invalid job "int": want`:                                     second(c.Enqueue(b.ctx, 7)),
			`midge: requeue: invalid queue name "a b": want`:                              c.Requeue(b.ctx, ref("a b", "1")),
			`midge: await: invalid task id "": want`:                                      c.Await(b.ctx, ref("a", ""), nil),
			`midge: parse ref: invalid ref "mail": want`:                                  second(midge.ParseRef("mail")),
			"midge: decode result of default/none: the job has stored none":               midge.DecodeResult(midge.Task{Ref: none}, new(int)),
			"midge: pause queue mail: there is no such queue":                             c.Queue("mail").Pause(b.ctx),
			`midge: pause queue: invalid queue name "a b": want`:                          c.Queue("a b").Pause(b.ctx),
			"midge: run schedule in queue default: no schedule is named hourly":           second(q.RunSchedule(b.ctx, "hourly")),
			`midge: list tasks of queue default: invalid limit 201: want`:                 second(q.Page(b.ctx, midge.Dead, "", 201)),
			`midge: requeue in queue default: invalid state "pending": want`:              second(q.RequeueAll(b.ctx, midge.Pending, nil)),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(want, "want") && err.Error() != want {
				b.Errorf("got %v,\nwant %s", err, want)
			}
		}
	})
}

// badly is a job whose type declares the values that the test sets.
type badly struct{ X int }

var badlyDeclared midge.Options

func (badly) Run(context.Context) error { return nil }
func (badly) Options() midge.Options    { return badlyDeclared }

func TestRegisterRefusesWhatEnqueueDoes(t *testing.T) {
	defer func() { badlyDeclared = midge.Options{} }()
	for want, options := range map[string]midge.Options{
		`midge_test.badly: invalid Options.Queue "a b": want`:                   {Queue: "a b"},
		`midge_test.badly: invalid Options.Priority 10: want`:                   {Priority: 10},
		`midge_test.badly: invalid Options.Keep.For 1ns: want`:                  {Keep: midge.Keep{For: 1}},
		`midge_test.badly: invalid Unique.By "Y": want`:                         {Unique: &midge.Unique{By: []string{"Y"}}},
		`midge_test.badly: invalid header name "a\xff": want`:                   {Headers: map[string]string{"a\xff": "b"}},
		`midge_test.badly: invalid name in Options.Headers "midge.tick": want `: {Headers: map[string]string{"midge.tick": "b"}},
	} {
		badlyDeclared = options
		r, err := midge.NewRunner(untouched{}, midge.RunnerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := midge.NewClient(untouched{}, midge.ClientConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for action, err := range map[string]error{
			"register": midge.Register[badly](r), "enqueue": second(c.Enqueue(t.Context(), badly{})), "periodic": r.Periodic(midge.Every(time.Hour), badly{}),
		} {
			var invalid *midge.InvalidError
			if !errors.As(err, &invalid) || !strings.HasPrefix(err.Error(), "midge: "+action+": "+want) {
				t.Errorf("%s: got %v,\nwant %s", action, err, want)
			}
		}
	}
}

func TestMidgeNamesItselfOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			if err := midge.CompleteWith(ctx, b.store); err != nil {
				return err
			}
			return midge.SetResult(ctx, 1)
		})
		cancelled := b.enqueue("a", midge.In(time.Hour), midge.KeepFor(time.Hour))
		if _, err := b.client.Cancel(b.ctx, cancelled.Ref); err != nil {
			b.Fatal(err)
		}
		stopped, stop := context.WithCancelCause(b.ctx)
		stop(midge.ErrShutdown)
		unkept := storage.Ref{Queue: "default", ID: "unkept"}
		_, many := b.client.EnqueueMany(b.ctx, []midge.Item{midge.New(work{}), midge.New(5)})
		for want, err := range map[string]error{
			"midge: await default/unkept: there is no such task: it never was, or has ended and is not kept, see KeepFor and UntilRead": b.client.Await(b.ctx, unkept, nil),
			"midge: read task default/unkept: task not found":                                second(b.client.Task(b.ctx, unkept)),
			"midge: await " + cancelled.Ref.String() + ": task cancelled":                    b.client.Await(b.ctx, cancelled.Ref, nil),
			"midge: await default/unkept: the runner is shutting down":                       b.client.Await(stopped, unkept, nil),
			`midge: await default/unkept: invalid result "nil *int": want nil, or a pointer`: b.client.Await(b.ctx, unkept, (*int)(nil)),
			`midge: await default/unkept: invalid result "int": want nil, or a pointer`:      b.client.Await(b.ctx, unkept, 5),
			"midge: complete with: the context is not that of a running job":                 midge.CompleteWith(b.ctx, b.store),
			"midge: set result: the context is not that of a running job":                    midge.SetResult(b.ctx, 1),
			`midge: 1 of 2 items were refused, items[1]: enqueue: invalid job "int": ` +
				"want a struct, or a pointer to one": many,
			"midge: register work: the runner has been started":                             midge.Handle(b.runner, func(context.Context, work) error { return nil }),
			"midge: periodic default/work: the runner has been started":                     b.runner.Periodic(midge.Every(time.Hour), work{}),
			"midge: the runner has been started: it can be started once; make a new runner": b.runner.Run(b.ctx),
		} {
			if err == nil || err.Error() != want {
				b.Errorf("got %v,\nwant %s", err, want)
			}
		}
		if err := b.client.Await(stopped, unkept, nil); !errors.Is(err, midge.ErrShutdown) {
			b.Errorf("got %v, want it to wrap the cause", err)
		}
	})
}
