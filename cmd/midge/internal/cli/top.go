package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/cmd/midge/internal/top"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

func (a *app) top() *cobra.Command {
	cmd := &cobra.Command{
		Use: "top", Short: "Watch queues and tasks live, and repair them",
		Long: "top shows what needs attention, and the queues with their rates and the time in\n" +
			"which each backlog clears. Enter opens the tasks of a queue, and from there one\n" +
			"task. p pauses or resumes a queue, r requeues tasks, c cancels tasks, / searches,\n" +
			"s sorts, and ? lists all keys. top asks before each change.",
		Args: noArguments,
	}
	every := span{}
	cmd.Flags().Var(&every, "every", "the time between two reads of the storage (default 1s)")
	cmd.RunE = a.long(func(ctx context.Context, _ []string) error {
		if !a.std.Terminal || !a.std.Person {
			return &exitError{code: BadInput, text: "top wants a terminal", next: "midge stats --watch"}
		}
		if every.Duration != 0 && every.Duration < leastWatch {
			return storage.Invalid("--every", every.Duration, "%v or more", leastWatch)
		}
		if err := a.open(ctx); err != nil {
			return err
		}
		accepted, err := a.accepted()
		if err != nil {
			return err
		}
		p := a.printer(zeroTime)
		p.Width = 0
		return top.Run(ctx, top.Config{
			Session: a.session, Target: a.target.String(), Every: every.Duration, Page: a.pageOf, Printer: *p,
			Audit: a.audit(), Reader: survey.NewReader(a.store, survey.Config{}),
			Bounds: survey.Bounds{Dead: survey.AnyNumber, Accepted: accepted},
		})
	})
	return cmd
}

// pageOf returns the page about a task for top.
func (a *app) pageOf(ctx context.Context, ref storage.Ref) (string, int64, error) {
	t, err := a.store.Task(ctx, ref)
	if errors.Is(err, storage.ErrNotFound) {
		return "", 0, errors.New(ref.String() + " not found: it has ended, and its retention expired")
	}
	if err != nil {
		return "", 0, err
	}
	now, err := a.session.Now(ctx)
	if err != nil {
		return "", 0, err
	}
	var page strings.Builder
	p := a.printer(now)
	p.Out, p.Width, p.Color = &page, 0, false
	v, err := a.why(ctx, ref)
	if err != nil {
		return "", 0, err
	}
	err = show.Fields(p, taskFields(p, t, payload.Why(t, v.String()))...)
	return page.String(), t.Version, err
}
