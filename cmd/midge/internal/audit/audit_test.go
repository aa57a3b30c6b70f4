package audit

import (
	"testing"

	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// TestARecordSaysWhichStatesAnActionWasOn also if the command names none.
func TestARecordSaysWhichStatesAnActionWasOn(t *testing.T) {
	for _, c := range []struct {
		verb   bulk.Verb
		filter string
		states []storage.State
		want   string
	}{
		{bulk.Delete, "kind:x", nil, "state:waiting,scheduled,retry kind:x"},
		{bulk.Requeue, "", nil, "state:dead"},
		{bulk.Cancel, "kind:x", nil, "state:waiting,pending,scheduled,retry kind:x"},
		{bulk.Delete, "state:dead kind:x", nil, "state:dead kind:x"},
		{bulk.Delete, "kind:x", []storage.State{storage.Dead}, "state:dead kind:x"},
	} {
		f, err := filter.Parse(c.filter)
		if err != nil {
			t.Fatal(err)
		}
		e := entryOf(bulk.Request{Action: bulk.Action{Verb: c.verb}, Scan: scan.Request{Filter: f, States: c.states}})
		if again, err := filter.Parse(e.Filter); e.Filter != c.want || err != nil || len(again.States()) == 0 {
			t.Errorf("%s %q: got %q, %v, want %q", c.verb, c.filter, e.Filter, err, c.want)
		}
	}
}
