package dashboard_test

import (
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
