package redis

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// queuesListed returns the names that Queues lists.
func queuesListed(t *testing.T, s *Storage) string {
	t.Helper()
	page, err := s.Queues(t.Context(), storage.QueuesQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(page.Names, " ")
}

// TestARefusedTxLeavesNoQueue: its queue is not on the list afterwards, unless others use it.
func TestARefusedTxLeavesNoQueue(t *testing.T) {
	s, _ := openMini(t)
	refused := func(queue string) storage.Tx {
		tx := insertOf(queue, "refused")
		tx.Depends = []storage.Depend{{Ref: storage.Ref{Queue: queue, ID: "missing"}, Version: 1}}
		return tx
	}
	apply := func(txs ...storage.Tx) []storage.Applied {
		t.Helper()
		applied, err := s.Apply(t.Context(), storage.Call{}, txs...)
		if err != nil {
			t.Fatal(err)
		}
		return applied
	}
	if a := apply(refused("mail")); a[0].Err == nil {
		t.Fatal("the Tx was not refused")
	}
	if got := queuesListed(t, s); got != "" {
		t.Errorf("after a refused Tx there are the queues %q", got)
	}
	apply(refused("mail"), insertOf("bulk", "a"), refused("bulk"), insertOf("mail", "a"))
	apply(refused("mail"), refused("few"))
	if got := queuesListed(t, s); got != "bulk mail" {
		t.Errorf("there are the queues %q, want bulk and mail", got)
	}
	// The queue is new to another process; and another process uses it before unregister.
	other, err := Open(t.Context(), Config{Client: s.client})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if _, err := other.Apply(t.Context(), storage.Call{}, refused("mail")); err != nil {
		t.Fatal(err)
	}
	fresh, err := s.register(t.Context(), []storage.Tx{refused("few")})
	if err != nil || len(fresh) != 1 {
		t.Fatal(fresh, err)
	}
	if _, err := other.Apply(t.Context(), storage.Call{}, insertOf("few", "a")); err != nil {
		t.Fatal(err)
	}
	s.unregister(t.Context(), fresh, []storage.Tx{refused("few")}, []storage.Applied{{Err: storage.ErrSpan}}, nil)
	if got := queuesListed(t, s); got != "bulk few mail" {
		t.Errorf("there are the queues %q, want all that are in use", got)
	}
}

// TestATxThatDoesNotSpanFailsAlone: the other Txs of its call happen.
func TestATxThatDoesNotSpanFailsAlone(t *testing.T) {
	s, _ := openSlots(t)
	both := insertOf("mail", "b")
	both.Inserts = append(both.Inserts, insertOf("bulk", "b").Inserts...)
	for call, txs := range map[uint64][]storage.Tx{
		1: {insertOf("mail", "a"), both, insertOf("bulk", "c")}, 2: {both}, 3: {both, both, insertOf("few", "d")},
	} {
		for range 2 {
			applied, err := s.Apply(t.Context(), callOf(call), txs...)
			if err != nil || len(applied) != len(txs) {
				t.Fatalf("call %d: %v, %v", call, applied, err)
			}
			for i, a := range applied {
				if across := len(txs[i].Inserts) > 1; errors.Is(a.Err, storage.ErrSpan) != across || !across && a.Err != nil {
					t.Errorf("call %d: Tx %d gave %v", call, i, a.Err)
				}
			}
		}
	}
	if got := strings.Fields(queuesListed(t, s)); !slices.Equal(got, []string{"bulk", "few", "mail"}) {
		t.Errorf("there are the queues %q", got)
	}
}

// TestARefusedTxTakesNoSettingsOffTheList: a queue that holds nothing but a pause stays listed.
func TestARefusedTxTakesNoSettingsOffTheList(t *testing.T) {
	s, _ := openMini(t)
	paused := storage.Settings{Pause: &storage.Pause{On: true}}
	if err := s.Configure(t.Context(), storage.Call{}, "mail", paused); err != nil {
		t.Fatal(err)
	}
	tx := insertOf("mail", "refused")
	tx.Depends = []storage.Depend{{Ref: storage.Ref{Queue: "mail", ID: "missing"}, Version: 1}}
	if applied, err := s.Apply(t.Context(), storage.Call{}, tx); err != nil || applied[0].Err == nil {
		t.Fatalf("got %+v, %v, want a refusal", applied, err)
	}
	if got := queuesListed(t, s); got != "mail" {
		t.Errorf("there are the queues %q, want the one that is paused", got)
	}
}

// TestAnExpiredLaneLeavesNoQueue: its queue is not on the list, because nothing of its call happened.
func TestAnExpiredLaneLeavesNoQueue(t *testing.T) {
	s, _ := openMini(t)
	expired := callOf(1)
	expired.Lane.Opened = time.Now().Add(-2 * storage.LaneLife)
	if _, err := s.Apply(t.Context(), expired, insertOf("mail", "a")); !errors.Is(err, storage.ErrLaneExpired) {
		t.Errorf("apply: got %v, want %v", err, storage.ErrLaneExpired)
	}
	paused := storage.Settings{Pause: &storage.Pause{On: true}}
	if err := s.Configure(t.Context(), expired, "bulk", paused); !errors.Is(err, storage.ErrLaneExpired) {
		t.Errorf("pause: got %v, want %v", err, storage.ErrLaneExpired)
	}
	if got := queuesListed(t, s); got != "" {
		t.Errorf("there are the queues %q, want none", got)
	}
}

// TestARefusedTxLeavesNothingButItsLane: no other key of its queues, even if another Tx of the call is carried out.
func TestARefusedTxLeavesNothingButItsLane(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		s, server := openMini(t)
		s.cluster, s.keys.shared = cluster, !cluster
		var txs []storage.Tx
		for _, queue := range []string{"fresh", "other"} {
			tx := insertOf(queue, "a")
			tx.Depends = []storage.Depend{{Ref: storage.Ref{Queue: queue, ID: "nope"}, Version: 7}}
			txs = append(txs, tx)
		}
		applied, err := s.Apply(t.Context(), callOf(1), txs...)
		if err != nil || applied[0].Err == nil || applied[1].Err == nil {
			t.Fatalf("got %+v, %v, want refusals", applied, err)
		}
		for _, key := range server.Keys() {
			if key != s.keys.global("layout") && !strings.HasSuffix(key, ":lanes") && !strings.HasSuffix(key, ":opened") {
				t.Errorf("the refused transactions have left %s", key)
			}
		}
		again, err := s.Apply(t.Context(), callOf(1), txs...)
		if err != nil || !reflect.DeepEqual(again, applied) {
			t.Errorf("a repeat returned %+v, %v, want %+v", again, err, applied)
		}
		if _, err := s.Apply(t.Context(), callOf(2), insertOf("mail", "a"), txs[0]); err != nil {
			t.Fatal(err)
		}
		if key := s.keys.key("fresh", 0); server.Exists(key) {
			t.Errorf("a refused transaction beside another one has left %s", key)
		}
	}
}

// TestARefusedTxTakesNoQueueOfOthersOffTheList: also if their calls began before it and end after it.
func TestARefusedTxTakesNoQueueOfOthersOffTheList(t *testing.T) {
	none, done := []storage.Applied{{Err: storage.ErrSpan}}, []storage.Applied{{}}
	for _, order := range [][2][]storage.Applied{{none, done}, {done, none}, {none, none}} {
		s, _ := openMini(t)
		txs := []storage.Tx{insertOf("mail", "a")}
		var fresh [2][]string
		for i := range fresh {
			var err error
			if fresh[i], err = s.register(t.Context(), txs); err != nil || len(fresh[i]) != 1 {
				t.Fatal(fresh[i], err)
			}
		}
		want := ""
		for i := range fresh {
			s.unregister(t.Context(), fresh[1-i], txs, order[i], nil)
			if order[i][0].Err == nil {
				want = "mail"
			}
		}
		if got := queuesListed(t, s); got != want {
			t.Errorf("after %v there are the queues %q, want %q", order, got, want)
		}
	}
}

// TestAQueueThatAnotherProcessRemovedIsListedOnceFilled: by each verb that fills a queue, though this
// process remembers that it put the queue on the list.
func TestAQueueThatAnotherProcessRemovedIsListedOnceFilled(t *testing.T) {
	insert, bulk := insertOf("mail", "a"), insertOf("mail", "b")
	for i := range partOps {
		bulk.Inserts = append(bulk.Inserts, insertOf("mail", fmt.Sprint("c", i)).Inserts...)
	}
	configure := func(settings storage.Settings) func(*testing.T, *Storage, int64) error {
		return func(t *testing.T, s *Storage, _ int64) error {
			return s.Configure(t.Context(), storage.Call{}, "mail", settings)
		}
	}
	apply := func(txs ...storage.Tx) func(*testing.T, *Storage, int64) error {
		return func(t *testing.T, s *Storage, _ int64) error {
			_, err := s.Apply(t.Context(), callOf(4), txs...)
			return err
		}
	}
	for name, fill := range map[string]func(*testing.T, *Storage, int64) error{
		"insert": apply(insert), "bulk": apply(bulk), "several": apply(insertOf("bulk", "b"), insert, bulk),
		"pause":  configure(storage.Settings{Pause: &storage.Pause{On: true}}),
		"create": configure(storage.Settings{Create: true}),
		"move": func(t *testing.T, s *Storage, version int64) error {
			ref := storage.Ref{Queue: "bulk", ID: "stays"}
			moved := storage.Tx{Changes: []storage.Change{{Ref: ref, Version: version, Queue: "mail"}}}
			return apply(moved)(t, s, 0)
		},
		"insert after a stale completion": func(t *testing.T, s *Storage, _ int64) error {
			stale := storage.Fence{Ref: storage.Ref{Queue: "mail", ID: "a"}, Version: 1}
			tx := storage.Tx{Settles: []storage.Settle{{Fence: stale, Outcome: storage.Complete}}}
			if applied, err := s.Apply(t.Context(), callOf(4), tx); err != nil || applied[0].Err == nil {
				return fmt.Errorf("the stale completion gave %v, %w", applied, err)
			}
			_, err := s.Apply(t.Context(), callOf(5), insert)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := openMini(t)
			if err := fill(t, s, removedElsewhere(t, s)); err != nil {
				t.Fatal(err)
			}
			if got := queuesListed(t, s); !strings.Contains(got, "mail") {
				t.Errorf("the queue was filled, and there are the queues %q", got)
			}
		})
	}
}

// removedElsewhere fills the queues bulk and mail by s, and has another Storage, as another process, remove
// mail again. It returns the version of the task bulk/stays.
func removedElsewhere(t *testing.T, s *Storage) int64 {
	t.Helper()
	other, err := Open(t.Context(), Config{Client: s.client})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	var version [2]int64
	for i, queue := range []string{"bulk", "mail"} {
		applied, err := s.Apply(t.Context(), callOf(uint64(i)+1), insertOf(queue, "stays"))
		if err != nil {
			t.Fatal(err)
		}
		version[i] = applied[0].Inserted[0].Version
	}
	gone := storage.Delete{Ref: storage.Ref{Queue: "mail", ID: "stays"}, Version: version[1]}
	if _, err := s.Apply(t.Context(), callOf(3), storage.Tx{Deletes: []storage.Delete{gone}}); err != nil {
		t.Fatal(err)
	}
	if err := other.Configure(t.Context(), storage.Call{}, "mail", storage.Settings{Remove: true}); err != nil {
		t.Fatal(err)
	}
	if got := queuesListed(t, s); got != "bulk" {
		t.Fatalf("after the removal there are the queues %q", got)
	}
	return version[0]
}

// TestARepeatListsItsQueue: the reply of the try that made the queue was lost.
func TestARepeatListsItsQueue(t *testing.T) {
	s, _ := openMini(t)
	for range 2 {
		if _, err := s.Apply(t.Context(), callOf(1), insertOf("mail", "a")); err != nil {
			t.Fatal(err)
		}
		if got := queuesListed(t, s); got != "mail" {
			t.Fatalf("there are the queues %q", got)
		}
		// As if another process had removed the queue before the try whose reply was lost.
		if err := s.client.ZRem(t.Context(), s.keys.global("queues"), "mail").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestARepeatedRemovalListsAQueueThatIsThereAgain: another process filled it after the first try.
func TestARepeatedRemovalListsAQueueThatIsThereAgain(t *testing.T) {
	s, _ := openMini(t)
	if err := s.Configure(t.Context(), callOf(1), "mail", storage.Settings{Create: true}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Configure(t.Context(), callOf(2), "mail", storage.Settings{Remove: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(t.Context(), storage.Call{}, insertOf("mail", "a")); err != nil {
			t.Fatal(err)
		}
		if got := queuesListed(t, s); got != "mail" {
			t.Errorf("there are the queues %q", got)
		}
	}
}

// TestAnAbandonedQueueLeavesTheList, although another process has put it on the list later than a step has noted its
// use, or every minute for a Tx that is refused.
func TestAnAbandonedQueueLeavesTheList(t *testing.T) {
	for _, refused := range []bool{false, true} {
		s, server := openMini(t)
		now := time.Now()
		server.SetTime(now)
		if _, err := s.Apply(t.Context(), storage.Call{}, insertOf("mail", "a")); err != nil {
			t.Fatal(err)
		}
		other, err := Open(t.Context(), Config{Client: s.client})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		tx := insertOf("mail", "b")
		if refused {
			tx.Depends = []storage.Depend{{Ref: storage.Ref{Queue: "mail", ID: "missing"}, Version: 1}}
		}
		server.SetTime(now.Add(touchEvery - time.Second))
		if _, err := other.Apply(t.Context(), storage.Call{}, tx); err != nil {
			t.Fatal(err)
		}
		for _, f := range claims(t, s, 2).Fences {
			done := storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}}
			if _, err := s.Apply(t.Context(), storage.Call{}, done); err != nil {
				t.Fatal(err)
			}
		}
		for range queueLife / (5 * time.Minute) {
			now = now.Add(5 * time.Minute)
			server.SetTime(now)
			claims(t, s, 1)
		}
		server.SetTime(now.Add(2 * touchEvery))
		claims(t, s, 1)
		if got := queuesListed(t, s); got != "" || anyKey(server) {
			t.Errorf("refused %v: after a day there are the queues %q and the keys %v, want none", refused, got, server.Keys())
		}
	}
}

// TestAWaitLeavesNoKeyOfAMissingQueue: a Wait marks its process as idle only in a queue that there is.
func TestAWaitLeavesNoKeyOfAMissingQueue(t *testing.T) {
	s, server := openMini(t)
	const idle = "midge:{mail}:idle"
	s.passOn("mail", s.wake.process)
	if server.Exists(idle) {
		t.Errorf("there is a key %s of no queue", idle)
	}
	if err := s.Configure(t.Context(), callOf(1), "mail", storage.Settings{Create: true}); err != nil {
		t.Fatal(err)
	}
	s.passOn("mail", s.wake.process)
	if !server.Exists(idle) {
		t.Error("the process is not marked as idle in a queue that there is")
	}
}
