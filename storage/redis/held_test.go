package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// someVoid bounds the void entries of a line that a step of these tests passes over: a tenth of the bound of production.
const someVoid = 50

// holding opens a storage on a miniredis, declines tasks of mail, and pauses its partition p, which has a waiting task.
func holding(t *testing.T, declined ...storage.Tx) *storage.Session {
	t.Helper()
	server := miniredis.RunT(t)
	s, err := Open(t.Context(), Config{URL: "redis://" + server.Addr(), ways: ways{mostVoid: someVoid}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	session := storage.NewSession(s, testserver.Patience)
	for some := range slices.Chunk(declined, 50) {
		insertAll(t, session, some...)
		var declines []storage.Tx
		for len(declines) < len(some) {
			c, err := session.Claim(t.Context(), claimOfKind("another", len(some)))
			if err != nil || len(c.Fences) == 0 {
				t.Fatalf("claimed %d, %v, want some", len(c.Fences), err)
			}
			for _, f := range c.Fences {
				declines = append(declines, settleOf(f, storage.Decline))
			}
		}
		slices.SortFunc(declines, func(a, b storage.Tx) int {
			return strings.Compare(a.Settles[0].Fence.ID, b.Settles[0].Fence.ID)
		})
		insertAll(t, session, declines...)
	}
	insertAll(t, session, keyedOf("p", "p0"))
	settings := storage.Settings{Partition: "p", Pause: &storage.Pause{On: true}}
	if err := session.Configure(t.Context(), "mail", settings); err != nil {
		t.Fatal(err)
	}
	return session
}

// fillLine inserts so many tasks into mail, and cancels the first of them.
func fillLine(t *testing.T, session *storage.Session, tasks, cancelled int) {
	t.Helper()
	var inserts, cancels []storage.Tx
	for i := range tasks {
		tx := insertOf("mail", fmt.Sprintf("t%04d", i))
		inserts = append(inserts, tx)
		if i < cancelled {
			change := storage.Change{Ref: tx.Inserts[0].Ref, Cancel: true}
			cancels = append(cancels, storage.Tx{Changes: []storage.Change{change}})
		}
	}
	insertAll(t, session, inserts...)
	for some := range slices.Chunk(cancels, 50) {
		insertAll(t, session, some...)
	}
}

// kindOf is the insert of a task of a kind into mail, in a partition.
func kindOf(kind, key, id string) storage.Tx {
	tx := keyedOf(key, id)
	tx.Inserts[0].Kind = kind
	return tx
}

// takes claims tasks of some kinds one by one until a claim does not set More, and returns them. Few claims take none.
func takes(t *testing.T, session *storage.Session, kinds ...string) (ids []string) {
	t.Helper()
	for none, more := 0, true; more; {
		req := claimOfKind("job", 1)
		req.Kinds = append(req.Kinds, kinds...)
		c, err := session.Claim(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Fences) == 0 {
			if none++; none > 10 {
				t.Fatalf("%d claims have taken nothing, and More is set", none)
			}
		}
		for _, f := range c.Fences {
			ids = append(ids, f.ID)
		}
		more = c.More
	}
	return ids
}

// TestVoidEntriesHideNoTaskBesideAPartition: a claim that meets nothing but void entries reports that there is more.
func TestVoidEntriesHideNoTaskBesideAPartition(t *testing.T) {
	const tasks, cancelled = 300, 120
	session := holding(t)
	fillLine(t, session, tasks, cancelled)
	if got := takes(t, session); len(got) != tasks-cancelled {
		t.Errorf("claimed %d tasks, want %d", len(got), tasks-cancelled)
	}
}

// TestHeldTasksHideNoTaskBehindATurn: a claim that ends before the turn of the tasks without a partition
// reports the tasks behind many held ones.
func TestHeldTasksHideNoTaskBehindATurn(t *testing.T) {
	const kinds, each = 5, 30
	for _, cancelled := range []int{0, 1} {
		var txs []storage.Tx
		for i := range kinds * each {
			txs = append(txs, kindOf(fmt.Sprint("kind", i%kinds), "p", fmt.Sprintf("held%03d", i)))
		}
		session := holding(t, txs...)
		fillLine(t, session, 2+cancelled, cancelled)
		insertAll(t, session, keyedOf("a", "a0"))
		got := takes(t, session, "kind0", "kind1", "kind2", "kind3", "kind4")
		slices.Sort(got)
		if want := []string{"a0", fmt.Sprintf("t%04d", cancelled), fmt.Sprintf("t%04d", cancelled+1)}; !slices.Equal(got, want) {
			t.Errorf("%d cancelled: claimed %v, want %v", cancelled, got, want)
		}
	}
}

// TestAHeldTaskLetsNoneOvertake: the tasks that a claim reads on behind a held task do not come before tasks
// of a higher priority that it has not read.
func TestAHeldTaskLetsNoneOvertake(t *testing.T) {
	const tasks, cancelled = 300, 120
	low := kindOf("kind", "", "low")
	low.Inserts[0].Priority = -5
	session := holding(t, kindOf("kind", "p", "held"), low)
	fillLine(t, session, tasks, cancelled)
	got := takes(t, session, "kind")
	if len(got) != tasks-cancelled+1 || got[len(got)-1] != "low" {
		t.Errorf("claimed %d tasks, low as number %d, want it as the last of %d",
			len(got), slices.Index(got, "low")+1, tasks-cancelled+1)
	}
}
