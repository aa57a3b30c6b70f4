package midge_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
)

// mailer is a job before its kind was renamed.
type mailer struct{ To string }

func (mailer) Kind() string { return "mailer" }

// Run does nothing.
func (mailer) Run(context.Context) error { return nil }

// courier is mailer with its current name.
type courier struct{ To string }

func (courier) Aliases() []string { return []string{"mailer", "mail_sender"} }

func TestTasksOfAnAliasRunOnTheTypeOfToday(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		b.runner = b.newRunner(b.store, midge.RunnerConfig{Logger: logger}, nil)
		var to, kind string
		must(midge.Handle(b.runner, func(ctx context.Context, c courier) error {
			info, _ := midge.Current(ctx)
			to, kind = c.To, info.Kind
			return errors.New("boom")
		}))
		go func() { b.done <- b.runner.Run(b.ctx) }()
		task, err := b.client.Enqueue(b.ctx, mailer{"ann"})
		must(err)
		b.after(time.Second)
		if to != "ann" || kind != "courier" {
			t.Errorf("got %q as %q, want the task run as a courier", to, kind)
		}
		if len(lines("courier "+task.Ref.String())) == 0 || len(lines("mailer")) > 0 {
			t.Errorf("got %q, want the name of today", lines(""))
		}
		runners, err := b.client.Runners(b.ctx)
		if must(err); !slices.Equal(runners[0].Kinds, []string{"courier", "mail_sender", "mailer"}) {
			t.Errorf("got %v, want the aliases among the kinds", runners[0].Kinds)
		}
		var job courier
		if err := midge.Decode(b.task(task.Ref), &job); err != nil || job.To != "ann" {
			t.Errorf("got %+v, %v; want the parameters", job, err)
		}
		must(b.client.ChangeJob(b.ctx, task.Ref, courier{"bob"}))
		var invalid *midge.InvalidError
		if err := b.client.ChangeJob(b.ctx, task.Ref, work{}); !errors.As(err, &invalid) {
			t.Errorf("another kind: got %v, want an *InvalidError", err)
		}
	})
}

func TestARollingRenameLetsNoDuplicateIn(t *testing.T) {
	bubble(t, func(b *bench) {
		for _, u := range []midge.Unique{{}, {By: []string{"To"}}, {Key: "k"}} {
			first, err := b.client.Enqueue(b.ctx, mailer{"ann"}, u)
			must(err)
			again, err := b.client.Enqueue(b.ctx, courier{"ann"}, u)
			if must(err); !again.Existing || again.Ref != first.Ref {
				t.Errorf("%+v: got %+v, want the task of the earlier name", u, again)
			}
		}
		for _, declare := range []func(r *midge.Runner) error{
			func(r *midge.Runner) error { return r.Periodic(midge.Every(time.Hour), mailer{"ann"}) },
			func(r *midge.Runner) error { return r.Periodic(midge.Every(time.Hour), courier{"ann"}) },
		} {
			r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
			must(declare(r))
			go func() { b.done <- r.Run(b.ctx) }()
			b.after(time.Minute)
		}
		schedules, err := b.client.Queue("default").Schedules(b.ctx)
		if must(err); len(schedules) != 1 || schedules[0].Name != "mailer" || schedules[0].Kind != "courier" {
			t.Errorf("got %+v, want one, as it is declared today", schedules)
		}
		b.stop()
		must(errors.Join(<-b.done, <-b.done))
	})
}

// letter is a job before one of its fields was renamed.
type letter struct {
	To   string
	Body string
}

// parcel is letter with its current field names.
type parcel struct {
	Address string `midge:"was=To"`
	Body    string
}

func (parcel) Aliases() []string { return []string{"letter"} }

func TestARenamedFieldIsReadAndStaysUnique(t *testing.T) {
	bubble(t, func(b *bench) {
		for old, now := range map[*midge.Unique]*midge.Unique{
			{}: {}, {By: []string{"To"}}: {By: []string{"Address"}}, {By: []string{"To", "Body"}}: {By: []string{"Address", "Body"}},
		} {
			first, err := b.client.Enqueue(b.ctx, letter{"ann", "hello"}, *old)
			must(err)
			again, err := b.client.Enqueue(b.ctx, parcel{"ann", "hello"}, *now)
			if must(err); !again.Existing || again.Ref != first.Ref {
				t.Errorf("%+v: got %+v, want the task of before", now, again)
			}
			var job parcel
			if err := midge.Decode(b.task(first.Ref), &job); err != nil || job != (parcel{"ann", "hello"}) {
				t.Errorf("got %+v, %v; want the field under its name of today", job, err)
			}
		}
		var invalid *midge.InvalidError
		for _, job := range []any{twins{}, twinned{}} {
			if _, err := b.client.Enqueue(b.ctx, job); !errors.As(err, &invalid) {
				t.Errorf("%T with an earlier name that another field has: got %v, want an *InvalidError", job, err)
			}
		}
	})
}

type (
	tagged    struct{ V []mistagged }
	mistagged struct {
		To string `midge:"wsa=Recipient"`
	}
	wired   struct{ Done chan int }
	calling struct{ V map[string]func() }
	dialled struct{ V []struct{ Phase complex64 } }
)

func (dialled) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

// refusedAlike reports an error unless a runner and a client refuse a job with one *InvalidError.
func refusedAlike[J any](b *bench, want string) {
	invalid, same := (*midge.InvalidError)(nil), (*midge.InvalidError)(nil)
	runner, err := midge.NewRunner(b.store, midge.RunnerConfig{})
	must(err)
	err = midge.Handle(runner, func(context.Context, J) error { return nil })
	_, err2 := b.client.Enqueue(b.ctx, *new(J))
	if !errors.As(err, &invalid) || !errors.As(err2, &same) || *invalid != *same || !strings.Contains(err.Error(), want) {
		b.Errorf("%T: Handle got %v, Enqueue got %v; want one *InvalidError with %q", *new(J), err, err2, want)
	}
}

func TestATypeThatCannotBeStoredIsRefusedAtRegistration(t *testing.T) {
	bubble(t, func(b *bench) {
		refusedAlike[tagged](b, "tag midge of midge_test.mistagged.To \"wsa=Recipient\"")
		refusedAlike[wired](b, "field Done of midge_test.wired")
		refusedAlike[calling](b, "field V[] of midge_test.calling")
		refusedAlike[dialled](b, "field V[].Phase of midge_test.dialled")
	})
}

// twins has a field whose earlier name is also the name of another field.
type twins struct {
	A string `midge:"was=B"`
	B string
}

// twinned holds such structs.
type twinned struct{ Lines []map[string]*twins }

// vain has its own kind among its aliases.
type vain struct{ X int }

func (vain) Aliases() []string { return []string{"vain"} }

// unnamed has an alias that is not a valid name.
type unnamed struct{ X int }

func (unnamed) Aliases() []string { return []string{"a b"} }

// odder has a method Aliases with another signature.
type odder struct{ X int }

func (odder) Aliases() string { return "old" }

func TestWrongAliasesAreRefused(t *testing.T) {
	c, err := midge.NewClient(untouched{}, midge.ClientConfig{})
	must(err)
	for want, job := range map[string]any{
		`midge: enqueue: midge_test.vain: invalid alias "vain"`: vain{}, `midge: enqueue: midge_test.unnamed: invalid alias "a b"`: unnamed{},
		`midge: enqueue: invalid job type "midge_test.odder"`: odder{},
	} {
		var invalid *midge.InvalidError
		if _, err := c.Enqueue(t.Context(), job); !errors.As(err, &invalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	r, err := midge.NewRunner(untouched{}, midge.RunnerConfig{})
	must(err)
	must(midge.Register[mailer](r))
	if err := midge.Handle(r, func(context.Context, courier) error { return nil }); err == nil || !strings.Contains(err.Error(), `kind "mailer": want each kind registered once`) {
		t.Errorf("got %v, want both types named", err)
	}
}
