package dashboard

import (
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/ledger"
)

// TestWhatWaitedForLessThanASecondWaited checks a time that the history, which has whole seconds, rounds to
// zero.
func TestWhatWaitedForLessThanASecondWaited(t *testing.T) {
	for _, c := range []struct {
		waiting int64
		oldest  time.Duration
		want    string
	}{{0, 0, "–"}, {8, 0, "< 1 s"}, {8, 5 * time.Second, "5 s"}, {0, 5 * time.Second, "5 s"}} {
		got := oldestSeen(ledger.Totals{Waiting: c.waiting, Oldest: c.oldest})
		if strings.ReplaceAll(got, format.NBSP, " ") != c.want {
			t.Errorf("at most %d waited, for %v: got %q, want %q", c.waiting, c.oldest, got, c.want)
		}
	}
}
