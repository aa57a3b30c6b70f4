package bulk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

func TestABackupComesBack(t *testing.T) {
	r := open(t)
	r.insert("a", 250, func(i int, in *storage.Insert) {
		in.Headers, in.Timeout = map[string]string{"n": fmt.Sprint(i)}, time.Minute
		if i == 7 {
			in.At = time.Now().Add(time.Hour).Truncate(time.Microsecond)
			in.Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife}
			in.Partition, in.Cost = "acme", storage.NoCost
			*in = in.CompleteHeaders()
		}
	})
	was := r.task("t0007")
	var backup bytes.Buffer
	got, err := Run(t.Context(), r.Session, Request{Action: Action{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: &backup})
	if err != nil || got.Done != 250 || r.count("a", storage.Waiting) != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	lines := strings.Split(strings.TrimSpace(backup.String()), "\n")
	for _, line := range lines {
		var record Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		in, err := record.Insert()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
			t.Fatal(err)
		}
	}
	is := r.task("t0007")
	is.Version, is.Created, was.Version, was.Created = 0, time.Time{}, 0, time.Time{}
	if len(lines) != 250 || r.count("a", storage.Waiting) != 249 || !reflect.DeepEqual(is, was) {
		t.Errorf("%d lines brought back %+v, was %+v", len(lines), is, was)
	}
	if _, err := (Record{Timeout: "soon"}).Insert(); err == nil {
		t.Error("a timeout that is none was read")
	}
	cost := -1
	if _, err := (Record{Cost: &cost}).Insert(); err == nil {
		t.Error("a cost below 0 was read")
	}
}

// TestAKeptScheduleComesBack checks that a backup has kept schedules, paused or not.
func TestAKeptScheduleComesBack(t *testing.T) {
	r := open(t)
	refs := make([]storage.Ref, 2)
	for i := range refs {
		refs[i] = storage.Ref{Queue: "a", ID: fmt.Sprint(storage.CursorPrefix, i)}
		in := storage.Insert{Ref: refs[i], Kind: "mail", Encoding: "json", Payload: []byte("{}"), CrashLimit: 3}
		schedule.Declare(&in, storage.Declaration{Spec: "every 1h0m0s jitter 30m0s", Kept: true})
		if err := schedule.Set(t.Context(), r.Session, in); err != nil {
			t.Fatal(err)
		}
	}
	if err := schedule.Pause(t.Context(), r.Session, refs[1], true); err != nil {
		t.Fatal(err)
	}
	before := []storage.Task{r.task(refs[0].ID), r.task(refs[1].ID)}
	var backup bytes.Buffer
	got, err := Run(t.Context(), r.Session, Request{Action: Action{Verb: Delete}, Scan: matching(t, "state:cursor"), Backup: &backup})
	if err != nil || got.Done != 2 || r.count("a", storage.Cursors) != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for line := range strings.Lines(backup.String()) {
		var record Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		in, err := record.Insert()
		if err == nil {
			_, err = r.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, ref := range refs {
		if after := r.task(ref.ID); !reflect.DeepEqual(after.Cursor, before[i].Cursor) {
			t.Errorf("%+v came back as %+v", before[i].Cursor, after.Cursor)
		}
		if d, err := r.task(ref.ID).Cursor.Decode(); err != nil || !d.Kept || d.Paused != (i == 1) {
			t.Errorf("%s came back as %+v, %v", ref, d, err)
		}
	}
}

// TestARecordKeepsTheWindowOfItsTask checks the rest of the window at several moments.
func TestARecordKeepsTheWindowOfItsTask(t *testing.T) {
	created := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	window := storage.Unique{Key: "k", Mode: storage.UniqueWindow, For: time.Hour}
	record := RecordOf(storage.Task{Created: created, Unique: window})
	for after, want := range map[time.Duration]storage.Unique{
		0: window, 45 * time.Minute: {Key: "k", Mode: storage.UniqueWindow, For: 15 * time.Minute},
		time.Hour - 1: {}, time.Hour: {}, 24 * time.Hour: {},
	} {
		if got := record.Window(created.Add(after)); got != want {
			t.Errorf("after %v: got %+v, want %+v", after, got, want)
		}
	}
	if in, err := record.Insert(); err != nil || in.Unique != (storage.Unique{}) {
		t.Errorf("got %+v, %v; want the window left to the caller", in.Unique, err)
	}
	life := RecordOf(storage.Task{Created: created, Unique: storage.Unique{Key: "k", Mode: storage.UniqueLife}})
	if got := life.Window(created); got != (storage.Unique{}) {
		t.Errorf("got the window %+v of a key for life", got)
	}
}

// TestABackupTellsWhichTasksWereNotDeleted checks the second line of each task that changed meanwhile, or was
// gone.
func TestABackupTellsWhichTasksWereNotDeleted(t *testing.T) {
	r := open(t)
	r.insert("a", 2*storage.MaxPage, nil)
	meddles := &beforeApply{r.store, func() {
		priority := 5
		alter := func(storage.Task) (storage.Change, error) { return storage.Change{Priority: &priority}, nil }
		if err := r.ChangeTask(t.Context(), storage.Ref{Queue: "a", ID: "t0002"}, alter); err != nil {
			t.Error(err)
		}
		if err := r.DeleteTask(t.Context(), storage.Ref{Queue: "a", ID: "t0003"}); err != nil {
			t.Error(err)
		}
	}}
	var backup bytes.Buffer
	req := Request{Action: Action{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: &backup}
	got, err := Run(t.Context(), storage.NewSession(meddles, 0), req)
	if err != nil || brief(got) != [5]int64{400, 398, 1, 1, 0} {
		t.Fatalf("got %+v, %v", got, err)
	}
	seen := make(map[string]int)
	for line := range strings.Lines(backup.String()) {
		var record Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if seen[record.ID]++; record.NotDeleted != (seen[record.ID] == 2) {
			t.Errorf("line %d of %s: %s", seen[record.ID], record.ID, line)
		}
	}
	if len(seen) != 400 || seen["t0002"] != 2 || seen["t0003"] != 2 || seen["t0001"] != 1 {
		t.Errorf("the backup has %d tasks, and of those that were not deleted %d and %d lines", len(seen), seen["t0002"], seen["t0003"])
	}
}

// restorable returns the ids of the tasks that a restore would bring back.
func restorable(t *testing.T, backup string) map[string]bool {
	t.Helper()
	ids := make(map[string]bool)
	for line := range strings.Lines(backup) {
		var record Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if ids[record.ID] = true; record.NotDeleted {
			delete(ids, record.ID)
		}
	}
	return ids
}

// TestABackupHasNoTaskThatARunDidNotComeTo checks that the backup of a run that failed has the tasks of its
// calls and no others, and reports that the tasks of the failed call were not deleted.
func TestABackupHasNoTaskThatARunDidNotComeTo(t *testing.T) {
	r := open(t)
	r.insert("a", 3*storage.MaxPage, nil)
	var backup bytes.Buffer
	req := Request{Action: Action{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: &backup}
	_, err := Run(t.Context(), storage.NewSession(&dying{r.store, 1}, 0), req)
	not := strings.Count(backup.String(), `"not_deleted"`)
	lines := strings.Count(backup.String(), "\n") - not
	if !errors.Is(err, errDied) || lines != 2*storage.MaxPage || not != storage.MaxPage {
		t.Errorf("%d lines and %d of tasks that were not deleted, %v; want those of the call that failed and of "+
			"the one before", lines, not, err)
	}
	for id := range restorable(t, backup.String()) {
		if _, err := r.store.Task(t.Context(), storage.Ref{Queue: "a", ID: id}); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("a restore brings back %s, which was not deleted: %v", id, err)
		}
	}
}

// synced is a backup in whose Sync something happens.
type synced struct {
	bytes.Buffer

	happens func() error
}

func (s *synced) Sync() error { return s.happens() }

// TestABackupTellsOfARunThatEndedByAnError which of its tasks are surely there: the tasks of a call that was
// refused, but not the tasks of a call whose outcome is not known.
func TestABackupTellsOfARunThatEndedByAnError(t *testing.T) {
	unsynced := errors.New("not synced")
	for _, c := range []struct {
		what string
		sync func(cancel func()) error
		call error
		want int // tasks that a restore would bring back
	}{
		{"stopped by its user", func(cancel func()) error { cancel(); return nil }, nil, 0},
		{"whose backup was not synced", func(func()) error { return unsynced }, nil, 0},
		{"whose storage was full", nil, storage.ErrFull, 0},
		{"with an unknown outcome", nil, storage.ErrUnknown, 10},
	} {
		r := open(t)
		r.insert("a", 10, nil)
		ctx, cancel := context.WithCancel(t.Context())
		backup := &synced{happens: func() error {
			if c.sync == nil {
				return nil
			}
			return c.sync(cancel)
		}}
		session := storage.NewSession(&refusing{r.store, c.call}, -1)
		got, err := Run(ctx, session, Request{Action: Action{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: backup})
		cancel()
		if left := restorable(t, backup.String()); err == nil || got.Done != 0 || len(left) != c.want {
			t.Errorf("a run %s: %+v, %v, and a restore brings back %d tasks, want %d", c.what, got, err, len(left), c.want)
		}
		if lines := strings.Count(backup.String(), "\n"); lines != 20-c.want {
			t.Errorf("a run %s: the backup has %d lines", c.what, lines)
		}
	}
}

// refusing is a storage that fails each change with an error, unless that is nil.
type refusing struct {
	storage.Storage

	err error
}

func (r *refusing) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if r.err != nil {
		return nil, r.err
	}
	return r.Storage.Apply(ctx, call, txs...)
}

// torn is a backup that takes some bytes and then no more for one write.
type torn struct {
	bytes.Buffer

	room int
}

func (w *torn) Write(p []byte) (int, error) {
	if room := w.room; room < len(p) {
		w.room = math.MaxInt
		n, _ := w.Buffer.Write(p[:room])
		return n, errors.New("no room")
	}
	return w.Buffer.Write(p)
}

// TestABrokenLineOfABackupIsItsLast because a restore refuses a backup with a broken line in its midst.
func TestABrokenLineOfABackupIsItsLast(t *testing.T) {
	r := open(t)
	r.insert("a", 10, nil)
	backup := &torn{room: 1000}
	_, err := Run(t.Context(), r.Session, Request{Action: Action{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: backup})
	if err == nil || backup.Len() != 1000 || r.count("a", storage.Waiting) != 10 {
		t.Errorf("got %v and a backup of %d bytes, want the bytes that the first write took", err, backup.Len())
	}
}

// beforeApply is a storage in which something happens right before the first Apply.
type beforeApply struct {
	storage.Storage

	happens func()
}

func (b *beforeApply) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if b.happens != nil {
		b.happens()
		b.happens = nil
	}
	return b.Storage.Apply(ctx, call, txs...)
}

// full is a writer that is out of room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestNothingIsDeletedWithoutItsBackup(t *testing.T) {
	r := open(t)
	r.insert("a", 10, nil)
	got, err := Run(t.Context(), r.Session, Request{Action: Action{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: full{}})
	if err == nil || got.Done != 0 || r.count("a", storage.Waiting) != 10 {
		t.Errorf("got %+v, %v, want nothing deleted", got, err)
	}
}
