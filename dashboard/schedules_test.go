package dashboard

import (
	"strings"
	"testing"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

func TestASpecIsReadAsPeopleWriteIt(t *testing.T) {
	for spec, want := range map[string]string{
		"every 5m0s": "every 5 m", "every 1h0m0s": "every 1 h", "every 1h30m0s": "every 1 h 30 m",
		"every 1h0m5s": "every 1 h 0 m 5 s", "every 1.5s": "every 1.5 s", "cron 0 3 * * sat": "cron 0 3 * * sat",
		"every 1h0m0s jitter 30m0s": "every 1 h jitter 30 m",
	} {
		c := scheduleView{&survey.Schedule{Declaration: storage.Declaration{Spec: spec}}}
		if got := strings.ReplaceAll(c.Spec(), format.NBSP, " "); got != want {
			t.Errorf("%q: got %q, want %q", spec, got, want)
		}
	}
}
