package measure

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/bench/internal/system"
)

// spoiled is a system whose worker runs the given number of jobs and which reports the
// given totals.
type spoiled struct {
	system.Instance

	runs   int
	totals system.Totals
	err    error
}

func (s spoiled) Work(ctx context.Context, w system.Worker) error {
	for range s.runs {
		_ = w.Run(nil)
	}
	if s.err == nil {
		<-ctx.Done()
	}
	return s.err
}

func (s spoiled) Totals(context.Context, ...string) (system.Totals, error) { return s.totals, nil }

// A round fails if a job was lost, ran twice, is left over, or was counted wrongly, or
// if the worker ends by itself.
func TestCrewFindsWhatIsWrong(t *testing.T) {
	done := system.Totals{Completed: 10}
	for name, c := range map[string]struct {
		spoiled

		dead bool
		want string // part of the error, "" for none
	}{
		"well":           {spoiled: spoiled{runs: 10, totals: done}},
		"dead":           {spoiled: spoiled{runs: 10, totals: system.Totals{Dead: 10, Failed: 10}}, dead: true},
		"dead unasked":   {spoiled: spoiled{runs: 10, totals: system.Totals{Dead: 10}}, want: "the storage's totals"},
		"lost":           {spoiled: spoiled{runs: 9, totals: done}, want: "9 of 10 jobs have run"},
		"twice":          {spoiled: spoiled{runs: 11, totals: done}, want: "there were 11 runs"},
		"never settled":  {spoiled: spoiled{runs: 10, totals: system.Totals{Pending: 10}}, want: "all have run"},
		"one is left":    {spoiled: spoiled{runs: 10, totals: system.Totals{Completed: 10, Later: 1}}, want: "Later:1"},
		"settled twice":  {spoiled: spoiled{runs: 10, totals: system.Totals{Completed: 11}}, want: "Completed:11"},
		"ended by error": {spoiled: spoiled{runs: 9, err: errors.New("no more")}, want: "ended early\nno more"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			crew := newCrew(c.spoiled, c.spoiled, 10, defaultQueue)
			crew.dead = c.dead
			err := crew.during(ctx, 1, nil, crew.settled)
			if err == nil {
				err = crew.check(ctx)
			}
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%s: %v, want no error", name, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: the error is %v, want %q in it", name, err, c.want)
			}
		})
	}
}

func TestProduceStopsAtTheFirstErrorOfEach(t *testing.T) {
	calls := 0
	err := produce(t.Context(), 1, 10, func() error {
		if calls++; calls == 3 {
			return errors.New("full")
		}
		return nil
	})
	if calls != 3 || err == nil {
		t.Errorf("%d calls and the error %v, want 3 calls and an error", calls, err)
	}
}
