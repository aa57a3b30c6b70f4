package dashboard_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// hanging is a storage whose reads can hang until their contexts end.
type hanging struct {
	storage.Storage

	on, tasks atomic.Bool // whether all reads hang, or only the reads of single tasks, such as the history
}

func (h *hanging) wait(ctx context.Context, hangs bool) error {
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (h *hanging) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if err := h.wait(ctx, h.on.Load() || h.tasks.Load()); err != nil {
		return storage.Task{}, err
	}
	return h.Storage.Task(ctx, ref)
}

func (h *hanging) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	if err := h.wait(ctx, h.on.Load()); err != nil {
		return storage.TasksPage{}, err
	}
	return h.Storage.Tasks(ctx, q)
}

func (h *hanging) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	if err := h.wait(ctx, h.on.Load()); err != nil {
		return nil, err
	}
	return h.Storage.Stats(ctx, queues...)
}

func (h *hanging) Partitions(ctx context.Context, q storage.PartitionsQuery) (storage.PartitionsPage, error) {
	if err := h.wait(ctx, h.on.Load()); err != nil {
		return storage.PartitionsPage{}, err
	}
	return h.Storage.Partitions(ctx, q)
}

func (h *hanging) Describe(ctx context.Context) (storage.Description, error) {
	if err := h.wait(ctx, h.on.Load()); err != nil {
		return storage.Description{}, err
	}
	return h.Storage.Describe(ctx)
}

// stuck returns a dashboard that has read the storage once, with a storage that can hang.
func stuck(t *testing.T) (*site, *hanging) {
	t.Helper()
	sc, err := scene.Open(t.Context(), "calm", 0)
	if err != nil {
		t.Fatal(err)
	}
	store := &hanging{Storage: sc.Store}
	h, err := dashboard.Handler(store, as(access.Admin))
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, Scene: sc, Dashboard: h}
	s.get("/queues")
	return s, store
}

// TestAStorageThatHangsHoldsUpNoPage checks that no page takes longer than a read of the storage may.
func TestAStorageThatHangsHoldsUpNoPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := stuck(t)
		store.on.Store(true)
		for path, want := range map[string]int{"/queues": 200, "/": 200, "/queues/mail": 200, "/dead": 200, "/metrics": 503} {
			time.Sleep(2 * sampler.Period) // virtual, so that another read is due
			began := time.Now()
			w := s.do(request(http.MethodGet, path, ""))
			if took := time.Since(began); w.Code != want || took > sampler.LookTimeout {
				t.Errorf("GET %s: %d after %v, want %d within %v", path, w.Code, took, want, sampler.LookTimeout)
			}
		}
	})
}

// slowly is a storage that reads a task in more time than a dialog has.
type slowly struct{ storage.Storage }

func (s slowly) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	time.Sleep(1100 * time.Millisecond)
	return s.Storage.Task(ctx, ref)
}

// TestADialogOnChosenTasksSpeaksOfNoOthers checks dialogs on a storage that is too slow for a preview of all
// chosen tasks.
func TestADialogOnChosenTasksSpeaksOfNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "empty", 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := sc.Add(t.Context(), "mail", "send", 2, nil); err != nil {
			t.Fatal(err)
		}
		page, err := sc.Store.Tasks(t.Context(), storage.TasksQuery{Queue: "mail", State: storage.Waiting})
		if err != nil {
			t.Fatal(err)
		}
		h, err := dashboard.Handler(slowly{sc.Store}, as(access.Admin))
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t: t, Scene: sc, Dashboard: h}
		first, second := "&ref="+page.Tasks[0].Ref.String(), "&ref="+page.Tasks[1].Ref.String()
		s.shows("/action?do=delete"+first, "Delete 1 task?")
		s.shows("/action?do=delete"+first+second, "Delete at least 1 task?", "So far 1 of 2 tasks were searched.", "data-countdown")
		path := "/action?do=delete&ref=mail/none" + second
		s.shows(path, "Delete up to 1 task?", "So far 1 of 2 tasks were searched.")
		if page := s.get(path); strings.Contains(page, "that match") || strings.Contains(page, "data-countdown") {
			t.Error("the dialog on one task speaks of all tasks that match, or counts down")
		}
	})
}

// TestAHistoryThatHangsIsAwaitedOnce checks that pages wait for the history no longer than a read of the
// storage may take, and that a viewer who leaves does not wait.
func TestAHistoryThatHangsIsAwaitedOnce(t *testing.T) {
	for path, want := range map[string]int{"/": 200, "/dead": 200, "/metrics": 503} {
		synctest.Test(t, func(t *testing.T) {
			s, store := stuck(t)
			store.tasks.Store(true)
			began := time.Now()
			type answer struct {
				code int
				took time.Duration
				page string
			}
			ask := func(ctx context.Context) <-chan answer {
				answers := make(chan answer, 1)
				go func() {
					w := s.do(request(http.MethodGet, path, "").WithContext(ctx))
					answers <- answer{w.Code, time.Since(began), w.Body.String()}
				}()
				synctest.Wait()
				return answers
			}
			first := ask(t.Context())
			leaver, cancel := context.WithTimeout(t.Context(), sampler.Period/2)
			defer cancel()
			leaves, second := ask(leaver), ask(t.Context())
			if a := <-leaves; a.took > sampler.Period/2 {
				t.Errorf("GET %s: a viewer who left waited for %v", path, a.took)
			}
			for _, a := range []answer{<-first, <-second} {
				if a.code != want || a.took > sampler.LookTimeout {
					t.Errorf("GET %s: %d after %v, want %d within %v", path, a.code, a.took, want, sampler.LookTimeout)
				}
				if want == http.StatusOK && !strings.Contains(a.page, "</html>") {
					t.Errorf("GET %s is no whole page", path)
				}
			}
		})
	}
}
