package dashboard

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// growing is a storage with one queue. Each second one more task waits in it, and the oldest has always
// waited for the given time.
type growing struct {
	storage.Storage

	began  time.Time
	oldest time.Duration
}

func (s *growing) Queues(context.Context, storage.QueuesQuery) (storage.QueuesPage, error) {
	return storage.QueuesPage{Names: []string{"mail"}}, nil
}

func (s *growing) Stats(context.Context, ...string) ([]storage.Stats, error) {
	n := 3 + int64(time.Since(s.began)/time.Second)
	return []storage.Stats{{Queue: "mail", Waiting: n, Oldest: s.oldest, Totals: storage.Totals{Enqueued: n}}}, nil
}

// watched returns the view of a queue whose oldest task has waited for a time, after half a minute of
// samples.
func watched(t *testing.T, oldest time.Duration, each func(*view, queueView)) (*view, queueView) {
	t.Helper()
	sc, err := scene.Open(t.Context(), "empty", 0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Handler(&growing{sc.Store, time.Now(), oldest}, asAdmin())
	if err != nil {
		t.Fatal(err)
	}
	v := &view{server: d.server}
	for range 30 {
		if v.Sample, err = d.server.sampler.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
		each(v, queueView{v.Sample.Queue("mail")})
		time.Sleep(time.Second) // virtual
	}
	return v, queueView{v.Sample.Queue("mail")}
}

// TestWorkInFlowIsNoTrouble checks that a backlog that grows is no trouble as long as no task waits for ten
// seconds.
func TestWorkInFlowIsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := watched(t, 451*time.Millisecond, func(v *view, q queueView) {
			if o := v.Outlook(q); o.Text != format.Dash || o.Bad || !strings.Contains(o.Exact, "No task has waited") {
				t.Errorf("work in flow is told as %+v", o)
			}
		})
		if got := backlogGone(v.Sample); got != "waiting" {
			t.Errorf("of work in flow: %q, want %q", got, "waiting")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		v, q := watched(t, 10*time.Second, func(*view, queueView) {})
		for bound, bad := range map[time.Duration]bool{0: false, 9 * time.Second: true, 10 * time.Second: false} {
			v.server.bounds.Oldest = bound
			if o := v.Outlook(q); o.Text != "grows" || o.Bad != bad {
				t.Errorf("a backlog that grows, within %v, is told as %+v; want it bad: %t", bound, o, bad)
			}
		}
		if got, want := backlogGone(v.Sample), "waiting; mail is not draining"; got != want {
			t.Errorf("of a backlog that grows: %q, want %q", got, want)
		}
	})
}

func TestTheOldestOfNothingHasNotWaited(t *testing.T) {
	for _, c := range []struct {
		stats storage.Stats
		want  string
	}{
		{storage.Stats{}, "no task is waiting"},
		{storage.Stats{Waiting: 1, Oldest: time.Second}, "wait of the oldest task"},
		{storage.Stats{Waiting: 1, Declined: []storage.KindSize{{Kind: "k", Tasks: 1}}}, "no runner handles the waiting tasks"},
	} {
		if got := (queueView{&survey.Queue{Stats: c.stats}}).Waited(); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.stats, got, c.want)
		}
	}
}
