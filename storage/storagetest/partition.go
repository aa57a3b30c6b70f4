package storagetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

func partitionRules() []rule {
	turns := []rule{
		state("partition/turns", partitionTurns,
			"Claims serve the partitions in turn, one task each, round after round, and go on where the claim "+
				"before ended. The tasks without a partition have a turn too."),
		state("partition/small beside big", partitionSmall,
			"A task of a small partition starts within two claims, whatever waits in a big one."),
		state("partition/priorities", partitionPriorities,
			"Priorities order the tasks within a partition, and not between partitions."),
		state("partition/new at the end", partitionNew,
			"A partition joins the end of the ring with its first waiting task, also where it had tasks "+
				"before."),
		state("partition/without one", partitionWithout,
			"The tasks without a partition and the declined tasks, those of a partition too, have one turn "+
				"together."),
		state("partition/passed over", partitionPassedOver,
			"Suspects and tasks that are claimed only to start at once hold back neither the tasks behind them "+
				"in their line nor other partitions, and a partition that is passed over keeps its turn."),
		state("partition/many passed over", partitionManyPassedOver,
			"A task that is claimed ahead does not wait for tasks before it in its line that are claimed only to "+
				"start at once, however many they are."),
		state("partition/more", partitionMore,
			"More is set while a partition holds a task that the same claim may take, and not for others."),
		state("partition/joined together", partitionTogether,
			"Partitions whose first tasks one Tx or one call brings join the ring in the order of its "+
				"operations."),
		state("partition/runners", partitionRunners,
			"All runners share the turns, whatever handle they claim through."),
		state("partition/many claimers", partitionClaimers,
			"Callers that claim at the same time take no task twice and share the turns: in the order of the "+
				"claims no partition is further ahead of another than their claims overlap."),
		state("partition/more than a claim looks at", partitionMany,
			"Where more than MaxTurns partitions wait, each is served once before any is served again."),
		state("partition/repeated", partitionRepeated,
			"A repeat of a Claim gives the same tasks and moves no turn."),
		state("partition/queues apart", partitionQueues,
			"Each queue has turns of its own, and a Claim empties its first queue before it takes from the "+
				"second."),
		state("partition/under a limit", partitionLimited,
			"A limit of the queue admits the tasks of partitions in their turn, and no turn is lost while it "+
				"admits none."),
		state("partition/4 MiB", partitionBytes,
			"A task that has no room in the answer keeps the turn of its partition."),
	}
	return slices.Concat(turns, partitionLineRules(), partitionPauseRules(), partitionReadRules())
}

// keyed returns a job in a partition.
func keyed(key, id string) storage.Insert {
	j := job(id)
	j.Partition = key
	return j
}

// addKeyed inserts n jobs in a partition, with its key and a number as their ids.
func (r *rig) addKeyed(key string, n int) {
	r.Helper()
	for i := range n {
		r.insert(keyed(key, fmt.Sprint(key, i)))
	}
}

// inLine fails the rule unless the tasks in the line of a partition are these, in this order.
func (r *rig) inLine(when, key string, want ...string) {
	r.Helper()
	query := storage.TasksQuery{State: storage.Waiting, Partition: key, Limit: 1}
	if got := r.pages(query); !slices.Equal(got, want) {
		r.Fatalf("line of %s %s: got %v, want %v", key, when, got, want)
	}
	for _, id := range want {
		t := r.is(id, storage.Waiting)
		r.want("partition of "+id+" "+when, [2]any{t.Partition, t.Declined.IsZero()}, [2]any{key, true})
	}
	r.want("size of "+key+" "+when, r.partition(key).Waiting, int64(len(want)))
}

// partition returns the stats of a partition of main, without its key if there is no such partition.
func (r *rig) partition(key string) storage.PartitionStats {
	r.Helper()
	page := r.partitions(storage.PartitionsQuery{Key: key})
	if len(page.Partitions) > 1 || page.Next != "" {
		r.Fatalf("partition %s: got %+v, want one at most", key, page)
	}
	for _, p := range page.Partitions {
		r.want("key", p.Key, key)
		return p
	}
	return storage.PartitionStats{}
}

// partitions lists partitions of main.
func (r *rig) partitions(query storage.PartitionsQuery) storage.PartitionsPage {
	r.Helper()
	query.Queue = mainQueue
	page, err := r.store.Partitions(r.ctx, query)
	r.must("partitions", err)
	return page
}

// keys lists the keys of all partitions of main.
func (r *rig) keys() []string {
	r.Helper()
	all := r.partitions(storage.PartitionsQuery{}).Partitions
	keys := make([]string, len(all))
	for i := range all {
		keys[i] = all[i].Key
	}
	return keys
}

// claims makes claims of these many tasks and returns the ids of all that they took.
func (r *rig) claims(sizes ...int) []string {
	r.Helper()
	got := make([]string, 0, len(sizes))
	for _, n := range sizes {
		got = append(got, ids(r.claim(ask(n)).Tasks)...)
	}
	return got
}

func partitionTurns(r *rig) {
	r.addKeyed("a", 3)
	r.add("x", "y")
	r.addKeyed("b", 2)
	got := r.claim(ask(4))
	r.want("first round", ids(got.Tasks), []string{"x", "a0", "b0", "y"})
	r.want("partitions", [2]string{got.Tasks[0].Partition, got.Tasks[1].Partition}, [2]string{"", "a"})
	r.addKeyed("c", 1)
	r.want("second round", ids(r.claim(ask(2)).Tasks), []string{"a1", "b1"})
	r.want("the end", ids(r.claim(ask(9)).Tasks), []string{"c0", "a2"})
}

func partitionSmall(r *rig) {
	r.addKeyed("big", 50)
	r.insert(keyed("small", "s"))
	r.want("claimed", r.claims(2), []string{"big0", "s"})
	r.want("claimed while one waits", r.claims(3), []string{"big1", "big2", "big3"})
	r.insert(keyed("late", "l"))
	r.want("claimed with a late one", r.claims(1, 1), []string{"big4", "l"})
}

func partitionPriorities(r *rig) {
	r.addKeyed("a", 1)
	urgent := keyed("b", "urgent")
	urgent.Priority = storage.MaxPriority
	idle := keyed("b", "idle")
	idle.Priority = -storage.MaxPriority
	r.insert(idle)
	r.addKeyed("b", 2)
	r.insert(urgent)
	r.inLine("by priority", "b", "urgent", "b0", "b1", "idle")
	r.want("claimed", r.drain(), []string{"a0", "urgent", "b0", "b1", "idle"})
}

func partitionNew(r *rig) {
	r.addKeyed("a", 2)
	r.addKeyed("b", 2)
	r.want("claimed", r.claims(1), []string{"a0"})
	r.addKeyed("c", 2)
	r.want("claimed", r.claims(1, 1), []string{"b0", "a1"})
	r.insert(keyed("a", "again"))
	r.want("claimed", r.claims(3), []string{"c0", "b1", "again"})
	r.want("left", r.drain(), []string{"c1"})
	r.want("partitions", len(r.keys()), 0)
}

func partitionWithout(r *rig) {
	r.decline(of("mail", "d1"), of("mail", "d2"))
	r.addKeyed("a", 3)
	r.add("x")
	r.want("claimed", ids(r.claim(knows(9, "mail")).Tasks), []string{"d1", "a0", "d2", "a1", "x", "a2"})
	k := keyed("a", "k")
	k.Kind = "mail"
	r.decline(k)
	r.want("partitions after a decline", len(r.keys()), 0)
	r.addKeyed("b", 2)
	r.add("y")
	r.want("claimed by another", ids(r.claim(knows(2, "news")).Tasks), []string{"y", "b0"})
	c := r.claim(knows(9, "mail"))
	r.want("claimed", ids(c.Tasks), []string{"k", "b1"})
	r.want("partition of a declined task", c.Tasks[0].Partition, "a")
}

// suspectIn makes a suspect in a partition, while nothing else may be claimed.
func (r *rig) suspectIn(key, id string) {
	r.Helper()
	j := keyed(key, id)
	j.CrashLimit = 2
	r.insert(j)
	r.expire(r.take(brief(1), id))
	r.want("passed over", r.read(id).PassedOver, storage.PassedOverSuspect)
}

func partitionPassedOver(r *rig) {
	r.suspectIn("a", "s")
	r.insert(keyed("a", "a1"))
	r.addKeyed("b", 2)
	r.inLine("with a suspect", "a", "s", "a1")
	r.want("claimed without a suspect", r.drain(), []string{"a1", "b0", "b1"})
	r.addKeyed("c", 1)
	r.want("claimed with a suspect", ids(r.claim(asking(1)).Tasks), []string{"s"})
	r.want("claimed", r.claims(1), []string{"c0"})
	r.insert(keyed("d", "cold"))
	h := r.take(ahead(), "cold")
	r.insert(keyed("d", "d1"))
	r.addKeyed("e", 1)
	r.expire(h)
	r.inLine("with a task to start at once", "d", "cold", "d1")
	req := ask(0)
	req.Ahead = 3
	r.want("claimed ahead", ids(r.claim(req).Tasks), []string{"d1", "e0"})
	r.addKeyed("f", 1)
	r.want("claimed to start", r.claims(1, 1), []string{"cold", "f0"})
}

func partitionManyPassedOver(r *rig) {
	const many = 40
	for i := range many {
		r.insert(keyed("a", fmt.Sprintf("cold%02d", i)))
	}
	req := ahead()
	req.Ahead = many
	r.expire(r.hold(req, many)[many-1])
	r.want("passed over", r.read("cold39").PassedOver, storage.PassedOverStartOnly)
	r.addKeyed("a", 3)
	r.addKeyed("b", 3)
	for i := range 2 {
		req := ask(1)
		req.Ahead = 2
		c := r.claim(req)
		r.want("claimed", ids(c.Tasks), [][]string{{"cold00", "b0", "a0"}, {"b1", "a1", "b2"}}[i])
	}
	r.want("claimed to start", r.claims(2), []string{"cold01", "cold02"})
}

func partitionMore(r *rig) {
	more := func(what string, req storage.ClaimRequest, tasks int, want bool) {
		r.Helper()
		c := r.claim(req)
		r.want("claimed, more "+what, [2]any{len(c.Tasks), c.More}, [2]any{tasks, want})
	}
	r.addKeyed("a", 1)
	r.addKeyed("b", 2)
	more("of three", ask(1), 1, true)
	more("of two in one partition", ask(1), 1, true)
	more("of one", ask(1), 1, false)
	more("of none", ask(1), 0, false)
	r.suspectIn("c", "s")
	more("beside a suspect", ask(1), 0, false)
	r.insert(keyed("d", "first"), keyed("d", "second"))
	r.configure(pausingOf("e", 0))
	r.addKeyed("e", 2)
	more("beside another", ask(1), 1, true)
	more("beside a suspect and a pause", ask(1), 1, false)
	more("with a suspect", asking(1), 1, false)
	more("beside a pause", ask(1), 0, false)
	for _, none := range []int{storage.MaxNone, storage.MaxFull} {
		req := ask(1)
		req.Queues[0].Max = none
		r.insert(keyed("f", fmt.Sprint("f", none)))
		more(fmt.Sprint("with Max ", none), req, 0, false)
	}
}

func partitionTogether(r *rig) {
	r.insert(keyed("c", "c0"), keyed("a", "a0"), job("x"), keyed("b", "b0"), keyed("a", "a1"))
	r.want("claimed after a Tx", r.drain(), []string{"x", "c0", "a0", "b0", "a1"})
	const tasks, parts = 120, 40 // enough for the way of a storage for large calls
	txs, want := make([]storage.Tx, tasks), make([]string, tasks)
	for i := range txs {
		want[i] = fmt.Sprintf("t%03d", i)
		txs[i] = inserting(keyed(fmt.Sprint("key", i*7%parts), want[i]))
	}
	_, err := r.session.Apply(r.ctx, txs...)
	r.must("apply", err)
	s := r.stats()
	r.want("waiting, partitioned", [2]int64{s.Waiting, s.Partitioned}, [2]int64{tasks, tasks})
	r.want("partitions", len(r.keys()), parts)
	r.want("claimed after a large call", r.drain(), want)
	s = r.stats()
	r.want("waiting, partitioned after it", [2]int64{s.Waiting, s.Partitioned}, [2]int64{0, 0})
	r.want("partitions after it", len(r.keys()), 0)
}

func partitionRunners(r *rig) {
	other, ok := r.again()
	if !ok {
		other = r
	}
	for _, key := range []string{"a", "b", "c"} {
		r.addKeyed(key, 4)
	}
	got := make([]string, 0, 12)
	for i, n := range []int{1, 2, 1, 3, 5, 9} {
		by, req := r, ask(n)
		if i%2 > 0 {
			by, req.Runner = other, "runner-2"
		}
		got = append(got, ids(by.claim(req).Tasks)...)
	}
	r.want("claimed", got, []string{"a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3"})
}

func partitionClaimers(r *rig) {
	const parts, each, claimers, most = 8, 25, 6, 3
	for i := range each {
		ins := make([]storage.Insert, parts)
		for p := range ins {
			ins[p] = keyed(fmt.Sprint("p", p), fmt.Sprintf("t%d.%d", p, i))
		}
		r.insert(ins...)
	}
	var mu sync.Mutex
	var taken []storage.Task
	var all sync.WaitGroup
	for i := range claimers {
		own := r
		if other, ok := r.again(); ok && i > 0 {
			own = other
		}
		all.Go(func() {
			for empty := false; !empty; {
				c, err := own.session.Claim(own.ctx, ask(1+i%most))
				if err != nil {
					r.Errorf("claim: %v", err)
					return
				}
				mu.Lock()
				taken = append(taken, c.Tasks...)
				mu.Unlock()
				empty = len(c.Tasks) == 0 && !c.More
			}
		})
	}
	all.Wait()
	slices.SortStableFunc(taken, func(a, b storage.Task) int { return cmp.Compare(a.Version, b.Version) })
	served, seen := map[string]int{}, map[string]bool{}
	for n, t := range taken {
		seen[t.ID] = true
		served[t.Partition]++
		if own := served[t.Partition]; own > n/parts+1+claimers*most/parts {
			r.Fatalf("claim %d of all: got task %d of %s, want the partitions in turn", n, own, t.Partition)
		}
	}
	r.want("claimed, claimed once", [2]int{len(seen), len(taken)}, [2]int{parts * each, parts * each})
}

func partitionMany(r *rig) {
	const parts = storage.MaxTurns + 100
	want := make([]string, parts)
	for from := 0; from < parts; from += 100 {
		ins := make([]storage.Insert, 0, 100)
		for i := from; i < from+100; i++ {
			want[i] = fmt.Sprintf("t%04d", i*7919%parts)
			ins = append(ins, keyed("of "+want[i], want[i]))
		}
		r.insert(ins...)
	}
	again := keyed("of "+want[0], "again")
	r.insert(again)
	var got []string
	for len(got) < parts {
		c := r.claim(ask(storage.MaxClaim))
		got = append(got, ids(c.Tasks)...)
		r.want(fmt.Sprint("more after ", len(got)), c.More, len(got) < parts+1)
		if len(c.Tasks) == 0 {
			r.Fatalf("claimed: got none after %d of %d", len(got), parts+1)
		}
	}
	got = append(got, r.drain()...)
	r.want("claimed once", strings.Join(got[:parts], " "), strings.Join(want, " "))
	r.want("claimed again", got[parts:], []string{"again"})
}

func partitionRepeated(r *rig) {
	r.addKeyed("a", 3)
	r.addKeyed("b", 3)
	req := ask(3)
	req.Call, req.Token = r.first(), storage.NewToken()
	once := r.claimedAs(req)
	r.want("claimed", len(once), 3)
	for range 3 {
		r.want("repeated", r.claimedAs(req), once)
	}
	s := r.stats()
	r.want("pending, partitioned", [2]int64{s.Pending, s.Partitioned}, [2]int64{3, 3})
	r.want("claimed by the next", r.drain(), []string{"b1", "a2", "b2"})
	r.want("repeated at the end", r.claimedAs(req), once)
}

func partitionQueues(r *rig) {
	side := func(key, id string) {
		j := keyed(key, id)
		j.Ref.Queue = sideQueue
		r.insert(j)
	}
	side("a", "s0")
	side("a", "s1")
	side("b", "s2")
	r.addKeyed("b", 2)
	r.addKeyed("a", 2)
	req := ask(1)
	req.Queues = []storage.ClaimQueue{{Name: sideQueue}}
	r.want("claimed from side", ids(r.claim(req).Tasks), []string{"s0"})
	r.want("claimed from main", r.claims(1), []string{"b0"})
	if !storage.Spans(r.store, mainQueue, sideQueue) {
		r.Log("not tested: the order across queues that do not span is best effort")
		return
	}
	req = ask(9)
	req.Queues = []storage.ClaimQueue{{Name: sideQueue}, {Name: mainQueue}}
	r.want("claimed from both", ids(r.claim(req).Tasks), []string{"s2", "s1", "a0", "b1", "a1"})
}

func partitionLimited(r *rig) {
	r.configure(limiting(slotsOf(2)))
	r.addKeyed("a", 3)
	r.addKeyed("b", 2)
	r.addKeyed("c", 1)
	holds := r.hold(ask(5), 2)
	want := []string{"a0", "b0", "c0", "a1", "b1", "a2"}
	for i := range want {
		if len(holds) < len(want) {
			r.full("with two that run")
			r.end(holds[i], storage.Complete)
			holds = append(holds, r.hold(ask(5), 1)...)
		}
		r.want("claimed", holds[i].ID, want[i])
	}
	for _, h := range holds[len(want)-2:] {
		r.end(h, storage.Complete)
	}
	r.configure(limiting(starting(3, time.Hour)))
	r.insert(keyed("a", "a4"), keyed("a", "a5"), keyed("b", "b4"), keyed("c", "c4"))
	r.want("claimed under a rate", r.claims(9), []string{"a4", "b4", "c4"})
	r.full("after three starts")
	r.configure(clearing())
	r.want("claimed once it is cleared", r.drain(), []string{"a5"})
}

func partitionBytes(r *rig) {
	const each = 3
	keys := []string{"a", "b", "c"}
	want := make([]string, each*len(keys))
	for at, key := range keys {
		for i := range each {
			id := fmt.Sprint(key, i)
			want[i*len(keys)+at] = id
			j := keyed(key, id)
			j.Payload = make([]byte, 1<<20)
			r.insert(j)
		}
	}
	var got []string
	for len(got) < len(want) {
		c := r.claim(ask(len(want)))
		if n := len(c.Tasks); n == 0 || n > storage.MaxClaimBytes>>20 {
			r.Fatalf("claimed: got %d tasks of 1 MiB, want as many as have room in an answer", n)
		}
		got = append(got, ids(c.Tasks)...)
		r.want("more", c.More, len(got) < len(want))
	}
	r.want("claimed", got, want)
}
