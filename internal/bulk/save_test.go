package bulk

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// rereads is a storage in which something happens before the first read of a single task.
type rereads struct {
	storage.Storage

	happens func()
}

func (r *rereads) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if r.happens != nil {
		r.happens()
		r.happens = nil
	}
	return r.Storage.Task(ctx, ref)
}

// TestOnlyListedTasksAreSaved checks a task that changes and a task that goes between the listing and the
// reading, and a task that runs.
func TestOnlyListedTasksAreSaved(t *testing.T) {
	r := open(t)
	r.insert("a", 1, nil)
	r.claim(t.Context(), storage.ClaimRequest{Start: 1, Lease: time.Hour})
	r.insert("b", 4, nil)
	meddles := &rereads{r.store, func() {
		if _, err := Run(t.Context(), r.Session, Request{
			Action: Action{Verb: Prioritise, Priority: 3}, Tasks: Refs(storage.Ref{Queue: "b", ID: "t0001"}),
		}); err != nil {
			t.Error(err)
		}
		if err := r.DeleteTask(t.Context(), storage.Ref{Queue: "b", ID: "t0002"}); err != nil {
			t.Error(err)
		}
	}}
	var file bytes.Buffer
	saved, err := Save(t.Context(), storage.NewSession(meddles, 0), Request{Action: Action{Verb: Delete}, Scan: matching(t, "queue:a,b")}, &file)
	if err != nil || len(saved) != 2 || saved[0].ID != "t0000" || saved[1].ID != "t0003" || saved[0].Version == 0 {
		t.Fatalf("saved %v, %v; want the first and the last task of b", saved, err)
	}
	if lines := strings.Count(file.String(), "\n"); lines != 2 || !strings.Contains(file.String(), `"t0003"`) {
		t.Errorf("the file is %s, want two tasks", file.String())
	}
	got, err := Run(t.Context(), r.Session, Request{Action: Action{Verb: Delete}, Tasks: saved})
	if err != nil || brief(got) != [5]int64{2, 2, 0, 0, 0} || r.count("b", storage.Waiting) != 1 {
		t.Errorf("deleted %+v, %v; want the saved tasks", got, err)
	}
}

// TestASaveTakesAsManyTasksAsTheDeletion checks the limit.
func TestASaveTakesAsManyTasksAsTheDeletion(t *testing.T) {
	r := open(t)
	r.insert("a", 10, nil)
	var file bytes.Buffer
	saved, err := Save(t.Context(), r.Session, Request{Action: Action{Verb: Delete}, Scan: matching(t, "queue:a"), Limit: 3}, &file)
	if err != nil || len(saved) != 3 || strings.Count(file.String(), "\n") != 3 {
		t.Errorf("saved %v, %v; want three tasks", saved, err)
	}
	if _, err := Save(t.Context(), r.Session, Request{Action: Action{Verb: Delete}, Scan: matching(t, "queue:a")}, full{}); err == nil {
		t.Error("a file without room is whole")
	}
}
