package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// TestATornAppendOnlyFileLosesNoTask tears the append-only file at a random byte of the writes of the last
// step, as a power cut does. Redis cuts the torn command off at its next start, and leaves the first writes
// of the step in the file. At the start after that it executes them before the steps that followed. Each
// task whose insert was acknowledged is completed once all the same, or named.
func TestATornAppendOnlyFileLosesNoTask(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t, "appendonly yes", "appendfsync always", "auto-aof-rewrite-percentage 0")
	queues := make([]*tearing, tears)
	for i := range queues {
		queues[i] = newTearing(t, server, i)
		queues[i].run(i%2 == 1)
	}
	for _, r := range queues { // at the end, because leases have to expire first
		r.drain()
	}
}

// tearing is a queue of one tear, and the knowledge of its caller of the tasks there.
type tearing struct {
	*testing.T

	name   string // the prefix of its keys
	server *testserver.Server
	store  *redis.Storage
	random *rand.Rand
	call   storage.Call

	draining bool

	made   int                      // how many tasks were made
	live   map[string]bool          // the tasks whose insert was acknowledged, but no end
	ended  map[string]bool          // the tasks of which an end was acknowledged
	unsure map[string]bool          // the tasks of a torn step that nobody repeated
	held   map[string]storage.Fence // by task, of acknowledged claims
}

func newTearing(t *testing.T, server *testserver.Server, i int) *tearing {
	t.Helper()
	name := fmt.Sprint("tear", i)
	cfg := redis.Config{URL: server.URL(), Prefix: name}
	store, err := redis.Open(t.Context(), redis.WithReindexEvery(cfg, time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &tearing{
		T: t, name: name, server: server, store: store, random: rand.New(rand.NewPCG(29, uint64(i))),
		call: storage.Call{Lane: storage.Lane{ID: storage.NewToken(), Opened: time.Now()}},
		live: map[string]bool{}, ended: map[string]bool{}, unsure: map[string]bool{}, held: map[string]storage.Fence{},
	}
}

func (r *tearing) run(between bool) {
	r.steps(12)
	take, acknowledge, doubt := r.taken()
	for !bytes.HasSuffix(r.file(), []byte(exec)) { // a step of a single write, which cannot be torn
		acknowledge()
		take, acknowledge, doubt = r.taken()
	}
	r.restart(true)
	if between {
		r.restart(false)
	}
	if r.random.IntN(2) == 0 {
		if err := take(); err != nil { // the caller got no reply, and repeats the call
			r.Fatal(err)
		}
		acknowledge()
	} else {
		doubt()
	}
	r.steps(1 + r.random.IntN(6))
	r.restart(false)
}

// restart kills the server and starts it again, with a torn file if torn is true.
func (r *tearing) restart(torn bool) {
	if err := r.server.Kill(); err != nil {
		r.Fatal(err)
	}
	if torn {
		r.tear()
	}
	if err := r.server.Restart(); err != nil {
		r.Fatal(err)
	}
}

// The commands between which an append-only file has the writes of a step.
const (
	multi = "*1\r\n$5\r\nMULTI\r\n"
	exec  = "*1\r\n$4\r\nEXEC\r\n"
)

// path returns the name of the append-only file.
func (r *tearing) path() string {
	files, err := filepath.Glob(filepath.Join(r.server.Dir(), "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		return filepath.Join(r.server.Dir(), "appendonly.aof") // before Redis 7
	}
	return files[len(files)-1]
}

func (r *tearing) file() []byte {
	data, err := os.ReadFile(r.path())
	if err != nil {
		r.Fatal(err)
	}
	return data
}

// tear cuts the append-only file off within the writes of the last step, a third of the time within EXEC:
// then Redis will execute the whole step.
func (r *tearing) tear() {
	data := r.file()
	begin := bytes.LastIndex(data, []byte(multi))
	cut := begin + 1 + r.random.IntN(len(data)-begin-1)
	if r.random.IntN(3) == 0 {
		cut = len(data) - 1 - r.random.IntN(len(exec)-1)
	}
	if err := os.Truncate(r.path(), int64(cut)); err != nil {
		r.Fatal(err)
	}
	r.Logf("%s: torn at byte %d of the last %d:\n%q", r.name, cut-begin, len(data)-begin, data[begin:cut])
}

// steps takes n acknowledged steps.
func (r *tearing) steps(n int) {
	for range n {
		_, acknowledge, _ := r.taken()
		acknowledge()
	}
}

// taken takes a step, a call. take repeats the call. One of the other functions notes its outcome:
// acknowledge that the caller knows it, doubt that he does not.
func (r *tearing) taken() (take func() error, acknowledge, doubt func()) {
	steps := []func(storage.Call) (func() error, func(), func()){r.insert, r.claim, r.claim, r.settle, r.cancel}
	return r.take(steps[r.random.IntN(len(steps))])
}

func (r *tearing) take(
	step func(storage.Call) (func() error, func(), func()),
) (take func() error, acknowledge, doubt func()) {
	r.call.Seq++
	take, acknowledge, doubt = step(r.call)
	if err := take(); err != nil {
		r.Fatal(err)
	}
	return take, acknowledge, doubt
}

// insert inserts one task or several. A few have a priority, and a few are due in a moment.
func (r *tearing) insert(call storage.Call) (take func() error, acknowledge, doubt func()) {
	ins := make([]storage.Insert, 1+r.random.IntN(30))
	plain := r.random.IntN(3) > 0
	for i := range ins {
		ins[i] = insertOf(fmt.Sprint("t", r.made))
		r.made++
		ins[i].MaxRetries, ins[i].CrashLimit = 1000, 1000
		if !plain {
			ins[i].Priority = r.random.IntN(2)
			ins[i].Delay = time.Duration(r.random.IntN(2)) * 10 * time.Millisecond
		}
	}
	txs := make([]storage.Tx, len(ins))
	for i := range ins {
		txs[i].Inserts = ins[i : i+1]
	}
	acknowledge = func() {
		for i := range ins {
			r.live[ins[i].Ref.ID] = true
		}
	}
	take, _ = r.apply(call, txs)
	return take, acknowledge, func() {}
}

// apply returns a function that carries Txs out, and a function that reports whether the i-th of them
// happened. The storage refuses a Tx of which a fence is stale or a task has gone.
func (r *tearing) apply(call storage.Call, txs []storage.Tx) (take func() error, happened func(i int) bool) {
	var applied []storage.Applied
	take = func() (err error) {
		applied, err = repeated(r.Context(), func() ([]storage.Applied, error) {
			return r.store.Apply(r.Context(), call, txs...)
		})
		return err
	}
	return take, func(i int) bool { return applied[i].Err == nil }
}

// repeated makes a call again for as long as its outcome is unknown, as a session does.
func repeated[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for {
		v, err := call()
		if ctx.Err() != nil || !errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrUnavailable) {
			return v, err
		}
	}
}

func (r *tearing) claim(call storage.Call) (take func() error, acknowledge, doubt func()) {
	req := claimOf(1 + r.random.IntN(9))
	req.Call, req.Token, req.Lease = call, storage.NewToken(), storage.MinLease
	var claimed storage.Claimed
	take = func() (err error) {
		claimed, err = repeated(r.Context(), func() (storage.Claimed, error) { return r.store.Claim(r.Context(), req) })
		return err
	}
	return take, func() { r.hold(&claimed) }, func() {}
}

func (r *tearing) hold(claimed *storage.Claimed) {
	for _, f := range claimed.Fences {
		if r.ended[f.ID] {
			r.Errorf("%s: %s was claimed after its end", r.name, f.ID)
		}
		r.held[f.ID] = f
	}
}

// settle settles some of the tasks that the caller holds: it completes most of them, and the others fail or
// go back.
func (r *tearing) settle(call storage.Call) (take func() error, acknowledge, doubt func()) {
	ids := slices.Sorted(maps.Keys(r.held))
	r.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:min(len(ids), 1+r.random.IntN(6))]
	if len(ids) == 0 {
		return r.insert(call)
	}
	outcome := []storage.Outcome{storage.Complete, storage.Complete, storage.Fail, storage.Release}[r.random.IntN(4)]
	if r.draining {
		outcome = storage.Complete
	}
	txs := make([]storage.Tx, len(ids))
	for i, id := range ids {
		txs[i].Settles = []storage.Settle{{Fence: r.held[id], Outcome: outcome}}
		delete(r.held, id)
	}
	take, happened := r.apply(call, txs)
	acknowledge = func() {
		for i, id := range ids {
			if outcome == storage.Complete && happened(i) {
				r.end(id)
			}
		}
	}
	doubt = func() {
		for _, id := range ids {
			r.unsure[id] = r.unsure[id] || outcome == storage.Complete
		}
	}
	return take, acknowledge, doubt
}

// end notes that the end of a task was acknowledged.
func (r *tearing) end(id string) {
	if r.ended[id] {
		r.Errorf("%s: %s ended twice", r.name, id)
	}
	delete(r.live, id)
	r.ended[id] = true
}

// cancel cancels a task that nobody holds.
func (r *tearing) cancel(call storage.Call) (take func() error, acknowledge, doubt func()) {
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(r.live)), func(id string) bool {
		_, held := r.held[id]
		return held
	})
	if len(ids) == 0 {
		return r.insert(call)
	}
	id := ids[r.random.IntN(len(ids))]
	txs := []storage.Tx{{Changes: []storage.Change{{Ref: refOf(id), Cancel: true}}}}
	take, happened := r.apply(call, txs)
	acknowledge = func() {
		if happened(0) {
			delete(r.live, id) // or it is pending, of a claim that nobody knows, and asked to end
		}
	}
	return take, acknowledge, func() { r.unsure[id] = true }
}

// drain completes tasks until all of them have ended or are named.
func (r *tearing) drain() {
	r.call.Lane.ID, r.call.Lane.Opened = storage.NewToken(), time.Now() // the last calls may have been forgotten
	r.held, r.draining = make(map[string]storage.Fence), true
	testserver.Await(r.T, "each task is completed or named", func() bool {
		for r.round() > 0 {
			continue
		}
		for id := range r.live {
			switch _, err := r.store.Task(r.Context(), refOf(id)); {
			case errors.Is(err, storage.ErrDamaged), errors.Is(err, storage.ErrNotFound) && r.unsure[id]:
				delete(r.live, id)
			case errors.Is(err, storage.ErrNotFound):
				r.Errorf("%s: %s is lost", r.name, id)
				delete(r.live, id)
			}
		}
		return len(r.live) == 0
	})
}

// round claims and completes some tasks, and returns how many there were.
func (r *tearing) round() int {
	_, acknowledge, _ := r.take(r.claim)
	acknowledge()
	n := len(r.held)
	for len(r.held) > 0 {
		_, acknowledge, _ := r.take(r.settle)
		acknowledge()
	}
	return n
}
