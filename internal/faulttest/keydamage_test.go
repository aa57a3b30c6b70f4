//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/redis"
)

// keyDamage is one kind of damage in Redis: a command that causes it, in which %s stands for the
// prefix of the damaged queue's keys.
type keyDamage struct {
	name     string
	do       []string
	reported bool // a key has another type, which Stats must report
}

// keyDamages returns one damage for each key of a queue and each wrong type, and for each field
// of meta and some values that are not numbers, and the damages of contentDamages.
func keyDamages() []keyDamage {
	types := map[string][]string{
		"hash": {"meta", "tasks", "pending", "side", "unique", "damaged", "claims"},
		"zset": {
			"windows", "waiting", "suspects", "scheduled", "retry", "leases", "completed", "cancelled",
			"dead", "cursors", "voids", "idle",
		},
		"list": {"line"},
	}
	wrong := map[string][]string{
		"string": {"SET", "%s", "x"},
		"hash":   {"HSET", "%s", "x", "x"},
		"list":   {"RPUSH", "%s", "x"},
		"zset":   {"ZADD", "%s", "1", "x"},
	}
	all := contentDamages()
	for is, keys := range types {
		for _, key := range keys {
			for other, command := range wrong {
				if other != is {
					do := slices.Clone(command)
					do[1] = "%s" + key
					all = append(all, keyDamage{key + " is a " + other, do, true})
				}
			}
		}
	}
	for _, field := range []string{
		"mark", "tail", "turn", "head", "void", "paused", "cancels", "touched", "jumped", "clock", "reindex",
		"enqueued", "requeued", "completed", "dead", "cancelled", "deleted", "failed", "crashed",
	} {
		for _, value := range []string{"x", "1e300", "nan"} {
			all = append(all, keyDamage{fmt.Sprintf("%s is %q", field, value), []string{"HSET", "%smeta", field, value}, false})
		}
	}
	return all
}

// contentDamages returns the damages to the contents of the keys of a queue.
func contentDamages() []keyDamage {
	return []keyDamage{
		{"a lease is short", []string{"HSET", "%spending", "long", "x"}, false},
		{"a lease is empty", []string{"HSET", "%spending", "long", ""}, false},
		{"a group has no count", []string{"HSET", "%sclaims", "#x", "x"}, false},
		{"a lease without a task", []string{"ZADD", "%sleases", "1", "none"}, false},
		{"a group without tasks", []string{"ZADD", "%sleases", "1", "!none"}, false},
		{"a lease at infinity", []string{"ZADD", "%sleases", "-inf", "long"}, false},
		{"a record is empty", []string{"HSET", "%stasks", "later", ""}, false},
		{"a record is short", []string{"HSET", "%stasks", "later", "\x01"}, false},
		{"a due moment is no number", []string{"ZADD", "%sscheduled", "-inf", "later"}, false},
		{"a cursor without a record", []string{"ZADD", "%scursors", "1", "cursor.none"}, false},
		{"a window without a key", []string{"ZADD", "%swindows", "1", "none"}, false},
		{"a unique key of nobody", []string{"HSET", "%sunique", "none", "W"}, false},
		{"a void without an entry", []string{"ZADD", "%svoids", "inf", "none"}, false},
		{"an entry without a task", []string{"LPUSH", "%sline", "none"}, false},
		{"a dead task without a record", []string{"ZADD", "%sdead", "1", "none"}, false},
	}
}

// TestOneDamagedQueueStopsNoOther damages one of a runner's two queues while the runner
// works, in a test for each damage. The jobs of the other queue must go on.
func TestOneDamagedQueueStopsNoOther(t *testing.T) {
	testserver.Require(t)
	t.Parallel()
	server := testserver.Redis(t)
	for i, d := range keyDamages() {
		t.Run(d.name, func(t *testing.T) {
			testserver.Parallel(t)
			testDamage(t, server, fmt.Sprint("damage", i), d)
		})
	}
}

type damageJob struct{ Long bool }

func testDamage(t *testing.T, server *testserver.Server, prefix string, d keyDamage) {
	store, err := redis.Open(t.Context(), redis.Config{URL: server.URL(), Prefix: prefix})
	must(t, err)
	defer func() { must(t, store.Close()) }()
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(t, err)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{
		Queues: []string{"bad", "good"}, Concurrency: 20, Lease: time.Second, Grace: time.Second, Logger: zap.NewNop(),
	})
	must(t, err)
	var done atomic.Int64
	must(t, midge.Handle(runner, func(ctx context.Context, job damageJob) error {
		if job.Long {
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
		if info, _ := midge.Current(ctx); info.Ref.Queue == "good" {
			done.Add(1)
		}
		return nil
	}))
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- runner.Run(ctx) }()
	defer func() {
		stop()
		must(t, <-ran)
	}()
	enqueue := func(queue string, long bool, opts ...midge.Option) {
		_, err := client.Enqueue(ctx, damageJob{long}, append(opts, midge.To(queue))...)
		if err != nil && queue == "good" {
			t.Errorf("enqueue to the sound queue: %v", err)
		}
	}
	enqueue("bad", true, midge.ID("long"))
	enqueue("bad", false, midge.ID("later"), midge.In(200*time.Millisecond))
	for range 5 {
		enqueue("bad", true)
		enqueue("good", true)
	}
	testserver.Await(t, "jobs run", func() bool { return done.Load() >= 1 })
	for range 3 {
		enqueue("bad", true)
	}
	do := slices.Clone(d.do)
	do[1] = fmt.Sprintf(do[1], prefix+":{bad}:")
	script := "return redis.call(unpack(ARGV))"
	if d.reported { // delete and write in one step, because the runner works meanwhile
		script = "redis.call('DEL', ARGV[2]); " + script
	}
	_, err = server.Do(append([]string{"EVAL", script, "0"}, do...)...)
	must(t, err)
	before := done.Load()
	damaged := time.Now()
	for range 5 {
		enqueue("good", false)
		enqueue("bad", false)
	}
	testserver.Await(t, "the jobs of the other queue run", func() bool { return done.Load() >= max(10, before+5) })
	if took := time.Since(damaged); took > machine.Stretch(8*time.Second, damaged) {
		t.Errorf("the other queue's jobs took %v", took)
	}
	stats, err := store.Stats(t.Context(), "good", "bad")
	if err != nil || stats[0].Damaged != 0 || d.reported && stats[1].Damaged == 0 {
		t.Errorf("got %+v, %v, want damage in the second alone", stats, err)
	}
}
