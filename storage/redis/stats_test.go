package redis

import (
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestAKeyOfAWrongTypeCountsAsDamaged checks each key of a queue whose size Stats reads: a key of a wrong type adds one
// to the damaged, and hides no other size.
func TestAKeyOfAWrongTypeCountsAsDamaged(t *testing.T) {
	s, server := openMini(t)
	session := storage.NewSession(s, testserver.Patience)
	later := insertOf("mail", "b")
	later.Inserts[0].Delay = time.Hour
	_, err := session.Apply(t.Context(), insertOf("mail", "a"), later)
	if err != nil {
		t.Fatal(err)
	}
	for at, suffix := range suffixes {
		key := s.keys.key("mail", at)
		if at == lanesKey || at == openedKey || server.Exists(key) {
			continue
		}
		if err := server.Set(key, "of a wrong type"); err != nil {
			t.Fatal(err)
		}
		stats, err := s.Stats(t.Context(), "mail")
		if err != nil {
			t.Fatalf("%s: %v", suffix, err)
		}
		if q := stats[0]; q.Damaged != 1 || q.Waiting != 1 || q.Scheduled != 1 || q.Totals.Enqueued != 2 {
			t.Errorf("%s: got %+v, want one damaged, one waiting and one scheduled of two", suffix, q)
		}
		server.Del(key)
	}
}
