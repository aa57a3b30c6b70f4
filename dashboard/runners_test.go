package dashboard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

func TestARunnerTellsOfItself(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{})
		v := vitals.Vitals{Memory: 3 << 30, Goroutines: 1234, Omitted: 2, Kinds: []vitals.Kind{{Name: "send_welcome", Failed: 25}, {Name: "rare"}}}
		for range 100 {
			v.Kinds[0].Runs.Add(40 * time.Millisecond)
		}
		v.Kinds[1].Runs.Add(time.Hour)
		good := v.Encode()
		damaged := append([]byte{}, good...)
		damaged[3] ^= 1
		for id, told := range map[string][]byte{"well": good, "silent": nil, "broken": damaged, "later": append([]byte{9}, good[1:]...), "idle": (&vitals.Vitals{Memory: 1 << 20}).Encode()} {
			info := storage.RunnerInfo{ID: id, Host: "app", Queues: []string{"mail"}, Concurrency: 4, For: time.Hour, Vitals: told}
			if _, err := s.Session.Extend(t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
				t.Fatal(err)
			}
		}
		s.shows("/runners/well", "3.00 GiB", "1,234", "send_welcome", "25.0 %", "37 ms", "41 ms", "2 more kinds did not fit into the heartbeat", "heartbeat")
		s.shows("/runners/silent", "This runner has not reported its figures yet.")
		s.shows("/runners/idle", "This runner has not run a job yet.", "1.00 MiB")
		for _, id := range []string{"broken", "later"} {
			s.shows("/runners/"+id, "The figures of this runner cannot be read.")
		}
		s.shows("/runners", "3.00 GiB", "unreadable", "25 of 101 attempts since it was started")
	})
}

// crew is a storage with given runners.
type crew struct {
	storage.Storage

	runners []storage.RunnerInfo
}

func (c crew) Runners(context.Context) ([]storage.RunnerInfo, error) { return c.runners, nil }

// TestMoreTasksRunThanARunnerLists checks the pages of a runner that runs more tasks than a heartbeat lists. They
// have run for longer than the task of another queue.
func TestMoreTasksRunThanARunnerLists(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{})
		now := time.Now()
		big := storage.RunnerInfo{ID: "big", Queues: []string{"films", "mail"}, Concurrency: 5000, Busy: 4000, Started: now, Seen: now}
		for i := range storage.MaxRunning {
			ref := storage.Ref{Queue: "films", ID: fmt.Sprint(i)}
			big.Running = append(big.Running, storage.Running{Ref: ref, Kind: "k", Since: now.Add(-time.Hour)})
		}
		small := storage.RunnerInfo{
			ID: "small", Queues: []string{"mail"}, Concurrency: 4, Started: now, Seen: now,
			Running: []storage.Running{{Ref: storage.Ref{Queue: "mail", ID: "young"}, Kind: "k", Since: now}},
		}
		h, err := dashboard.Handler(crew{s.Store, []storage.RunnerInfo{big, small}}, admitting(dashboard.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		s.Dashboard = h
		s.shows("/queues/mail", "mail/young", "4000 of 5000")
		s.shows("/runners/big", "4000 of 5000")
		s.shows("/runners", "4000 of 5000")
		many := small
		many.ID, many.Busy = "later", 1500
		s.Dashboard, err = dashboard.Handler(crew{s.Store, []storage.RunnerInfo{big, small, many}}, admitting(dashboard.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		page := s.get("/runners?sort=running")
		if big, many, small := strings.Index(page, "/runners/big"), strings.Index(page, "/runners/later"),
			strings.Index(page, "/runners/small"); big > many || many > small {
			t.Errorf("the order by running tasks is not that of the busy slots: %d %d %d", big, many, small)
		}
	})
}
