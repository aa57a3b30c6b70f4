package dashboard_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// needsOf returns the texts of the needs of the overview, without their buttons, each on a line.
func (s *site) needsOf() []string {
	s.t.Helper()
	_, part, _ := strings.Cut(s.get("/"), `data-part="needs"`)
	part, _, _ = strings.Cut(part, "</section>")
	tag := regexp.MustCompile(`<[^>]*>`)
	var needs []string
	for _, need := range strings.Split(part, `<div class="need">`)[1:] {
		need, _, _ = strings.Cut(need, `<a class="button`)
		text := strings.Join(strings.Fields(tag.ReplaceAllString(need, " ")), " ")
		needs = append(needs, strings.ReplaceAll(text, "\u00a0", " "))
	}
	return needs
}

// served adds a runner that serves queues.
func (s *site) served(queues ...string) {
	s.t.Helper()
	info := storage.RunnerInfo{ID: "app:1:a", Host: "app", PID: 1, Queues: queues, Concurrency: 4, For: time.Hour}
	if _, err := s.Session.Extend(s.t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
		s.t.Fatal(err)
	}
}

// unserved returns a site with two queues, three tasks, and a schedule, and without a runner.
func unserved(t *testing.T) *site {
	t.Helper()
	s := open(t, "empty", dashboard.Config{})
	later := func(_ int, in *storage.Insert) { in.Delay = time.Hour }
	for queue, n := range map[string]int{"mail": 2, "images": 1} {
		if err := s.Add(t.Context(), queue, "work", n, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Add(t.Context(), "mail", "work", 1, later); err != nil {
		t.Fatal(err)
	}
	if err := s.Schedule(t.Context(), "mail", "daily", "0 3 * * *", "", -time.Minute, true); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWithoutAnyRunnerOneNeedSaysSo checks that the overview names neither each queue nor each schedule: the
// schedules of a process that has just crashed are not orphaned.
func TestWithoutAnyRunnerOneNeedSaysSo(t *testing.T) {
	s := unserved(t)
	needs := s.needsOf()
	want := "! No runner is alive 3 waiting, 1 scheduled or retrying, 1 schedule not ticking."
	if len(needs) != 1 || needs[0] != want {
		t.Errorf("the needs are %q, want %q alone", needs, want)
	}
	s.shows("/", "1 stalled", "All schedules are stalled.")
	s.shows("/schedules", "no live runner</span>")
	for _, path := range []string{"/", "/schedules"} {
		if strings.Contains(s.get(path), "orphaned") {
			t.Errorf("GET %s calls the schedule orphaned", path)
		}
	}
}

// TestANeedClaimsNoMomentThatIsNotKnown checks a queue that no runner serves: nobody knows since when.
func TestANeedClaimsNoMomentThatIsNotKnown(t *testing.T) {
	s := unserved(t)
	s.served("images")
	needs := s.needsOf()
	said := regexp.MustCompile(`^! No live runner serves the queue mail 2 tasks wait in it, the oldest for [^,]+\.$`)
	if len(needs) != 2 || !said.MatchString(needs[0]) || !strings.Contains(needs[1], "The schedule daily is orphaned") {
		t.Errorf("the needs are %q, want mail without a moment, and its schedule", needs)
	}
	s.shows("/schedules", "orphaned</span>")
}

// TestTasksThatWerePutOffHaveNotDied checks the moment of the newest task that no runner could decode.
func TestTasksThatWerePutOffHaveNotDied(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "empty", dashboard.Config{})
		now := time.Now()
		info := storage.RunnerInfo{
			ID: "app:1:a", Host: "app", PID: 1, Queues: []string{"hooks"}, Kinds: []string{"call"}, Concurrency: 4, For: time.Hour,
			Undecodable: []storage.KindTrouble{{
				Queue: "hooks", Kind: "call", Since: now.Add(-time.Minute), Last: now.Add(-12 * time.Second), Tasks: 2, Reason: "no text",
			}},
		}
		if err := s.Add(t.Context(), "hooks", "call", 2, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Session.Extend(t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
			t.Fatal(err)
		}
		needs := strings.Join(s.needsOf(), "\n")
		if !strings.Contains(needs, "t least 2 tasks cannot be run.") || !strings.Contains(needs, "The last one was put off 12 s ago") ||
			strings.Contains(needs, "died") {
			t.Errorf("the needs are %q, want tasks that were put off", needs)
		}
	})
}

// TestManyIdleQueuesHideNoDeaths checks many queues without a runner beside two causes of death: one line stands
// for the queues, and unfolds.
func TestManyIdleQueuesHideNoDeaths(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "empty", dashboard.Config{})
		s.served("live")
		for _, queue := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			if err := s.Add(t.Context(), queue, "work", 1, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, cause := range []string{"disk full", "no route"} {
			if err := s.Add(t.Context(), "live", "work", 1, func(_ int, in *storage.Insert) { in.MaxRetries = 0 }); err != nil {
				t.Fatal(err)
			}
			err := s.End(t.Context(), "live", 1, func(_ int, _ storage.Task, st *storage.Settle) {
				st.Outcome, st.Error = storage.Fail, cause
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		needs := s.needsOf()
		if len(needs) != 3 || !strings.HasPrefix(needs[0], "! 7 queues have no runner ") || !strings.HasSuffix(needs[0], " 7 tasks in all.") {
			t.Fatalf("the needs are %q, want the queues as one, and two causes", needs)
		}
		for _, queue := range []string{"a", "g"} {
			s.shows("/", `<li><a href="/queues/`+queue+`">`)
		}
		for _, cause := range []string{"disk full", "no route"} {
			if all := strings.Join(needs, "\n"); !strings.Contains(all, cause) {
				t.Errorf("the needs are %q, want the cause %q among them", needs, cause)
			}
		}
	})
}

// TestEqualNeedsAreCounted checks more equal needs than the overview lists, and two of another sort.
func TestEqualNeedsAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "empty", dashboard.Config{})
		s.served("live", "paused-1", "paused-2")
		for i := range 60 {
			if err := s.Add(t.Context(), fmt.Sprint("q", i), "work", 1, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, queue := range []string{"paused-1", "paused-2"} {
			if err := s.Session.Configure(t.Context(), queue, storage.Settings{Pause: &storage.Pause{On: true}}); err != nil {
				t.Fatal(err)
			}
		}
		needs := s.needsOf()
		if len(needs) != 3 || !strings.Contains(needs[0], "60 queues have no runner") || !strings.Contains(needs[2], "paused-2 is paused") {
			t.Errorf("the needs are %q, want one for 60 queues, and the two paused queues", needs)
		}
		page := s.get("/")
		if got := strings.Count(page, `<li><a href="/queues/q`); got != 45 {
			t.Errorf("the need lists %d queues, want 45", got)
		}
		s.shows("/", "and 15 more</li>", ">View queues</a>")
	})
}
