package redis

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// newEnded buries a task x of the queue mail and damages its record. The queue has a line if others
// is not 0.
func newEnded(t *testing.T, record string, others int) (*Storage, *miniredis.Miniredis, *storage.Session) {
	t.Helper()
	s, server := openMini(t)
	session := storage.NewSession(s, testserver.Patience)
	apply(t, session, insertOf("mail", "x"))
	claimed, err := session.Claim(t.Context(), asking(storage.Call{}, 1, "mail"))
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatal(claimed, err)
	}
	apply(t, session, storage.Tx{Settles: []storage.Settle{{Fence: claimed.Fences[0], Outcome: storage.Bury}}})
	for i := range others {
		apply(t, session, insertOf("mail", fmt.Sprintf("other%d", i)))
	}
	if record == "" { // the record loses only its place
		whole := []byte(server.HGet("midge:{mail}:tasks", "x"))
		whole[2] -= hasPlace
		record = string(whole)
	}
	server.HSet("midge:{mail}:tasks", "x", record)
	return s, server, session
}

func apply(t *testing.T, session *storage.Session, txs ...storage.Tx) {
	t.Helper()
	applied, err := session.Apply(t.Context(), txs...)
	for i := range applied {
		err = errors.Join(err, applied[i].Err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestATaskWithADamagedRecordKeepsItsID: the record does not show in which state the task is. So no
// script inserts another task under its id, and nothing changes the task.
func TestATaskWithADamagedRecordKeepsItsID(t *testing.T) {
	x, bulk := storage.Ref{Queue: "mail", ID: "x"}, storage.Ref{Queue: "bulk", ID: "x"}
	later, ranked := insertOf("mail", "x"), insertOf("mail", "x")
	later.Inserts[0].Delay = time.Hour
	ranked.Inserts[0].Priority = 1
	many := []storage.Tx{insertOf("mail", "x"), insertOf("mail", "y"), insertOf("mail", "z")}
	whole := storage.Tx{Inserts: []storage.Insert{insertOf("mail", "v").Inserts[0], insertOf("mail", "x").Inserts[0]}}
	moved := storage.Tx{Changes: []storage.Change{{Ref: bulk, Queue: "mail"}}}
	taken := &storage.DependencyError{Colliding: []storage.Collision{{Ref: x, Holder: x}}}
	movedTo := &storage.DependencyError{Colliding: []storage.Collision{{Ref: bulk, Holder: x}}}
	missing := &storage.DependencyError{Missing: []storage.Ref{x}}
	for name, c := range map[string]struct {
		txs  []storage.Tx
		want *storage.DependencyError
	}{
		"one insert":          {[]storage.Tx{insertOf("mail", "x")}, taken},
		"an insert in front":  {[]storage.Tx{ranked}, taken},
		"many inserts":        {many, taken},
		"inserts of one Tx":   {[]storage.Tx{whole}, taken},
		"an insert for later": {[]storage.Tx{later}, taken},
		"a move":              {[]storage.Tx{moved}, movedTo},
		"a delete":            {[]storage.Tx{{Deletes: []storage.Delete{{Ref: x, Version: 1}}}}, missing},
		"a change":            {[]storage.Tx{{Changes: []storage.Change{{Ref: x, Version: 1, Headers: map[string]string{}}}}}, missing},
		"a requeue":           {[]storage.Tx{{Changes: []storage.Change{{Ref: x, Version: 1, Requeue: true}}}}, missing},
	} {
		for damage, record := range map[string]string{"garbage": "\xff\x00zz", "no place": ""} {
			for others := range 2 {
				t.Run(fmt.Sprintf("%s, %s, %d others", name, damage, others), func(t *testing.T) {
					s, _, session := newEnded(t, record, others)
					apply(t, session, insertOf("bulk", "x"))
					task, err := s.Task(t.Context(), bulk)
					if err != nil {
						t.Fatal(err)
					}
					moved.Changes[0].Version = task.Version
					applied, err := session.Apply(t.Context(), c.txs...)
					var got *storage.DependencyError
					if err != nil || !errors.As(applied[0].Err, &got) || !reflect.DeepEqual(got, c.want) {
						t.Errorf("got %+v, %v, want %+v", applied, err, c.want)
					}
					stats, err := s.Stats(t.Context(), "mail")
					waiting := int64(others + len(applied) - 1)
					if err != nil || stats[0].Dead != 1 || stats[0].Waiting != waiting || stats[0].Scheduled != 0 {
						t.Errorf("got %+v, %v, want one dead and %d waiting", stats, err, waiting)
					}
				})
			}
		}
	}
}

// TestADamagedRecordIsSetApartAtItsExpiry: then it counts as damaged, and its id is free again.
func TestADamagedRecordIsSetApartAtItsExpiry(t *testing.T) {
	s, server, session := newEnded(t, "\xff\x00zz", 0)
	server.SetTime(time.Now().Add(s.limits.DeadFor + time.Hour))
	for range 2 { // the clock jumped
		if _, err := session.Claim(t.Context(), asking(storage.Call{}, 1, "mail")); err != nil {
			t.Fatal(err)
		}
		server.SetTime(time.Now().Add(s.limits.DeadFor + time.Hour + time.Minute))
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Dead != 0 || stats[0].Damaged != 1 {
		t.Errorf("got %+v, %v, want one damaged and none dead", stats, err)
	}
	if got := server.HGet("midge:{mail}:damaged", "x"); got != "\xff\x00zz" {
		t.Errorf("set apart is %q", got)
	}
}
