package schedule

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

func TestEveryIsAlignedToTheEpoch(t *testing.T) {
	cases := []struct {
		every       time.Duration
		after, want string
	}{
		{time.Hour, "2026-01-01T10:20:30Z", "2026-01-01T11:00:00Z"},
		{time.Hour, "2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z"},
		{time.Second, "2026-01-01T11:00:00.999999Z", "2026-01-01T11:00:01Z"},
		{1500 * time.Millisecond, "1970-01-01T00:00:01.4Z", "1970-01-01T00:00:01.5Z"},
		{7 * 24 * time.Hour, "1970-01-02T00:00:00Z", "1970-01-08T00:00:00Z"},
		{time.Hour, "1969-12-31T22:30:00Z", "1969-12-31T23:00:00Z"},
		{time.Hour, "1969-12-31T22:00:00Z", "1969-12-31T23:00:00Z"},
		{time.Hour, "2199-12-31T23:00:00Z", "0001-01-01T00:00:00Z"},
	}
	for _, c := range cases {
		after, err := time.Parse(time.RFC3339Nano, c.after)
		if err != nil {
			t.Fatal(err)
		}
		if got := Every(c.every).Next(after).Format(time.RFC3339Nano); got != c.want {
			t.Errorf("every %v after %s: got %s, want %s", c.every, c.after, got, c.want)
		}
	}
}

func TestShortText(t *testing.T) {
	for spec, want := range map[string]string{
		"every 5m0s": "every 5m", "every 10m0s": "every 10m", "every 1h0m0s": "every 1h", "every 24h0m0s": "every 24h",
		"every 1h10m0s": "every 1h10m", "every 1h0m5s": "every 1h0m5s", "every 1m10s": "every 1m10s",
		"every 10s": "every 10s", "every 1.5s": "every 1.5s", "cron 0 3 * * *": "cron 0 3 * * *", "": "",
	} {
		if got := Short(spec); got != want {
			t.Errorf("%q: got %q, want %q", spec, got, want)
		}
	}
}

func TestScheduleText(t *testing.T) {
	for want, s := range map[string]Schedule{
		"every 1h0m0s":   Every(time.Hour),
		"every 1m30s":    Cron("@every 90s"),
		"cron 0 3 * * *": Cron("  0 3 \t* * *  "),
		"cron @daily":    Cron("@daily"),
	} {
		if s.Spec != want {
			t.Errorf("got %q, want %q", s.Spec, want)
		}
		if again := mustSchedule(t, s.Spec, ""); again.Spec != want {
			t.Errorf("%q reads back as %q", want, again.Spec)
		}
	}
}

func TestTicks(t *testing.T) {
	base := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	minutes := func(n ...int) (moments []time.Time) {
		for _, m := range n {
			moments = append(moments, base.Add(time.Duration(m)*time.Minute))
		}
		return moments
	}
	cases := []struct {
		name string
		d    storage.Declaration
		now  time.Duration // from base
		want []time.Time
		next int // minutes from base
	}{
		{"not due", storage.Declaration{CatchUp: "one"}, -time.Second, nil, 0},
		{"on time", storage.Declaration{CatchUp: "one"}, 0, minutes(0), 1},
		{"on time, skip", storage.Declaration{CatchUp: "skip"}, 3 * time.Millisecond, minutes(0), 1},
		{"a little late, skip", storage.Declaration{CatchUp: "skip"}, lateAfter, minutes(0), 1},
		{"missed, skip", storage.Declaration{CatchUp: "skip"}, lateAfter + 1, nil, 1},
		{"ten missed, one", storage.Declaration{CatchUp: "one"}, 10*time.Minute + 30*time.Second, minutes(10), 11},
		{"ten missed, skip", storage.Declaration{CatchUp: "skip"}, 10*time.Minute + 30*time.Second, nil, 11},
		{"ten missed and one on time, skip", storage.Declaration{CatchUp: "skip"}, 10*time.Minute + time.Second, minutes(10), 11},
		{"three missed, all", storage.Declaration{CatchUp: "all"}, 3*time.Minute + 30*time.Second, minutes(0, 1, 2, 3), 4},
		{"ten missed, all to 3", storage.Declaration{CatchUp: "all", CatchUpCap: 3}, 10 * time.Minute, minutes(8, 9, 10), 11},
		{"ten missed, all without overlap", storage.Declaration{CatchUp: "all", Overlap: "skip"}, 10 * time.Minute, minutes(10), 11},
	}
	for _, c := range cases {
		for _, spec := range []string{"every 1m0s", "cron * * * * *"} {
			c.d.Spec = spec
			due, next, err := Ticks(storage.Ref{}, &c.d, base, base.Add(c.now))
			if err != nil || !reflect.DeepEqual(due, c.want) || !next.Equal(minutes(c.next)[0]) {
				t.Errorf("%s, %s: got %v then %v, %v; want %v then %v", c.name, spec, due, next, err, c.want, minutes(c.next)[0])
			}
		}
	}
}

// A schedule that stood still for a year must not loop over all its ticks.
func TestTicksAfterAYear(t *testing.T) {
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := first.AddDate(1, 0, 0)
	begun := testserver.ProcessorTime(t)
	for _, spec := range []string{"every 1s", "cron * * * * * *", "cron * * 1 1 *"} {
		due, next, err := Ticks(storage.Ref{}, &storage.Declaration{Spec: spec, CatchUp: "all"}, first, now)
		if err != nil || len(due) != MaxCatchUp || !next.After(now) {
			t.Fatalf("%s: got %d ticks then %v, %v; want %d then a later one", spec, len(due), next, err, MaxCatchUp)
		}
		s := mustSchedule(t, spec, "")
		for i := 1; i < len(due); i++ {
			if want := s.Next(due[i-1]); !due[i].Equal(want) {
				t.Fatalf("%s: after %v got %v, want %v", spec, due[i-1], due[i], want)
			}
		}
		if last := due[len(due)-1]; !s.Next(last).Equal(next) {
			t.Errorf("%s: the last is %v, want the one before %v", spec, last, next)
		}
	}
	if took := testserver.ProcessorTime(t) - begun; took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestTicksOfADamagedCursor(t *testing.T) {
	_, _, err := Ticks(storage.Ref{}, &storage.Declaration{Spec: "now and then", CatchUp: "one"}, time.Now(), time.Now())
	if _, ok := errors.AsType[*storage.InvalidError](err); !ok {
		t.Errorf("got %v, want an *InvalidError", err)
	}
}

func TestTicksOfNever(t *testing.T) {
	due, next, err := Ticks(storage.Ref{}, &storage.Declaration{Spec: "cron 0 0 30 2 *", CatchUp: "one"}, time.Time{}, time.Now())
	if due != nil || !next.IsZero() || err != nil {
		t.Errorf("got %v, %v, %v; want nothing", due, next, err)
	}
}
