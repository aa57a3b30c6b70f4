package scene_test

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// TestEachCallerOfOpenGetsItsOwnScene opens a scene several times. Each copy begins in the same state at the
// same time by the storage's clock, and shows no change of another copy.
func TestEachCallerOfOpenGetsItsOwnScene(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func() (*scene.Scene, time.Time, storage.Stats) {
			t.Helper()
			sc, err := scene.Open(t.Context(), "calm", 0)
			if err != nil {
				t.Fatal(err)
			}
			d, err := sc.Store.Describe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			stats, err := sc.Store.Stats(t.Context(), "mail")
			if err != nil {
				t.Fatal(err)
			}
			return sc, d.Now, stats[0]
		}
		first, began, before := open()
		if err := first.Add(t.Context(), "mail", "send_welcome", 7, nil); err != nil {
			t.Fatal(err)
		}
		first.Runners[0].Running[0].Kind, first.Runners[0].Queues[0] = "another", "another"
		if stats, err := first.Store.Stats(t.Context(), "mail"); err != nil || stats[0].Waiting != before.Waiting+7 {
			t.Errorf("after 7 tasks more %d wait, %v, want %d", stats[0].Waiting, err, before.Waiting+7)
		}
		time.Sleep(time.Minute) // virtual
		second, now, stats := open()
		if !now.Equal(began) || !reflect.DeepEqual(stats, before) {
			t.Errorf("a minute later a copy begins at %v with %+v, want %v and %+v", now, stats, began, before)
		}
		if r := second.Runners[0]; r.Running[0].Kind == "another" || r.Queues[0] == "another" {
			t.Errorf("a copy has a runner of another: %+v", r)
		}
		time.Sleep(time.Minute) // virtual
		if d, err := second.Store.Describe(t.Context()); err != nil || d.Now.Sub(now) != time.Minute {
			t.Errorf("a minute later the copy has the time %v, %v, want a minute after %v", d.Now, err, now)
		}
	})
}
