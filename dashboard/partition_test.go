package dashboard_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// partitioned adds n tasks to each of some partitions of the queue mail.
func (s *site) partitioned(n int, keys ...string) {
	s.t.Helper()
	for _, key := range keys {
		if err := s.Add(s.t.Context(), "mail", "send_welcome", n, func(_ int, in *storage.Insert) { in.Partition = key }); err != nil {
			s.t.Fatal(err)
		}
	}
}

// sparse is a storage whose pages of partitions are empty before the last one.
type sparse struct{ storage.Storage }

func (s sparse) Partitions(ctx context.Context, q storage.PartitionsQuery) (storage.PartitionsPage, error) {
	if q.After == "" && q.Key == "" {
		return storage.PartitionsPage{Next: "a"}, nil
	}
	return s.Storage.Partitions(ctx, q)
}

// TestAnEmptyPageOfPartitionsLeadsToTheNext lists partitions of which the first page has none.
func TestAnEmptyPageOfPartitionsLeadsToTheNext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "empty", dashboard.Config{})
		s.partitioned(1, "b")
		h, err := dashboard.Handler(sparse{s.Store}, admitting(dashboard.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		s.Dashboard = h
		s.shows("/queues/mail", "No partition of this page has waiting tasks", `rel="next" href="/queues/mail?after=a">Next</a>`)
		s.shows("/queues/mail?after=a", `data-key="b"`)
	})
}

// TestAPartitionIsShownPausedAndResumed pauses a partition of a queue by its page, and resumes it.
func TestAPartitionIsShownPausedAndResumed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		if page := s.get("/queues/mail"); strings.Contains(page, `data-part="partitions"`) {
			t.Error("a queue without partitions shows some")
		}
		s.partitioned(3, "Acme & Sons", "other")
		nextReading()
		s.shows("/queues/mail", `data-part="partitions"`, "Acme &amp; Sons", "/tasks?filter=partition%3A%22Acme&#43;%26&#43;Sons%22&amp;queue=mail&amp;state=waiting",
			"do=pause-partition&amp;partition=Acme&#43;%26&#43;Sons&amp;queue=mail")
		s.shows("/tasks?queue=mail&state=waiting&filter=partition:other", "showing 3 of 3", "searched 3 of 3")
		s.shows("/action?do=pause-partition&queue=mail&partition=Acme+%26+Sons", "Pause the partition Acme &amp; Sons of the queue mail?",
			"3 tasks wait in it now.", "midge queue pause mail", "--partition=Acme &amp; Sons", `name="partition" value="Acme &amp; Sons"`)
		form := []string{"queue", "mail", "partition", "Acme & Sons", "back", "/queues/mail"}
		if code, page := s.post("/action", append(form, "do", "pause-partition", "for", "1h")...); code != 200 ||
			!strings.Contains(page, "The partition Acme &amp; Sons of the queue mail is paused.") || !strings.Contains(page, ">paused</span>") ||
			!strings.Contains(page, "do=resume-partition") {
			t.Errorf("pause a partition: %d", code)
		}
		if e := s.newest(); e.Action != "pause-partition" || e.Queue != "mail" || e.Note != `partition "Acme & Sons", for 1h` || e.Outcome != "done" {
			t.Errorf("the audit has %+v", e)
		}
		page, err := s.Store.Partitions(t.Context(), storage.PartitionsQuery{Queue: "mail", Key: "Acme & Sons"})
		if err != nil || len(page.Partitions) != 1 || !page.Partitions[0].Paused || page.Partitions[0].PausedUntil.IsZero() {
			t.Errorf("the partition is %+v, %v", page, err)
		}
		if v := s.sizes("mail"); v.Paused {
			t.Error("the queue is paused, and not its partition")
		}
		if code, page := s.post("/action", append(form, "do", "resume-partition")...); code != 200 ||
			!strings.Contains(page, "The partition Acme &amp; Sons of the queue mail is resumed.") || strings.Contains(page, ">paused</span>") {
			t.Errorf("resume a partition: %d", code)
		}
	})
}

// TestABadPauseOfAPartitionIsRefused sends dialogs and forms with bad keys, and with queues that do not exist.
func TestABadPauseOfAPartitionIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		for _, bad := range [][]string{
			{"queue", "mail"},
			{"queue", "mail", "partition", strings.Repeat("k", 129)},
			{"queue", "mail", "partition", "a\x01b"},
			{"queue", "mail", "partition", "acme", "for", "2h"},
		} {
			if code, _ := s.post("/action", append(bad, "do", "pause-partition")...); code != http.StatusBadRequest {
				t.Errorf("a pause with %v: %d, want 400", bad, code)
			}
		}
		for path, want := range map[string]int{
			"/action?do=pause-partition&queue=none&partition=acme": 404, "/action?do=pause-partition&queue=mail": 400, "/queues/mail?after=a%01b": 400,
		} {
			if w := s.do(request(http.MethodGet, path, "")); w.Code != want {
				t.Errorf("GET %s: %d, want %d", path, w.Code, want)
			}
		}
		if code, _ := s.post("/action", "do", "pause-partition", "queue", "none", "partition", "acme"); code != http.StatusNotFound {
			t.Errorf("a pause in a queue that does not exist: %d, want 404", code)
		}
	})
}

// sizes returns the sizes of a queue.
func (s *site) sizes(queue string) storage.Stats {
	s.t.Helper()
	stats, err := s.Store.Stats(s.t.Context(), queue)
	if err != nil {
		s.t.Fatal(err)
	}
	return stats[0]
}

// TestAPartitionWithoutTasksIsResumed checks a paused partition of a queue in which no task waits in a partition.
func TestAPartitionWithoutTasksIsResumed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Operator))
		if code, page := s.post("/action", "do", "pause-partition", "queue", "mail", "partition", "idle", "back", "/queues/mail"); code != 200 ||
			!strings.Contains(page, "do=resume-partition&amp;partition=idle") {
			t.Errorf("pause a partition without tasks: %d", code)
		}
	})
}

// TestTheListOfPartitionsHasPages goes through the pages of a long list as a viewer, who may pause none of them.
func TestTheListOfPartitionsHasPages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Viewer))
		var keys []string
		for i := range 45 {
			keys = append(keys, fmt.Sprintf("tenant %02d", i))
		}
		s.partitioned(1, keys...)
		nextReading()
		path, seen := "/queues/mail", 0
		for pages := 1; path != ""; pages++ {
			page := s.get(path)
			_, list, _ := strings.Cut(page, `data-part="partitions"`)
			seen += strings.Count(list, `data-key="tenant`)
			if strings.Contains(page, "pause-partition") {
				t.Error("a viewer may pause a partition")
			}
			if pages > 1 != strings.Contains(list, "First page") || pages > 3 {
				t.Fatalf("page %d has another way to the first page", pages)
			}
			if path = ""; strings.Contains(list, `rel="next"`) {
				path = strings.ReplaceAll(between(t, list, `rel="next" href="`, `"`), "&amp;", "&")
			}
		}
		if seen != 45 {
			t.Errorf("the pages list %d partitions, want 45", seen)
		}
	})
}

// TestATaskShowsItsPartition checks the page of a task, with a link to the waiting tasks of its partition.
func TestATaskShowsItsPartition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Viewer))
		s.partitioned(1, `a "b" <b xss7>`)
		page, err := s.Store.Tasks(t.Context(), storage.TasksQuery{Queue: "mail", State: storage.Waiting, Partition: `a "b" <b xss7>`})
		if err != nil || len(page.Tasks) != 1 {
			t.Fatalf("listed %d, %v", len(page.Tasks), err)
		}
		nextReading()
		path := "/r/" + page.Tasks[0].Ref.String()
		shown := s.get(path)
		clean(t, path, shown)
		link := strings.ReplaceAll(between(t, shown, "<dt>partition</dt>", "</dd>"), "&amp;", "&")
		if list := s.get(between(t, link, `href="`, `"`)); !strings.Contains(list, page.Tasks[0].ID) || !strings.Contains(list, "showing 1 of 1") {
			t.Error("the link does not lead to the waiting tasks of the partition")
		}
		clean(t, "/queues/mail", s.get("/queues/mail"))
		if plain := s.get("/r/" + s.list("mail", storage.Dead)[0]); strings.Contains(plain, "<dt>partition</dt>") {
			t.Error("a task without a partition shows one")
		}
	})
}

// TestATaskShowsItsCost checks the page of a task whose start costs more than 1 or nothing.
func TestATaskShowsItsCost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Viewer))
		for want, cost := range map[string]storage.Cost{"7": 7, "0": storage.NoCost, "": 0} {
			var ref storage.Ref
			err := s.Add(t.Context(), "mail", "send_welcome", 1, func(_ int, in *storage.Insert) { in.Cost, ref = cost, in.Ref })
			if err != nil {
				t.Fatal(err)
			}
			page := s.get("/r/" + ref.String())
			if _, after, shown := strings.Cut(page, "<dt>cost</dt>"); shown != (want != "") ||
				shown && !strings.Contains(strings.SplitN(after, "</dd>", 2)[0], ">"+want) {
				t.Errorf("the page of a task of cost %d does not show the cost %q", cost.N(), want)
			}
		}
	})
}

// unlisted is a storage that cannot list partitions.
type unlisted struct{ storage.Storage }

func (unlisted) Partitions(context.Context, storage.PartitionsQuery) (storage.PartitionsPage, error) {
	return storage.PartitionsPage{}, fmt.Errorf("dial secret.example: %w", storage.ErrUnavailable)
}

// TestAQueueIsShownWithoutItsPartitions checks the page of a queue if the storage cannot list its partitions.
func TestAQueueIsShownWithoutItsPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "night", 0)
		if err != nil {
			t.Fatal(err)
		}
		cfg := as(access.Admin)
		cfg.Log = slog.New(slog.DiscardHandler)
		h, err := dashboard.Handler(unlisted{sc.Store}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t: t, Scene: sc, Dashboard: h}
		if page := s.get("/queues/mail"); strings.Contains(page, `data-part="partitions"`) {
			t.Error("a queue without partitions shows that they cannot be read")
		}
		s.partitioned(1, "acme")
		nextReading()
		page := s.get("/queues/mail")
		if !strings.Contains(page, "The storage does not answer.") || strings.Contains(page, "secret.example") {
			t.Error("the page does not show that the partitions cannot be read, or shows an address")
		}
	})
}

// TestTheLimitOfAPartitionIsShown shows the limit of one partition beside a partition without one.
func TestTheLimitOfAPartitionIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		s.partitioned(3, "acme", "other")
		own := storage.Limit{Partition: storage.PartitionLimit{Concurrency: 2, Weight: 5}}
		limit := storage.Settings{Partition: "acme", Limit: &storage.OperatorLimit{On: true, Limit: own}}
		call := storage.Call{}
		if err := s.Store.Configure(t.Context(), call, "mail", limit); err != nil {
			t.Fatal(err)
		}
		nextReading()
		s.shows("/queues/mail", `title="2 at once, weight 5">own limit</span>`, `data-l="running">0 of 2</td>`, `data-l="running"></td>`)
	})
}
