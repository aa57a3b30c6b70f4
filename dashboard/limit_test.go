package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// TestALimitIsShownSetAndCleared sets a limit of a queue, fills it, and clears it again.
func TestALimitIsShownSetAndCleared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		if page := s.get("/queues/mail"); strings.Contains(page, `data-part="limit"`) {
			t.Error("a queue without a limit shows one")
		}
		if code, page := s.post("/action", "do", "limit", "queue", "mail", "concurrency", "2", "rate", "3/1m", "back", "/queues/mail"); code != 200 ||
			!strings.Contains(page, "The limit of the queue mail is 2 at once, 3 in 1 m.") || !strings.Contains(page, "set by an operator") {
			t.Errorf("set a limit: %d", code)
		}
		if e := s.newest(); e.Action != "limit" || e.Queue != "mail" || e.Note != "to 2 at once, 3 in 1m0s" {
			t.Errorf("the audit has %+v", e)
		}
		s.shows("/action?do=limit&queue=mail", "Limit the queue mail?", `value="2"`, `value="3/1m"`, "midge queue limit mail")
		s.shows("/action?do=clear-limit&queue=mail", "Clear the limit of the queue mail?", "Programs declare none.", "midge queue limit --clear mail")
		claimed, err := storage.NewSession(s.Store, 0).Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 9, Lease: time.Minute,
		})
		if err != nil || len(claimed.Fences) != 2 {
			t.Fatalf("claimed %d tasks, %v; want 2", len(claimed.Fences), err)
		}
		nextReading()
		s.shows("/queues/mail", "at its limit", "2 of 2 run.", "2 of 3 starts used.", "Clear limit")
		s.shows("/queues", ">at limit</span>")
		if code, page := s.post("/action", "do", "clear-limit", "queue", "mail", "back", "/queues/mail"); code != 200 ||
			!strings.Contains(page, "The limit of the queue mail is cleared.") || strings.Contains(page, `data-part="limit"`) {
			t.Errorf("clear a limit: %d", code)
		}
		for _, bad := range [][]string{{"concurrency", "0"}, {"concurrency", "x"}, {"concurrency", "10001"}, {"rate", "5"}, {"rate", "5/32d"}, {"partition_concurrency", "0"}, {"partition_rate", "5"}} {
			if code, _ := s.post("/action", append([]string{"do", "limit", "queue", "mail"}, bad...)...); code != http.StatusBadRequest {
				t.Errorf("a limit with %v: %d, want 400", bad, code)
			}
		}
	})
}

// TestADeclaredLimitIsShownBelowThatOfAnOperator checks the words about limits that programs declare.
func TestADeclaredLimitIsShownBelowThatOfAnOperator(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Viewer))
		own := storage.NewSession(s.Store, 0)
		declared := storage.Settings{Declared: &storage.DeclaredLimit{Limit: storage.Limit{Concurrency: 50}}}
		if err := own.Configure(t.Context(), "mail", declared); err != nil {
			t.Fatal(err)
		}
		nextReading()
		page := s.get("/queues/mail")
		for _, text := range []string{"50\u00a0at once</strong>, declared by a program.", "No live runner declares a limit."} {
			if !strings.Contains(page, text) {
				t.Errorf("the page of the queue lacks %q", text)
			}
		}
		if strings.Contains(page, "Clear limit") {
			t.Error("a viewer may clear the limit")
		}
		if err := own.SetLimit(t.Context(), "mail", storage.Limit{}); err != nil {
			t.Fatal(err)
		}
		nextReading()
		s.shows("/queues/mail", "<strong>none</strong>, set by an operator.", "Programs declare 50 at once.")
	})
}

// TestTheLimitOfPartitionsIsSetAndShown sets a limit of partitions, and shows how much of it each partition uses.
func TestTheLimitOfPartitionsIsSetAndShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		s.partitioned(3, "acme", "calm", "full", "later")
		if code, page := s.post("/action", "do", "limit", "queue", "mail", "partition_concurrency", "2", "partition_rate", "3/1m",
			"back", "/queues/mail"); code != 200 || !strings.Contains(page, "The limit of the queue mail is 2 at once in a partition, 3 in 1 m in a partition.") {
			t.Errorf("set a limit of partitions: %d", code)
		}
		if e := s.newest(); e.Action != "limit" || e.Note != "to 2 at once in a partition, 3 in 1m0s in a partition" {
			t.Errorf("the audit has %+v", e)
		}
		s.shows("/action?do=limit&queue=mail", `name="concurrency" value=""`, `name="partition_concurrency" value="2"`, `name="partition_rate" value="3/1m"`)
		own := storage.NewSession(s.Store, 0)
		pauses := storage.Settings{Partition: "later", Pause: &storage.Pause{On: true}}
		if err := own.Configure(t.Context(), "mail", pauses); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			s.worked(own)
		}
		nextReading()
		page := s.get("/queues/mail")
		clean(t, "/queues/mail", page)
		for key, want := range map[string][]string{
			"acme":  {"0 of 2", "3 of 3", ">at limit</span>", `title="next start: `},
			"calm":  {"0 of 2", "2 of 3", ">resting</span>", "in\u00a04\u00a0m"},
			"full":  {"2 of 2", "2 of 3", ">at limit</span>"},
			"later": {"0 of 2", "0 of 3", ">paused</span>"},
		} {
			_, row, _ := strings.Cut(page, `<tr data-key="`+key+`">`)
			row, _, _ = strings.Cut(row, "</tr>")
			for _, text := range want {
				if !strings.Contains(row, text) {
					t.Errorf("the row of the partition %s lacks %q: %s", key, text, row)
				}
			}
		}
	})
}

// worked claims all tasks of the queue mail that its limit admits, goes on with the tasks of the partition
// full, throttles the tasks of calm, and completes the others.
func (s *site) worked(own *storage.Session) {
	s.t.Helper()
	claimed, err := own.Claim(s.t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 500, Lease: time.Minute,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for i, f := range claimed.Fences {
		settle := storage.Settle{Fence: f, Outcome: storage.Complete}
		switch claimed.Tasks[i].Partition {
		case "full":
			continue
		case "calm":
			settle.Outcome, settle.Delay = storage.Release, 5*time.Minute
		}
		if _, err := own.ApplyOne(s.t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
			s.t.Fatal(err)
		}
	}
}
