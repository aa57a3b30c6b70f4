package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestDueTasksAreClaimedWhereTheyStand has tasks due where nothing waits: what is claimed
// of them was not promoted before, and what has no room in the claim stays where it is
// until something waits.
func TestDueTasksAreClaimedWhereTheyStand(t *testing.T) {
	const tasks, room = 5, 3 // a record is a little more than its payload
	s := newShop(t)
	for range tasks {
		in := insertOf(storage.NewID())
		in.Payload, in.Delay = make([]byte, storage.MaxClaimBytes/(room+1)), time.Millisecond
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
	}
	testserver.Await(t, "they are due", func() (due bool) {
		s.must(s.db.QueryRowContext(t.Context(), "SELECT "+s.cfg.Schema+".told() > max(sort) FROM "+
			s.cfg.Schema+".tasks").Scan(&due))
		return due
	})
	sizes := func() string {
		got := s.stats()
		return fmt.Sprint("waiting ", got.Waiting, ", pending ", got.Pending, ", scheduled ", got.Scheduled)
	}
	s.want("claimed", len(s.claim(10).Tasks), room)
	s.want("sizes", sizes(), "waiting 0, pending 3, scheduled 2")
	waits := insertTx()
	s.apply(s.store, waits)
	s.want("claimed first", s.claim(1).Tasks[0].Ref, waits.Inserts[0].Ref)
	s.want("sizes", sizes(), "waiting 2, pending 4, scheduled 0")
}
