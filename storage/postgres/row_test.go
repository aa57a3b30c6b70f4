package postgres

import (
	"testing"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

func TestPastsReadAsWritten(t *testing.T) {
	for _, want := range []row{
		{Record: engine.Record{Version: 9, Past: engine.Past{Created: 9}}},
		{Record: engine.Record{Version: 9, Past: engine.Past{Created: 3}}},
		{Record: engine.Record{Version: 9, Past: engine.Past{Created: 9}}, was: origin{table: inTasks}},
		{Record: engine.Record{Version: 9, Past: engine.Past{Created: 3, Retries: 300, Reason: "é"}}},
	} {
		if got, err := unpackPast(packPast(&want), 9); err != nil || got != want.Past {
			t.Errorf("got %+v, %v, want %+v", got, err, want.Past)
		}
	}
	if _, err := unpackPast([]byte("short"), 9); err == nil {
		t.Error("a past without its beginning was read")
	}
}

func TestIDsReadAsWritten(t *testing.T) {
	for _, id := range []string{
		storage.NewID(), "a", "0123456789abcdef", "zzzzzzzzzzzzzzzzzzzzzzzzzz", "00000000000000000000000000",
		"0000000000000000000000000V", "06LHQ3M0AVOFK6HV9M8T4LL1SK",
	} {
		if got := unpackID(packID(id)); got != id {
			t.Errorf("got %q, want %q", got, id)
		}
	}
	if n := len(packID(storage.NewID())); n != 16 {
		t.Errorf("an id that was made takes %d bytes, want 16", n)
	}
}
