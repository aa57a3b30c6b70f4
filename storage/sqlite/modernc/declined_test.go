package modernc_test

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// knowing returns a request of a runner that knows these kinds.
func knowing(most int, kinds ...string) storage.ClaimRequest {
	req := asking(most, time.Hour)
	req.Kinds = kinds
	return req
}

// declineMail inserts n tasks of the kind "mail" into a partition, each with one byte of payload, and declines them.
func (s *side) declineMail(t *testing.T, partition string, n int) {
	t.Helper()
	var in, out storage.Tx
	for range n {
		j := job(storage.NewID())
		j.Kind, j.Partition, j.Payload, j.Encoding = "mail", partition, []byte{0}, "raw"
		in.Inserts = append(in.Inserts, j)
	}
	_, err := s.session.ApplyOne(t.Context(), in)
	must(t, err)
	c, err := s.session.Claim(t.Context(), knowing(n, "another"))
	must(t, err)
	for _, f := range c.Fences {
		out.Settles = append(out.Settles, storage.Settle{Fence: f, Outcome: storage.Decline})
	}
	if len(out.Settles) != n {
		t.Fatalf("claimed %d tasks to decline, want %d", len(out.Settles), n)
	}
	_, err = s.session.ApplyOne(t.Context(), out)
	must(t, err)
}

// relaxed opens a file with a driver, without a wait for the disk.
func relaxed(t *testing.T, path, driver string) *side {
	t.Helper()
	return opened(t, sqlite.Config{Path: path, Driver: driver, MinLease: time.Second, Relaxed: true})
}

// TestAClaimHasNoPayloadsOfPassedTasksInMemory: a claim takes a task behind 300 of a paused partition, which
// have 75 MiB of payload. It allocates a fraction of these.
func TestAClaimHasNoPayloadsOfPassedTasksInMemory(t *testing.T) {
	const held, payload, most = 300, 256 << 10, 16 << 20
	path := file(t)
	s := relaxed(t, path, modernc.Driver)
	s.declineMail(t, "p", held)
	s.declineMail(t, "", 1)
	s.pause(t, "p", 0)
	execute(t, path, "UPDATE midge_tasks SET record = CAST(record || ? AS BLOB)", make([]byte, payload-1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := s.session.Claim(t.Context(), knowing(5, "mail"))
	runtime.ReadMemStats(&after)
	must(t, err)
	if len(c.Tasks) != 1 || len(c.Tasks[0].Payload) != payload || c.More {
		t.Errorf("claimed %d tasks, more is %t, want the one that is free, whole", len(c.Tasks), c.More)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > most {
		t.Errorf("the claim allocated %d MiB, want at most %d", allocated>>20, most>>20)
	}
}

// TestALargeTaskOfAPartitionIsWhole claims, changes and claims again tasks with large payloads and headers in a
// partition, whose rows are read in parts.
func TestALargeTaskOfAPartitionIsWhole(t *testing.T) {
	s := relaxed(t, file(t), modernc.Driver)
	var want [3]storage.Insert
	for i := range want {
		want[i] = job(fmt.Sprint("large", i))
		want[i].Partition, want[i].Encoding = "p", "raw"
		want[i].Payload = bytes.Repeat([]byte(fmt.Sprint("payload ", i)), 20_000)
	}
	want[1].Headers = map[string]string{"long": strings.Repeat("h", storage.MaxHeaderBytes-10)}
	want[2].Headers, want[2].Payload = want[1].Headers, nil
	_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: want[:]})
	must(t, err)
	for _, outcome := range []storage.Outcome{storage.Release, storage.Decline, storage.Release, storage.Complete} {
		c, err := s.session.Claim(t.Context(), knowing(9, "kind"))
		must(t, err)
		if len(c.Tasks) != len(want) {
			t.Fatalf("claimed %d tasks before %s, want %d", len(c.Tasks), outcome, len(want))
		}
		var tx storage.Tx
		for i := range c.Tasks {
			got := &c.Tasks[i]
			in := &want[got.ID[len(got.ID)-1]-'0']
			if !bytes.Equal(got.Payload, in.Payload) || !maps.Equal(got.Headers, in.Headers) || got.Kind != in.Kind {
				t.Errorf("before %s: task %s is not as it was inserted", outcome, got.ID)
			}
			tx.Settles = append(tx.Settles, storage.Settle{Fence: c.Fences[i], Outcome: outcome})
		}
		_, err = s.session.ApplyOne(t.Context(), tx)
		must(t, err)
	}
}

// TestADamagedTaskHidesNoneOfItsKind: a claim takes a task behind many of a paused partition, one of which is damaged.
func TestADamagedTaskHidesNoneOfItsKind(t *testing.T) {
	path := file(t)
	s := relaxed(t, path, modernc.Driver)
	s.declineMail(t, "p", 300)
	s.declineMail(t, "", 1)
	s.pause(t, "p", 0)
	execute(t, path, "UPDATE midge_tasks SET record = 'garbage' "+
		"WHERE task = (SELECT task FROM midge_tasks ORDER BY sort LIMIT 1 OFFSET 50)")
	c, err := s.session.Claim(t.Context(), knowing(5, "mail"))
	must(t, err)
	if len(c.Tasks) != 1 || c.More {
		t.Errorf("claimed %d tasks, more is %t, want the one that is free", len(c.Tasks), c.More)
	}
}
