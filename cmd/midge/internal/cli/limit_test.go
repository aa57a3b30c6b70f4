package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// limited fills the storage with two queues of which api has a declared limit, and the runners that declare it.
func (r *rig) limited() {
	r.t.Helper()
	for _, id := range []string{"a1", "a2", "a3", "a4"} {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "api", ID: id}, Kind: "call"})
	}
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "b1"}, Kind: "call"})
	limit := storage.Limit{Concurrency: 50}
	settings := storage.Settings{Declared: &storage.DeclaredLimit{Limit: limit}}
	if err := r.session.Configure(r.t.Context(), "api", settings); err != nil {
		r.t.Fatal(err)
	}
	r.declare("runner-1", limit)
}

// declare sends the heartbeat of a runner that declares a limit of the queue api.
func (r *rig) declare(id string, limit storage.Limit) {
	r.t.Helper()
	_, err := r.session.Extend(r.t.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{
		ID: id, Host: "web-1", PID: 4711, Version: "0.1.0", Queues: []string{"api", "mail"}, Kinds: []string{"call"},
		Concurrency: 10, Started: r.now, For: time.Hour, Limits: []storage.RunnerLimit{{Queue: "api", Limit: limit}},
	}})
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestTheLimitOfAQueue(t *testing.T) {
	r := newRig(t)
	r.limited()
	text := r.transcript("queue limit mail", "queue limit api", "queue limit api --concurrency 2 --rate 3/1m")
	claim := func(n int) {
		t.Helper()
		claimed, err := r.session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "runner-1", Queues: []storage.ClaimQueue{{Name: "api"}}, Start: n, Lease: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, fence := range claimed.Fences {
			settle := storage.Settle{Fence: fence, Outcome: storage.Complete}
			if _, err := r.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	claim(1)
	text += r.transcript("queue limit api")
	claim(2)
	r.now = r.now.Add(48 * time.Second)
	text += r.transcript("queue limit api", "queue limit api -o json", "queue ls -o wide", "queue show api", "runner show runner-1",
		"queue limit api --none")
	r.now = r.now.Add(time.Second)
	text += r.transcript("queue limit api", "queue limit api --clear")
	r.declare("runner-2", storage.Limit{Concurrency: 20})
	text += r.transcript("doctor -q")
	for range 8 { // no step is so long that the storage warns of its clock
		r.now = r.now.Add(9 * time.Minute)
		r.ok("queue ls")
	}
	r.beat("runner-3", []string{"api", "mail"}, []string{"call"})
	text += r.transcript("doctor -q --max-oldest 1d", "queue limit api", "queue limit api --clear", "queue limit api", "queue limit none",
		"queue limit none --clear", "queue limit midge.audit --none", "queue limit api --clear --none", "queue limit")
	golden(t, "limit", text)
	actions := r.actions()
	if len(actions) != 4 || actions[3].Action != "limit" || actions[3].Note != "to 2 at once, 3 in 1m" ||
		actions[0].Action != "clear-limit" || actions[0].Queue != "api" {
		t.Errorf("the audit has %+v", actions)
	}
}

// TestTheLimitOfPartitions sets each bound alone, fills two partitions, and reads how much of the limit each uses.
func TestTheLimitOfPartitions(t *testing.T) {
	r := newRig(t)
	for i, key := range []string{"acme", "acme", "acme", "acme", "Bo", ""} {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "api", ID: fmt.Sprint("a", i)}, Kind: "call", Partition: key})
	}
	text := r.transcript("queue limit api --concurrency 5 --rate 100/1m", "queue limit api --partition-concurrency 2",
		"queue limit api --partition-rate 3/1m", "queue limit api", "queue partitions api")
	claim := func() map[string]storage.Fence {
		t.Helper()
		claimed, err := r.session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "runner-1", Queues: []storage.ClaimQueue{{Name: "api"}}, Start: 9, Lease: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		fences := make(map[string]storage.Fence)
		for i := range claimed.Tasks {
			fences[claimed.Tasks[i].Partition] = claimed.Fences[i]
		}
		return fences
	}
	fences := claim()
	text += r.transcript("queue partitions api")
	for _, s := range []storage.Settle{
		{Fence: fences["acme"], Outcome: storage.Complete},
		{Fence: fences["Bo"], Outcome: storage.Release, Delay: 30 * time.Second},
	} {
		if _, err := r.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{s}}); err != nil {
			t.Fatal(err)
		}
	}
	text += r.transcript("queue partitions api")
	fences = claim()
	text += r.transcript("queue pause api --partition Bo --for 1h", "queue partitions api")
	settle := storage.Settle{Fence: fences["acme"], Outcome: storage.Complete}
	if _, err := r.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(10 * time.Second)
	text += r.transcript("queue partitions api", "queue partitions api --utc", "queue partitions api -o json", "queue limit api -o json",
		"queue partitions api --columns partition,paused", "queue ls -o wide --columns queue,limit",
		"queue limit api --partition-concurrency 0", "queue limit api --partition-rate none", "queue limit api --rate none --partition-concurrency 1")
	of := func(n int) storage.Limit { return storage.Limit{Partition: storage.PartitionLimit{Concurrency: n}} }
	declared := storage.Settings{Declared: &storage.DeclaredLimit{Limit: of(3)}}
	if err := r.session.Configure(t.Context(), "api", declared); err != nil {
		t.Fatal(err)
	}
	r.declare("runner-1", of(3))
	r.declare("runner-2", of(4))
	text += r.transcript("queue limit api", "queue limit api --clear", "runner show runner-2", "doctor -q --max-oldest 1d")
	golden(t, "limit_partition", text)
}

// TestTheLimitOfOnePartition sets it, shows it and clears it, and makes the mistakes.
func TestTheLimitOfOnePartition(t *testing.T) {
	r := newRig(t)
	r.partitioned()
	text := r.transcript("queue limit mail --partition-concurrency 2 --weight 3", "queue limit mail",
		"queue limit mail --partition acme", "queue limit mail --partition acme --partition-rate 9/1m --weight 5",
		"queue limit mail --partition acme", "queue limit mail --partition acme -o json", "queue partitions mail",
		"queue partitions mail -o json", "queue limit mail --partition idle --none", "queue partitions mail",
		"queue limit mail --partition acme --clear", "queue limit mail --partition idle --clear", "queue partitions mail")
	text += r.transcript("queue limit mail --partition acme --concurrency 3", "queue limit mail --weight 1001",
		"queue limit mail --partition '' --weight 2", "queue limit none --partition acme --weight 2",
		"queue limit mail --partition acme --none --clear")
	golden(t, "limit_own", text)
	r.audited("limit mail to 2 at once in a partition, weight 3 in a partition",
		`limit-partition mail partition "acme", to 2 at once, 9 in 1m, weight 5`,
		`limit-partition mail partition "idle", to none`,
		`clear-limit-partition mail partition "acme"`, `clear-limit-partition mail partition "idle"`)
}

// TestACopiedBoundIsReported limits a queue of which programs declare a rate, and then declares another rate:
// the command has reported that the rate was copied. It reports no copy of a bound that its own line sets.
func TestACopiedBoundIsReported(t *testing.T) {
	const copied = "bounds that were not given were copied, and follow no later change until midge queue limit "
	declare := func(r *rig, n int) {
		r.t.Helper()
		limit := storage.Limit{Rate: storage.Rate{N: n, Per: time.Second}, Partition: storage.PartitionLimit{Concurrency: 2}}
		settings := storage.Settings{Declared: &storage.DeclaredLimit{Limit: limit}}
		if err := r.session.Configure(r.t.Context(), "api", settings); err != nil {
			r.t.Fatal(err)
		}
	}
	r := newRig(t)
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "api", ID: "a"}, Kind: "call"})
	declare(r, 20)
	r.says(Done, copied+"api --partition 'a b' --clear", "queue limit api --partition 'a b' --weight 3")
	r.says(Done, copied+"api --clear", "queue limit api --concurrency 3")
	declare(r, 5)
	if got := r.ok("queue limit api"); !strings.Contains(got, "3 at once, 20 in 1s") {
		t.Errorf("got %s", got)
	}
	for _, line := range []string{
		"queue limit api --concurrency 4", // the bounds of the operator were copied
		"queue limit api --none", "queue limit api --clear", "queue limit api --partition 'a b' --clear",
		"queue limit api --concurrency 4 --rate 1/1m --partition-concurrency 1",
		"queue limit api --partition 'a b' --partition-concurrency 2",
	} {
		if got := r.run(line); got.code != Done || strings.Contains(got.err, "copied") {
			t.Errorf("midge %s: got %+v, want no word of a copy", line, got)
		}
	}
}
