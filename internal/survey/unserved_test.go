package survey

import (
	"math"
	"strconv"
	"testing"

	"github.com/midgehq/midge/storage"
)

func TestWhatNeedsARunnerIsSaidInOneSentence(t *testing.T) {
	number := func(n int64) string { return strconv.FormatInt(n, 10) + " " }
	for want, all := range map[string][]storage.Stats{
		"":                                   {{Dead: 3, Completed: 4, Cancelled: 5}},
		"1 waiting":                          {{Waiting: 1}, {Dead: 1}},
		"2 running, 3 schedules not ticking": {{Pending: 1, Cursors: 3}, {Pending: 1}},
		"2 waiting, 1 running, 7 scheduled or retrying, 1 schedule not ticking": {
			{Waiting: 2, Pending: 1, Scheduled: 3, Retry: 4, Cursors: 1},
		},
		"9223372036854775807 waiting": {{Waiting: math.MaxInt64}, {Waiting: 1, Pending: -1}},
	} {
		var u Unserved
		for i := range all {
			u.Add(&all[i])
		}
		if got := u.Text(number); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
