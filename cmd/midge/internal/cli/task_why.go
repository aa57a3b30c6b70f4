package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/internal/shell"
	"github.com/midgehq/midge/storage"
)

// apart is the time between the two samples that show how fast the tasks of a queue are done.
const apart = 500 * time.Millisecond

func (a *app) taskWhy() *cobra.Command {
	return &cobra.Command{
		Use: "why TASK", Short: "Explain why a task is not running",
		Long: "why explains the present state of a task or a schedule in a sentence, and names\n" +
			"the command to type next. If the task waits in line, why estimates when the task\n" +
			"starts.",
		Example: "  midge task why mail/01JABCDEF", Args: oneTask,
		RunE: a.quick(func(ctx context.Context, args []string) error {
			if err := a.open(ctx); err != nil {
				return err
			}
			t, err := a.meant(ctx, strings.Join(args, " "))
			if err != nil {
				return err
			}
			v, err := a.why(ctx, t.Ref)
			if err != nil {
				return err
			}
			p, name := a.printer(v.Now), schedule.Name(v.Ref) // the ref, if it is no schedule
			text, next := payload.Why(t, v.String()), whyNext(v)
			if payload.Records(t) {
				v.Cause, v.Until = recordCauses[v.Kind], time.Time{}
			}
			if !p.People() {
				return p.One(name, show.WhyOf(v, text, next))
			}
			if err := p.Line("%s: %s", name, show.Text(text)); err != nil {
				return err
			}
			if next != "" {
				a.notef("next: %s", next)
			}
			return nil
		}),
	}
}

// recordCauses are the causes of the records of loads and imports, which storage.Why takes for tasks that
// are due later.
var recordCauses = map[string]storage.Cause{
	storage.LoadKind: "records a load", storage.ImportKind: "records an import",
}

// meant finds the task that a text names, or the schedule that it names as in midge schedule ls.
func (a *app) meant(ctx context.Context, text string) (storage.Task, error) {
	t, err := a.find(ctx, text)
	var none *exitError
	if ref, bad := cursorOf(text); bad == nil && errors.As(err, &none) && none.code == NotFound {
		if cursor, missing := a.store.Task(ctx, ref); missing == nil {
			return cursor, nil
		}
	}
	return t, err
}

// why returns the verdict on a task. If the task waits in line, why takes two samples of the queue, to
// estimate when the task starts.
func (a *app) why(ctx context.Context, ref storage.Ref) (storage.Verdict, error) {
	v, err := storage.Why(ctx, a.store, ref)
	if err != nil || v.Cause != storage.CauseInLine && v.Cause != storage.CauseBusy {
		return v, err
	}
	before, err := a.sample(ctx, ref.Queue)
	if err != nil || !a.pause(ctx) {
		return v, err
	}
	return storage.Why(ctx, a.store, ref, before)
}

// sample reads the sizes and totals of a queue, with the time.
func (a *app) sample(ctx context.Context, queue string) (storage.Sample, error) {
	now, err := a.session.Now(ctx)
	if err != nil {
		return storage.Sample{}, err
	}
	stats, err := a.store.Stats(ctx, queue)
	if err != nil {
		return storage.Sample{}, err
	}
	return storage.Sample{At: now, Stats: stats[0]}, nil
}

// pause waits between two samples. It returns false if ctx ends first.
func (a *app) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(apart):
		return true
	}
}

// whyNext returns the command to type after a verdict, "" for none.
func whyNext(v storage.Verdict) string {
	ref, queue := v.Ref.String(), v.Ref.Queue
	if storage.RecordKind(v.Kind) {
		return recordNext(v.Kind, v.Ref)
	}
	switch v.Cause {
	case storage.CauseEnded:
		if v.State == storage.Dead && storage.Undecodable(v.Reason) {
			return "midge task edit " + ref + " --requeue, or deploy a program that reads it and " +
				"midge task requeue " + ref
		}
		if v.State == storage.Dead && v.Reason == storage.AttemptDiscarded {
			return "midge task show " + ref
		}
		if v.State == storage.Completed {
			return "midge task show " + ref
		}
		return "midge task requeue " + ref
	case storage.CausePaused:
		if v.State == storage.Cursors {
			return "midge schedule resume " + schedule.Name(v.Ref)
		}
		return "midge queue resume " + queue
	case storage.CausePartitionPaused:
		return shell.Line("midge", "queue", "resume", queue, "--partition", v.Partition)
	case storage.CauseUndecodable:
		return "midge task edit " + ref + ", or deploy a program that reads it"
	case storage.CauseDue:
		if storage.Sleeps(v.Reason) { // a requeue would only sleep again
			return ""
		}
		return "midge task requeue " + ref
	case storage.CauseNoRunner:
		return "start a program that serves queue " + queue + "; midge runner ls shows what the live runners serve"
	case storage.CauseLimit, storage.CauseRate, storage.CausePartitionLimit, storage.CausePartitionRate:
		return "midge queue limit " + queue
	case storage.CauseBusy, storage.CauseGated:
		return "midge runner ls --queue " + queue
	case storage.CauseUnknownKind:
		return "deploy a program that handles " + show.Text(v.Kind) + " on queue " + queue +
			"; midge runner ls --queue " + queue +
			" --columns runner,host,version,kinds shows what its live runners handle"
	case storage.CauseRunning, storage.CauseAhead:
		return "midge runner show " + v.Runner
	case storage.CauseOrphaned, storage.CauseTicks:
		return "midge schedule show " + schedule.Name(v.Ref)
	case storage.CauseLeaseExpired, storage.CauseCancelAsked, storage.CauseSuspect, storage.CauseStartOnly,
		storage.CauseInLine, storage.CauseThrottled:
	}
	return ""
}
