package runner

import (
	"testing"
	"time"
)

// A contactStep is an answer with so many milliseconds, or a claim that is sent at that time: it may
// recover leases that ended before the moment want; 0 stands for none.
type contactStep struct {
	name       string
	told, sent int
	want       int
}

// TestContact sends claims after answers that came regularly, late and early. The clocks of the runner and of
// the storage show the same time.
func TestContact(t *testing.T) {
	for _, steps := range [][]contactStep{
		{
			{name: "before the first answer", sent: 1000},
			{name: "after the first answer", told: 1000, sent: 1001},
			{name: "at the end of the first pause", told: 2000, sent: 3999},
			{name: "after the first pause", sent: 4000, want: 2000},
			{name: "regularly", told: 3200, sent: 4200, want: 3200},
			{name: "sooner than the delay", told: 4200, sent: 4300, want: 3200},
			{name: "after an outage", told: 9000, sent: 9001, want: 3200},
			{name: "in the pause", told: 10000, sent: 11999, want: 3200},
			{name: "after the pause", told: 11100, sent: 12000, want: 10000},
			{name: "after the delay", sent: 12100, want: 11100},
		},
		{
			{name: "the first answers", told: 1000, sent: 1001},
			{name: "the first answers", told: 2000, sent: 2001},
			{name: "an outage in the first pause", told: 8000, sent: 10999},
			{name: "after that", told: 9400, sent: 11000, want: 9400},
		},
		{
			{name: "an answer", told: 9000, sent: 9001},
			{name: "the clock was set back", told: 1000, sent: 9900, want: 1000},
			{name: "and goes on", told: 2000, sent: 10900, want: 2000},
		},
	} {
		var c contact
		for _, s := range steps {
			if s.told > 0 {
				c.answered(time.UnixMilli(int64(s.told)), time.Duration(s.told)*time.Millisecond)
			}
			got := c.recoverBefore(time.Duration(s.sent) * time.Millisecond)
			if want := time.UnixMilli(int64(s.want)); !got.Truncate(time.Millisecond).Equal(want) {
				t.Errorf("%s: recovers before %v, want %v", s.name, got.UnixMilli(), want.UnixMilli())
			}
		}
	}
}

// TestContactRecoversThoughEachAnswerIsLate has a storage that always takes two seconds: leases of dead runners
// are recovered even so, though seldom.
func TestContactRecoversThoughEachAnswerIsLate(t *testing.T) {
	var c contact
	const each, answers = 2 * time.Second, 100
	var bounds []time.Time
	for i := range answers {
		at := time.Duration(i+1) * each
		c.answered(time.Unix(0, 0).Add(at), at)
		if b := c.recoverBefore(at); len(bounds) == 0 || !b.Equal(bounds[len(bounds)-1]) {
			bounds = append(bounds, b)
		}
	}
	if want := 1 + (answers-1)/(gapsMost+1); len(bounds) != want {
		t.Errorf("the bound moved %d times in %d late answers, want %d", len(bounds), answers, want)
	}
}
