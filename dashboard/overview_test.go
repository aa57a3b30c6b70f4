package dashboard

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// steady is a storage with a queue that has completed rate tasks a second since began. Its clock is ahead of
// this process's clock.
type steady struct {
	storage.Storage

	began time.Time
	rate  int
	ahead time.Duration
}

func (s *steady) Describe(ctx context.Context) (storage.Description, error) {
	d, err := s.Storage.Describe(ctx)
	d.Now = time.Now().Add(s.ahead)
	return d, err
}

func (s *steady) Queues(context.Context, storage.QueuesQuery) (storage.QueuesPage, error) {
	return storage.QueuesPage{Names: []string{"q"}}, nil
}

func (s *steady) Stats(context.Context, ...string) ([]storage.Stats, error) {
	done := int64(s.rate) * int64(time.Since(s.began)/time.Second)
	return []storage.Stats{{Queue: "q", Totals: storage.Totals{Completed: done}}}, nil
}

// TestAChartOfSteadyWorkIsLevel checks that a chart shows the same rate everywhere, however far the storage's
// clock is from this process's clock.
func TestAChartOfSteadyWorkIsLevel(t *testing.T) {
	const rate = 10
	for _, skew := range []time.Duration{0, 2500 * time.Millisecond, -1700 * time.Millisecond, time.Hour + 3*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			sc, err := scene.Open(t.Context(), "empty", 0)
			if err != nil {
				t.Fatal(err)
			}
			d, err := Handler(&steady{sc.Store, time.Now(), rate, skew}, asAdmin())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 40 {
				now, err := d.server.sampler.Sample(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				v := &view{server: d.server, Sample: now, Now: d.server.sampler.StorageNow()}
				if ahead := time.Until(v.Now); ahead != skew {
					t.Fatalf("the clock is %v ahead, want %v", ahead, skew)
				}
				most, _ := v.chartOf("q", "5m").Max()
				if most > 1.1*rate || i > 10 && most < 0.9*rate {
					t.Errorf("a clock %v ahead, after %d seconds: %v a second, want %d", skew, i, most, rate)
				}
				time.Sleep(time.Second) // virtual
			}
		})
	}
}

// TestTodayHasTheWorkOfTheLastHour checks that the calm of the overview does not contradict its figure, while the
// history knows nothing yet.
func TestTodayHasTheWorkOfTheLastHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "empty", 0)
		if err != nil {
			t.Fatal(err)
		}
		info := storage.RunnerInfo{ID: "app:1:a", Host: "app", PID: 1, Queues: []string{"q"}, Concurrency: 4, For: time.Hour}
		if _, err := sc.Session.Extend(t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(17 * time.Hour) // virtual: the day has begun long ago
		if _, err := sc.Session.Extend(t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
			t.Fatal(err)
		}
		d, err := Handler(&steady{sc.Store, time.Now(), 10, 0}, Config{Token: rand.Text()})
		if err != nil {
			t.Fatal(err)
		}
		v := &view{server: d.server}
		for range 195 {
			if v.Sample, err = d.server.sampler.Sample(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // virtual
		}
		v.Now = d.server.sampler.StorageNow()
		calm, figure := v.calm(t.Context()), v.figures()[0].Note
		n, _, _ := strings.Cut(figure, " ")
		if done, _ := v.chartOf("", "1h").Sums(); done < 1900 || !strings.Contains(calm, n+format.NBSP+"tasks done since 17:00") {
			t.Errorf("the figure is %q, and the calm %q", figure, calm)
		}
		v.Now = v.Now.In(time.FixedZone("east", 7*3600-120)) // its day began two minutes after these tasks
		want := v.Now.AddDate(0, 0, -1).Format("Jan"+format.NBSP+"2") + format.NBSP + "23:58"
		if calm := v.calm(t.Context()); !strings.Contains(calm, "tasks done since "+want) {
			t.Errorf("in a zone of another day the calm is %q, want since %s", calm, want)
		}
	})
}
