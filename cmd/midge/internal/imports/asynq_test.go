package imports

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// peer holds a real asynq and a storage that gets its tasks.
type peer struct {
	t       *testing.T
	server  *testserver.Server
	client  *asynq.Client
	look    *asynq.Inspector
	source  *goredis.Client
	session *storage.Session
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	return newPeerOf(t, "memory")
}

// newPeerOf makes a peer with a storage of a kind: in memory, on asynq's Redis, on PostgreSQL, or in a file
// of SQLite.
func newPeerOf(t *testing.T, kind string) *peer {
	t.Helper()
	testserver.Require(t)
	p := &peer{t: t, server: testserver.Redis(t)}
	var store storage.Storage
	var err error
	switch kind {
	case "redis":
		store, err = redis.Open(t.Context(), redis.Config{URL: p.server.URL()})
	case "postgres":
		testserver.RequirePostgres(t)
		cfg := postgres.Config{URL: testserver.Postgres(t, testserver.PostgresOptions{}).URL()}
		if err := postgres.Migrate(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		store, err = postgres.Open(t.Context(), cfg)
	case "sqlite":
		store, err = modernc.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"))
	default:
		store, err = memory.Open(memory.Config{})
	}
	if err != nil {
		t.Fatal(err)
	}
	at := asynq.RedisClientOpt{Addr: p.server.Addr()}
	p.client, p.look = asynq.NewClient(at), asynq.NewInspector(at)
	p.source = goredis.NewClient(&goredis.Options{Addr: p.server.Addr()})
	p.session = storage.NewSession(store, 0)
	t.Cleanup(func() {
		for _, end := range []func() error{p.client.Close, p.look.Close, p.source.Close, store.Close} {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

func (p *peer) enqueue(typ, payload string, opts ...asynq.Option) {
	p.t.Helper()
	if _, err := p.client.Enqueue(asynq.NewTask(typ, []byte(payload)), append(opts, asynq.Queue("mail"))...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) asynq() *Asynq {
	return &Asynq{Source: p.source, Session: p.session, From: "mail", To: "letters", Kinds: Kinds{"email:send": "send_mail"}}
}

// tasks reads all tasks in a state.
func (p *peer) tasks(state storage.State) (tasks []storage.Task) {
	p.t.Helper()
	for t, err := range storage.Each(p.t.Context(), p.session.Storage(), "letters", state) {
		if err != nil {
			p.t.Fatal(err)
		}
		tasks = append(tasks, t)
	}
	return tasks
}

func TestATaskOfAsynqKeepsWhatItSays(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	p.enqueue("email:send", `{"to":"ann","n":9007199254740993}`, asynq.TaskID("a1"), asynq.MaxRetry(7), asynq.Timeout(90*time.Second),
		asynq.Retention(2*time.Hour), asynq.Deadline(soon.Add(time.Hour)), asynq.Unique(time.Hour))
	p.enqueue("email:send", `{}`, asynq.TaskID("an id that/does not fit"), asynq.ProcessAt(soon))
	p.enqueue("email:send", "", asynq.TaskID("a3"))
	p.enqueue("image:resize", `{}`, asynq.TaskID("b1"))
	p.enqueue("email:send", "\x00proto", asynq.TaskID("b2"))
	p.enqueue("email:send", strings.Repeat(" ", 1<<20)+"{}", asynq.TaskID("b3"))
	report, err := p.asynq().Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if moved, left := report.Tasks(); moved != 3 || left != 3 || report.Left[Left{"image:resize", unknownType}] != 1 {
		t.Errorf("the report is %+v, want three moved, three left", report)
	}
	waiting, scheduled := p.tasks(storage.Waiting), p.tasks(storage.Scheduled)
	if len(waiting) != 2 || len(scheduled) != 1 {
		t.Fatalf("%d wait and %d are scheduled, want 2 and 1", len(waiting), len(scheduled))
	}
	first := waiting[0]
	if first.ID != "a1" || first.Kind != "send_mail" || first.Encoding != "json" || string(first.Payload) != `{"to":"ann","n":9007199254740993}` ||
		first.MaxRetries != 7 || first.Timeout != 90*time.Second || first.Keep.For != 2*time.Hour || !first.Deadline().Equal(soon.Add(time.Hour)) {
		t.Errorf("the first is %+v", first)
	}
	if waiting[1].ID != "a3" || string(waiting[1].Payload) != "{}" {
		t.Errorf("the second is %+v, want a3 without parameters", waiting[1])
	}
	if s := scheduled[0]; !s.Due.Equal(soon) || s.Headers["asynq.id"] != "an id that/does not fit" || !strings.HasPrefix(s.ID, "asynq-") {
		t.Errorf("the scheduled one is %+v with headers %v", s, s.Headers)
	}
	info, err := p.look.GetQueueInfo("mail")
	if err != nil || info.Pending != 3 || info.Scheduled != 0 || !info.Paused {
		t.Errorf("asynq has %+v, %v; want three pending tasks and a paused queue", info, err)
	}
	if n, err := p.source.Keys(t.Context(), "asynq:{mail}:unique:*").Result(); err != nil || len(n) != 0 {
		t.Errorf("unique locks are left: %v, %v", n, err)
	}
	left, err := p.look.ListPendingTasks("mail")
	if err != nil || len(left) != 3 || left[0].ID != "b1" || left[2].ID != "b3" {
		t.Errorf("asynq lists %v, %v; want b1, b2, b3 as they were", left, err)
	}
}

// errEnded ends an import in the middle.
var errEnded = errors.New("killed")

// work completes the waiting tasks.
func (p *peer) work(ran func(id string)) {
	p.t.Helper()
	claimed, err := p.session.Claim(p.t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: "letters"}}, Start: storage.MaxClaim, Lease: time.Minute,
	})
	if err != nil {
		p.t.Error(err)
		return
	}
	for i, fence := range claimed.Fences {
		ran(claimed.Tasks[i].ID)
		settle := storage.Settle{Fence: fence, Outcome: storage.Complete}
		if _, err := p.session.ApplyOne(p.t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
			p.t.Error(err)
		}
	}
}

// TestAKilledImportDoublesNothing kills an import at every step, runs and completes the inserted tasks, and
// starts the import again.
func TestAKilledImportDoublesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"memory", "redis", "postgres", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			killed(newPeerOf(t, kind))
		})
	}
}

func killed(p *peer) {
	t := p.t
	t.Helper()
	const tasks = 2*chunkTasks + 20
	seen := make(map[string]int)
	for i := range tasks {
		typ := "email:send"
		if i%10 == 9 {
			typ = "image:resize"
		}
		p.enqueue(typ, `{}`, asynq.TaskID(fmt.Sprintf("t%04d", i)))
	}
	kills := 0
	for steps := 1; ; steps++ {
		a, n := p.asynq(), 0
		a.step = func(string) error {
			if n++; n == steps%4+1 && kills < 30 {
				kills++
				return errEnded
			}
			return nil
		}
		_, err := a.Run(t.Context())
		p.work(func(id string) { seen[id]++ })
		if err == nil {
			break
		}
		if !errors.Is(err, errEnded) {
			t.Fatal(err)
		}
	}
	if kills < 5 {
		t.Errorf("the import was killed %d times only", kills)
	}
	p.all(seen, tasks)
}

// all checks that each task of email:send has run once, and that the other tasks are in asynq in their
// order.
func (p *peer) all(seen map[string]int, tasks int) {
	p.t.Helper()
	for i := range tasks {
		id, want := fmt.Sprintf("t%04d", i), 1
		if i%10 == 9 {
			want = 0
		}
		if seen[id] != want {
			p.t.Errorf("%s ran %d times, want %d", id, seen[id], want)
		}
	}
	left, err := p.source.LRange(p.t.Context(), "asynq:{mail}:pending", 0, -1).Result()
	if err != nil || len(left) != tasks/10 {
		p.t.Fatalf("%d tasks are left, %v; want %d", len(left), err, tasks/10)
	}
	for i, id := range left {
		if want := fmt.Sprintf("t%04d", tasks-tasks%10-1-10*i); id != want {
			p.t.Fatalf("%s is left at place %d, want %s", id, i, want)
		}
	}
	if records := p.tasks(storage.Scheduled); len(records) != 0 {
		p.t.Errorf("%d records of the import are left", len(records))
	}
	if keys, err := p.source.Keys(p.t.Context(), "asynq:{mail}:midge:*").Result(); err != nil || len(keys) != 1 {
		p.t.Errorf("%v is left in asynq, %v; want the name of the import alone", keys, err)
	}
}

func TestTwoImportsAtOnceDoubleNothing(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	const tasks = 1000
	for i := range tasks {
		typ := "email:send"
		if i%10 == 9 {
			typ = "image:resize"
		}
		p.enqueue(typ, `{}`, asynq.TaskID(fmt.Sprintf("t%04d", i)))
	}
	seen := make(map[string]int)
	var mu sync.Mutex
	stopped := make(chan bool)
	var worker, both sync.WaitGroup
	worker.Go(func() {
		for ended := false; !ended; {
			select {
			case <-stopped:
				ended = true
			default:
			}
			p.work(func(id string) {
				mu.Lock()
				defer mu.Unlock()
				seen[id]++
			})
		}
	})
	for range 3 {
		both.Go(func() {
			if _, err := p.asynq().Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	testserver.Await(t, "the tasks are worked off", func() bool {
		stats, err := p.session.Storage().Stats(t.Context(), "letters")
		return err == nil && stats[0].Live() == 0
	})
	close(stopped)
	worker.Wait()
	for i := range tasks {
		id, want := fmt.Sprintf("t%04d", i), 1
		if i%10 == 9 {
			want = 0
		}
		if seen[id] != want {
			t.Errorf("%s ran %d times, want %d", id, seen[id], want)
		}
	}
}

func TestAnAbortedImportGivesBackWhatItTook(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"staged", "inserted"} {
		p := newPeer(t)
		for i := range 300 {
			p.enqueue("email:send", `{}`, asynq.TaskID(fmt.Sprintf("t%04d", i)))
		}
		a := p.asynq()
		a.step = func(at string) error {
			if at == step {
				return errEnded
			}
			return nil
		}
		if _, err := a.Run(t.Context()); !errors.Is(err, errEnded) {
			t.Fatal(err)
		}
		if err := p.asynq().Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		info, err := p.look.GetQueueInfo("mail")
		if here := len(p.tasks(storage.Waiting)); err != nil || info.Paused || info.Pending+here != 300 || (here == 0) != (step == "staged") {
			t.Errorf("killed when it was %s: asynq has %+v, %v, and midge %d tasks", step, info, err, here)
		}
	}
}

func TestActiveTasksHoldAnImportUp(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	p.enqueue("email:send", `{}`)
	running, end := make(chan bool), make(chan bool)
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: p.server.Addr()}, asynq.Config{Queues: map[string]int{"mail": 1}, LogLevel: asynq.FatalLevel})
	err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		running <- true
		<-end
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	<-running
	if _, err := p.asynq().Run(t.Context()); !errors.Is(err, ErrActive) {
		t.Errorf("got %v, want ErrActive", err)
	}
	close(end)
	server.Shutdown()
	if _, err := p.asynq().Run(t.Context()); err != nil {
		t.Errorf("behind the task: %v", err)
	}
}

func TestAPlanMovesNothing(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	p.enqueue("email:send", `{}`)
	p.enqueue("email:send", `{}`, asynq.ProcessIn(time.Hour))
	p.enqueue("image:resize", `{}`)
	report, err := p.asynq().Plan(t.Context())
	if moved, left := report.Tasks(); err != nil || moved != 2 || left != 1 {
		t.Errorf("the plan is %+v, %v; want two to move and one to leave", report, err)
	}
	info, err := p.look.GetQueueInfo("mail")
	if err != nil || info.Pending != 2 || info.Scheduled != 1 || info.Paused {
		t.Errorf("asynq has %+v, %v; want all as it was", info, err)
	}
	a := p.asynq()
	a.From = "none"
	if err := a.Check(t.Context()); !errors.As(err, new(*storage.InvalidError)) {
		t.Errorf("a queue that is not there: got %v, want an *InvalidError", err)
	}
}

func TestDamagedMessagesAreNoMessages(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "\x0a", "\x0a\x01", "\x7a\x02\x0a", "\x0a\x01t", strings.Repeat("\xff", 20)} {
		if m, err := readMessage([]byte(text)); err == nil {
			t.Errorf("%q was read as %+v", text, m)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte("\x0a\x01t\x12\x02{}\x1a\x01i\x7a\x06\x0a\x01k\x12\x01v"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := readMessage(data); err == nil && (m.typ == "" || m.id == "") {
			t.Errorf("%q was read as %+v", data, m)
		}
	})
}

func TestTheTableOfKinds(t *testing.T) {
	t.Parallel()
	kinds := make(Kinds)
	if err := kinds.Read(strings.NewReader("# types\nemail:send = send_mail # mails\n\na=b\n")); err != nil || kinds.Of("email:send") != "send_mail" || kinds.Of("x") != "" {
		t.Errorf("got %v, %v", kinds, err)
	}
	if err := kinds.Add("*"); err != nil || kinds.Of("x") != "x" || kinds.Of("a") != "b" || kinds.Of("no name") != "" {
		t.Errorf("got %v, %v", kinds, err)
	}
	for _, line := range []string{"", "a", "=b", "a=", "a=no name", "*=x", "a=c"} {
		if err := kinds.Add(line); !errors.As(err, new(*storage.InvalidError)) {
			t.Errorf("%q: got %v, want an *InvalidError", line, err)
		}
	}
}
