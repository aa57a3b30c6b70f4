package cli

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// postponed is a job whose URL is a text.
type postponed struct{ URL string }

func (postponed) Run(context.Context) error { return nil }

// deaf is a job that ignores its context until it is freed.
type deaf struct{}

func (deaf) Run(ctx context.Context) error {
	<-ctx.Value(freed{}).(chan struct{})
	return nil
}

// freed is the key of the channel that ends the deaf jobs.
type freed struct{}

// live returns a rig on a memory storage whose clock is that of the bubble, and a function that starts a runner of
// a queue and returns its stop.
func live(t *testing.T, queue string, register func(*midge.Runner) error) (r *rig, start func(context.Context) (stop func())) {
	t.Helper()
	r = newRig(t)
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.store, r.session = unclosed{store}, storage.NewSession(store, 0)
	return r, func(ctx context.Context) func() {
		runner, err := midge.NewRunner(store, midge.RunnerConfig{Queues: []string{queue}, Grace: time.Second, Slog: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := register(runner); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); _ = runner.Run(ctx) }()
		return func() { cancel(); <-ended }
	}
}

// TestTasksThatNoRunnerCanDecodeAreAFinding runs the command of an incident: 31 tasks whose parameters do not fit
// the type that is deployed. They are a finding within seconds, and none any more once they are gone.
func TestTasksThatNoRunnerCanDecodeAreAFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, start := live(t, "hooks", midge.Register[postponed])
		stop := start(t.Context())
		defer stop()
		for range 31 {
			r.ok(`task add postponed --queue hooks --params '{"URL":1}'`)
		}
		time.Sleep(time.Minute) // virtual
		got := r.run("doctor")
		for _, want := range []string{
			"problem  Runners of hooks cannot decode tasks of the kind postponed. At least 31 tasks cannot be run.",
			"Undecodable payload", "they are dead 1d after they were put off first", "Deploy a program that reads them, or correct each of them by midge task edit.",
			"next: midge task ls --queue hooks 'kind:postponed reason:undecodable'",
		} {
			if !strings.Contains(strings.Join(strings.Fields(got.out), " "), strings.Join(strings.Fields(want), " ")) {
				t.Errorf("doctor does not say %q:\n%s", want, got.out)
			}
		}
		if _, next, _ := strings.Cut(got.out, "next: midge "); strings.Count(r.ok(strings.TrimSpace(next)+" -o ids"), "\n") != 31 {
			t.Errorf("the next command of doctor does not list the tasks:\n%s", got.out)
		}
		if got.code != Failed {
			t.Errorf("doctor exits with %d, want %d", got.code, Failed)
		}
		if got := r.ok("queue ls"); !strings.Contains(got, "undecodable") || strings.Contains(got, "idle") {
			t.Errorf("the list of queues does not say so:\n%s", got)
		}
		now, err := survey.Once(t.Context(), r.store, survey.Bounds{Dead: survey.AnyNumber})
		if err != nil {
			t.Fatal(err)
		}
		of := now.Queue("hooks").Undecodable
		if len(of) != 1 || of[0].Tasks != 31 || time.Since(of[0].Since) < 50*time.Second {
			t.Errorf("got %+v, want 31 tasks of a kind since a minute ago", of)
		}
		r.ok("doctor --accept undecodable:hooks/postponed")
		r.ok("task rm --queue hooks state:live --yes")
		time.Sleep(5 * time.Minute) // virtual
		if got := r.ok("doctor"); strings.Contains(got, "postponed") {
			t.Errorf("the tasks are gone, and doctor says\n%s", got)
		}
	})
}

// TestATaskThatNoRunnerCanDecodeIsRepaired types the commands that doctor and why name for a task whose
// parameter has the wrong type.
func TestATaskThatNoRunnerCanDecodeIsRepaired(t *testing.T) {
	for _, encoding := range []string{"json", "msgpack"} {
		synctest.Test(t, func(t *testing.T) {
			r, start := live(t, "hooks", midge.Register[postponed])
			stop := start(t.Context())
			defer stop()
			r.ok("task add postponed --id bad --queue hooks --encoding " + encoding + ` --params '{"URL":1}'`)
			time.Sleep(time.Minute) // virtual
			want := `a runner could not decode its parameters: got `
			got := r.run("task why hooks/bad")
			if !strings.Contains(got.out, want) || !strings.Contains(got.err, "next: midge task edit hooks/bad") {
				t.Errorf("%s: why says %+v, want %q and the edit", encoding, got, want)
			}
			r.ok(`task edit hooks/bad --params '{"URL":"x"}'`)
			time.Sleep(10 * time.Minute) // virtual
			if got := r.run("task show hooks/bad"); got.code != NotFound {
				t.Errorf("%s: the repaired task did not run: %+v", encoding, got)
			}
		})
	}
}

// TestAJobThatIgnoresItsContextIsAFinding cancels a task whose job does not stop.
func TestAJobThatIgnoresItsContextIsAFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, start := live(t, "default", midge.Register[deaf])
		free := make(chan struct{})
		stop := start(context.WithValue(t.Context(), freed{}, free))
		ref := strings.Fields(r.ok("task add deaf"))[0]
		time.Sleep(time.Second) // virtual
		got := r.run("task cancel " + ref)
		if said := got.out + got.err; !strings.Contains(said, "asked") {
			t.Errorf("the cancel of a running job says %q, want that its runner is asked", said)
		}
		time.Sleep(time.Minute) // virtual
		if got := r.run("doctor"); got.code != Failed || !strings.Contains(got.out, "A job of the kind deaf ignores the end of its context. Only") {
			t.Errorf("got %+v, want a finding", got)
		}
		if got := r.ok("task why " + ref); !strings.Contains(got, "which the job ignores: only the end of its process stops it") {
			t.Errorf("got %s", got)
		}
		close(free)
		stop()
	})
}
