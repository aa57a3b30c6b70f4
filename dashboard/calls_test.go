package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// counting is a storage that counts the calls by their names, and the tasks that they return.
type counting struct {
	storage.Storage

	mu    sync.Mutex
	calls map[string]int
}

func (c *counting) count(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[name] += n
}

// taken returns the counts, and resets them.
func (c *counting) taken() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = map[string]int{}
	return calls
}

func (c *counting) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	c.count("Task", 1)
	return c.Storage.Task(ctx, ref)
}

func (c *counting) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	c.count("Tasks", 1)
	page, err := c.Storage.Tasks(ctx, q)
	c.count("tasks", len(page.Tasks))
	return page, err
}

func (c *counting) Queues(ctx context.Context, q storage.QueuesQuery) (storage.QueuesPage, error) {
	c.count("Queues", 1)
	return c.Storage.Queues(ctx, q)
}

func (c *counting) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	c.count("Stats", 1)
	c.count("stats", len(queues))
	return c.Storage.Stats(ctx, queues...)
}

func (c *counting) Partitions(ctx context.Context, q storage.PartitionsQuery) (storage.PartitionsPage, error) {
	c.count("Partitions", 1)
	page, err := c.Storage.Partitions(ctx, q)
	c.count("partitions", len(page.Partitions))
	return page, err
}

func (c *counting) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	c.count("Runners", 1)
	return c.Storage.Runners(ctx)
}

func (c *counting) Describe(ctx context.Context) (storage.Description, error) {
	c.count("Describe", 1)
	return c.Storage.Describe(ctx)
}

// TestPagesAskTheStorageForLittle checks that pages take queues, runners and causes of death from the last
// sample, which all viewers share. The number of reads of a page itself does not grow with the number of
// tasks.
func TestPagesAskTheStorageForLittle(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "million", 20_000)
		if err != nil {
			t.Fatal(err)
		}
		addPartitions(t, sc)
		store := &counting{Storage: sc.Store, calls: map[string]int{}}
		h, err := dashboard.Handler(store, as(access.Admin))
		if err != nil {
			t.Fatal(err)
		}
		get := func(path string) map[string]int {
			t.Helper()
			store.taken()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(http.MethodGet, path, ""))
			if w.Code != http.StatusOK && w.Code != http.StatusSeeOther {
				t.Fatalf("GET %s: %d", path, w.Code)
			}
			return store.taken()
		}
		get("/")
		queue := sc.Runners[0].Running[0].Ref.Queue
		none := map[string]int{}
		type bounds = map[string]int
		for path, want := range map[string]bounds{
			"/": none, "/queues": none, "/queues/" + queue: {"Partitions": 1}, "/dead": none, "/schedules": none, "/runners": none,
			"/runners/" + sc.Runners[0].ID: none, "/suggest?q=tenant": none,
			"/queues/zz": {"Partitions": 1, "partitions": 20}, "/tasks?queue=zz&state=waiting&filter=partition:p1": {"Tasks": 1, "tasks": 1},
			"/action?do=pause-partition&queue=zz&partition=p1": {"Partitions": 1, "partitions": 1}, "/action?do=pause&queue=zz": none,
			"/audit":                                {"Tasks": 1, "tasks": 51},
			"/tasks":                                {"Tasks": 1, "tasks": 50},
			"/tasks?queue=" + queue:                 {"Tasks": 1, "tasks": 50},
			"/tasks?state=pending":                  {"Tasks": 5, "tasks": 60}, // twelve in each queue
			"/tasks?filter=retries%3C2":             {"Tasks": 2, "tasks": 251},
			"/r/" + taskIn(t, sc, queue, "dead"):    {"Task": 1},
			"/r/" + taskIn(t, sc, queue, "pending"): {"Task": 1},
			"/r/" + taskIn(t, sc, queue, "waiting"): {"Task": 1, "Tasks": 5, "tasks": 1000},
			"/search?q=4bf92f3577b34da6":            {"Task": 101}, // one in each queue
		} {
			for name, got := range get(path) {
				if got > want[name] {
					t.Errorf("GET %.40s makes %d %s, want at most %d", path, got, name, want[name])
				}
			}
		}
		for _, span := range []string{"6h", "7d", "90d"} { // spans that no page has read before
			store.taken()
			h.ServeHTTP(httptest.NewRecorder(), request(http.MethodGet, "/metrics?span="+span, ""))
			if calls := store.taken(); calls["Task"] == 0 {
				t.Errorf("the history of %s is not read for the first viewer: %v", span, calls)
			}
			if calls := get("/metrics?span=" + span); len(calls) > 0 {
				t.Errorf("the history of %s is read again for another viewer: %v", span, calls)
			}
		}
	})
}

// addPartitions adds the queue zz with 50 partitions.
func addPartitions(t *testing.T, sc *scene.Scene) {
	t.Helper()
	err := sc.Add(t.Context(), "zz", "k", 50, func(i int, in *storage.Insert) { in.Partition = fmt.Sprint("p", i) })
	if err != nil {
		t.Fatal(err)
	}
}

// taskIn returns a task of a queue in a state.
func taskIn(t *testing.T, sc *scene.Scene, queue, state string) string {
	t.Helper()
	page, err := sc.Store.Tasks(t.Context(), storage.TasksQuery{Queue: queue, State: storage.State(state), Limit: 1})
	if err != nil || len(page.Tasks) == 0 {
		t.Fatalf("no task of %s is %s: %v", queue, state, err)
	}
	return page.Tasks[0].Ref.String()
}
