package midgetest_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/midgetest"
)

// What docs/testing.md shows stands in this file, line by line, and so is tried.

// Welcome is the job of the guide.
type Welcome struct{ To string }

// mailer sends mails; the job's function is its method.
type mailer struct {
	sent []string
	down bool
}

func (m *mailer) welcome(ctx context.Context, job Welcome) error {
	if m.down {
		return errors.New("the mail server does not answer")
	}
	m.sent = append(m.sent, job.To)
	return midge.FollowUp(ctx, Remind(job), midge.In(72*time.Hour))
}

// Remind is the job's follow-up.
type Remind struct{ To string }

func (m *mailer) remind(_ context.Context, job Remind) error {
	m.sent = append(m.sent, "reminder for "+job.To)
	return nil
}

// register is what main calls, too.
func (m *mailer) register(r *midge.Runner) error {
	return errors.Join(midge.Handle(r, m.welcome), midge.Handle(r, m.remind))
}

// signup is a handler that enqueues.
func signup(client *midge.Client) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := client.Enqueue(r.Context(), Welcome{To: r.FormValue("to")}, midge.To("mail")); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

func TestSignupEnqueuesAWelcome(t *testing.T) {
	k := midgetest.New(t, midgetest.Config{})
	signup(k.Client()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/?to=ann", nil))

	task := midgetest.RequireJob(t, k.Client(), Welcome{To: "ann"}, midgetest.With(midge.To("mail")))
	if task.State != midge.Waiting {
		t.Errorf("it is %s", task.State)
	}
	midgetest.RequireNone[Remind](t, k.Client())
}

func TestWelcomeIsRetried(t *testing.T) {
	m := &mailer{down: true}
	k := midgetest.New(t, midgetest.Config{Register: m.register})

	failed := k.Work(Welcome{To: "ann"})
	if failed.Outcome != midge.OutcomeFailed || failed.RetryIn != 2*time.Second {
		t.Errorf("it %s (%v), retry in %v", failed.Outcome, failed.Err, failed.RetryIn)
	}
	m.down = false
	done := k.WorkTask(failed.Task.Ref)
	if done.Outcome != midge.OutcomeSucceeded || len(done.FollowUps) != 1 {
		t.Errorf("it %s (%v), with %d follow-ups", done.Outcome, done.Err, len(done.FollowUps))
	}
}

func TestAReminderComesAfterThreeDays(t *testing.T) {
	m := new(mailer)
	k := midgetest.New(t, midgetest.Config{Register: m.register})
	if _, err := k.Client().Enqueue(t.Context(), Welcome{To: "ann"}); err != nil {
		t.Fatal(err)
	}
	k.Drain() // what is due now, follow-ups too
	if len(m.sent) != 1 {
		t.Errorf("at once %q was sent", m.sent)
	}
	k.Until(72 * time.Hour) // all that falls due within three days, each at its moment
	if len(m.sent) != 2 {
		t.Errorf("after three days %q was sent", m.sent)
	}
}

// Trial is a job of two steps, with two weeks between them.
type Trial struct{ User string }

func (m *mailer) trial(ctx context.Context, job Trial) error {
	_, err := midge.Step(ctx, "welcome", func(context.Context) (int, error) {
		m.sent = append(m.sent, "welcome "+job.User)
		return len(m.sent), nil
	})
	if err != nil {
		return err
	}
	if err := midge.Sleep(ctx, "trial", 14*24*time.Hour); err != nil {
		return err
	}
	_, err = midge.Step(ctx, "offer", func(context.Context) (int, error) {
		if m.down {
			return 0, errors.New("the mail server does not answer")
		}
		m.sent = append(m.sent, "an offer for "+job.User)
		return len(m.sent), nil
	})
	return err
}

func TestATrialOfTwoWeeks(t *testing.T) {
	m := &mailer{down: true}
	k := midgetest.New(t, midgetest.Config{Register: func(r *midge.Runner) error { return midge.Handle(r, m.trial) }})

	sleeps := k.Work(Trial{User: "ann"})
	if sleeps.Outcome != midge.OutcomeSnoozed || !slices.Equal(sleeps.Called, []string{"welcome", "trial"}) {
		t.Errorf("it %s after the steps %q", sleeps.Outcome, sleeps.Called)
	}
	failed := k.Until(14 * 24 * time.Hour) // two weeks later, the mail server does not answer
	if len(failed) != 1 || failed[0].Outcome != midge.OutcomeFailed || !slices.Equal(failed[0].Called, []string{"offer"}) {
		t.Errorf("the attempts after two weeks are %+v", failed)
	}
	m.down = false
	done := k.WorkTask(sleeps.Task.Ref)
	if steps := done.Steps(); len(steps) != 3 || !slices.Equal(m.sent, []string{"welcome ann", "an offer for ann"}) {
		t.Errorf("it has the steps %+v, and %q was sent", steps, m.sent)
	}
}

func TestSignupSendsAMail(t *testing.T) {
	m := new(mailer)
	k := midgetest.New(t, midgetest.Config{Register: m.register, Runner: midge.RunnerConfig{Queues: []string{"mail"}}})
	signup(k.Inline()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/?to=ann", nil))
	if len(m.sent) != 1 {
		t.Errorf("%q was sent", m.sent)
	}
}

func TestThisDeployReadsWhatWaits(t *testing.T) {
	midgetest.Golden(t, "testdata/mail.json", new(mailer).register)
}

func TestTheGuideIsTried(t *testing.T) {
	guide, err := os.ReadFile("../docs/testing.md")
	must(t, err)
	tried, err := os.ReadFile("guide_test.go")
	must(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(guide, -1)
	if len(blocks) < 5 {
		t.Errorf("the guide shows %d pieces of code", len(blocks))
	}
	for _, block := range blocks {
		if !bytes.Contains(tried, block[1]) {
			t.Errorf("guide_test.go does not have\n%s", block[1])
		}
	}
}
