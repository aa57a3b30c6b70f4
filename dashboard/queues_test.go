package dashboard

import (
	"context"
	"html"
	"maps"
	"net/url"
	"regexp"
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
		if got := backlogGone(v.Sample); got != "tasks wait" {
			t.Errorf("of work in flow: %q, want %q", got, "tasks wait")
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
		if got, want := backlogGone(v.Sample), "tasks wait; mail does not shrink"; got != want {
			t.Errorf("of a backlog that grows: %q, want %q", got, want)
		}
	})
}

func TestTheOldestOfNothingHasNotWaited(t *testing.T) {
	for _, c := range []struct {
		stats storage.Stats
		want  string
	}{
		{storage.Stats{}, "no task waits"},
		{storage.Stats{Waiting: 1, Oldest: time.Second}, "has waited"},
		{storage.Stats{Waiting: 1, Declined: []storage.KindSize{{Kind: "k", Tasks: 1}}}, "no task of a known kind waits"},
	} {
		if got := (queueView{&survey.Queue{Stats: c.stats}}).Waited(); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.stats, got, c.want)
		}
	}
}

// TestAColumnOrdersTheQueues checks that the link in the head of a column orders the queues by it and keeps
// the filter of names.
func TestAColumnOrdersTheQueues(t *testing.T) {
	sc, err := scene.Open(t.Context(), "night", 0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Handler(sc.Store, asAdmin())
	if err != nil {
		t.Fatal(err)
	}
	head := regexp.MustCompile(`<th[^>]*?(?: aria-sort="(\w+)")?><a href="([^"]*)">`)
	for _, order := range (&queuesData{}).Orders() {
		w := fetch(t.Context(), d, "/queues?name=a&sort="+order)
		sorted := map[string]string{}
		for _, m := range head.FindAllStringSubmatch(w.Body.String(), -1) {
			u, err := url.Parse(html.UnescapeString(m[2]))
			if err != nil || u.Path != "/queues" || u.Query().Get("name") != "a" {
				t.Errorf("a head leads to %q", m[2])
			}
			sorted[u.Query().Get("sort")] = m[1]
		}
		want := map[string]string{}
		for _, column := range (&queuesData{}).Orders()[1:] {
			want[column] = (&queuesData{Sort: order}).Sorted(column)
		}
		if !maps.Equal(sorted, want) || order != "" && want[order] == "" {
			t.Errorf("by %q: the heads are sorted %v, want %v", order, sorted, want)
		}
		if !strings.Contains(w.Body.String(), `<option value="`+order+`" selected>`) {
			t.Errorf("by %q: the choice of the order does not show it", order)
		}
	}
}
