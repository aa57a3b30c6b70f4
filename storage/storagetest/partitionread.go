package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

func partitionReadRules() []rule {
	return []rule{
		state("partition/listed", partitionListed,
			"Tasks in partitions are listed as waiting, behind the declined ones, by key and in the order of "+
				"their line."),
		state("partition/pages", partitionPages,
			"Partitions lists those that have waiting tasks or are paused, by the bytes of their key, in pages "+
				"of any size, with their sizes; Key asks for one."),
		state("partition/pages beside empty ones", partitionPagesEmpty,
			"Pages of tasks pass over partitions that are paused and hold none, and pages of partitions pass "+
				"over those whose pause is over, however many there are."),
		state("partition/counted", partitionCounted,
			"Stats counts the tasks of partitions as waiting and as Partitioned, paused or not, and the "+
				"declined ones not as Partitioned."),
		state("partition/oldest", partitionOldest,
			"The age of the oldest task is also that of a task in a partition."),
		state("partition/odd keys", partitionOddKeys,
			"A key is any printable UTF-8 of 1 to 128 bytes, and means nothing to the storage: not a kind, nor "+
				"a pattern."),
		state("partition/valid", partitionValid,
			"A key of any other text is an InvalidError and changes nothing, and so is a partition with what "+
				"does not go with it."),
		state("partition/model", partitionModel,
			"After random steps each line, the turns and the sizes are those of a model."),
	}
}

func partitionListed(r *rig) {
	k := keyed("a", "k")
	k.Kind = "mail"
	r.decline(of("mail", "d"), k)
	r.addKeyed("b", 2)
	r.addKeyed("a", 1)
	r.add("x")
	r.listedAs(storage.Waiting, "x", "d", "k", "a0", "b0", "b1")
	r.inLine("beside a declined task", "a", "a0")
	high := keyed("b", "high")
	high.Priority = 3
	r.insert(high)
	r.configure(pausingOf("b", 0))
	r.listedAs(storage.Waiting, "x", "d", "k", "a0", "high", "b0", "b1")
	first := r.page(storage.TasksQuery{State: storage.Waiting, Partition: "b", Limit: 1})
	r.want("first page of one partition", ids(first.Tasks), []string{"high"})
	rest := r.page(storage.TasksQuery{State: storage.Waiting, Partition: "b", After: first.Next})
	r.want("the rest", ids(rest.Tasks), []string{"b0", "b1"})
	r.want("next page", rest.Next, "")
	r.want("tasks of none", len(r.pages(storage.TasksQuery{State: storage.Waiting, Partition: "c"})), 0)
	first = r.page(storage.TasksQuery{State: storage.Waiting, Limit: 5})
	r.changeNow("a0", storage.Change{Cancel: true})
	r.delete("high")
	rest = r.page(storage.TasksQuery{State: storage.Waiting, Limit: 5, After: first.Next})
	r.want("the rest after some have gone", ids(rest.Tasks), []string{"b0", "b1"})
}

func partitionPages(r *rig) {
	keys := []string{"B", "_", "a", "a b", "a.b", "ab", "b", "é", "ñ"} // in the order of bytes
	want := make([]storage.PartitionStats, len(keys))
	for i, at := range []int{4, 0, 8, 2, 6, 1, 7, 3, 5} {
		n := i%3 + 1
		for k := range n {
			r.insert(keyed(keys[at], fmt.Sprint("t", at, ".", k)))
		}
		want[at] = storage.PartitionStats{Key: keys[at], Waiting: int64(n)}
	}
	r.configure(pausingOf(keys[1], 0))
	want[1].Paused = true
	r.configure(pausingOf("none", 0))
	want = slices.Insert(want, 7, storage.PartitionStats{Key: "none", Paused: true})
	for limit := range len(want) + 2 {
		var got []storage.PartitionStats
		query := storage.PartitionsQuery{Limit: limit}
		for more := true; more; more = query.After != "" {
			page := r.partitions(query)
			if limit > 0 && len(page.Partitions) > limit {
				r.Fatalf("page of %d: got %d partitions", limit, len(page.Partitions))
			}
			got = append(got, page.Partitions...)
			query.After = page.Next
		}
		r.want(fmt.Sprint("partitions in pages of ", limit), got, want)
	}
	rest := r.partitions(storage.PartitionsQuery{After: "a!"}).Partitions
	r.want("after a key that is not there", rest, want[4:])
	for i := range want {
		r.want("one partition", r.partition(want[i].Key), want[i])
	}
	r.want("a partition that is not there", len(r.partitions(storage.PartitionsQuery{Key: "a."}).Partitions), 0)
	r.want("a page of a queue that is not there", len(r.partitionsOf("nowhere")), 0)
}

func partitionPagesEmpty(r *rig) {
	r.decline(of("mail", "declined"))
	for i := range 9 {
		r.configure(pausingOf(fmt.Sprint("a", i), 0))
		r.configure(pausingOf(fmt.Sprint("b", i), storage.MinSpan))
	}
	r.addKeyed("c", 2)
	r.addKeyed("d", 1)
	r.add("x")
	r.listedAs(storage.Waiting, "x", "declined", "c0", "c1", "d0")
	r.pass(2 * storage.MinSpan)
	r.addKeyed("b8", 1)
	for _, limit := range []int{1, 2, 5, 12} {
		var got []string
		query := storage.PartitionsQuery{Limit: limit, After: "a7"}
		for more := true; more; more = query.After != "" {
			page := r.partitions(query)
			for _, p := range page.Partitions {
				got = append(got, p.Key)
			}
			query.After = page.Next
		}
		r.want(fmt.Sprint("partitions in pages of ", limit), got, []string{"a8", "b8", "c", "d"})
	}
	r.want("a partition whose pause is over", r.partition("b0"), storage.PartitionStats{})
}

// partitionsOf returns the partitions of a queue.
func (r *rig) partitionsOf(queue string) []storage.PartitionStats {
	r.Helper()
	page, err := r.store.Partitions(r.ctx, storage.PartitionsQuery{Queue: queue})
	r.must("partitions", err)
	return page.Partitions
}

func partitionCounted(r *rig) {
	counted := func(when string, waiting, partitioned int64) {
		r.Helper()
		s := r.stats()
		r.want("waiting, partitioned "+when, [2]int64{s.Waiting, s.Partitioned}, [2]int64{waiting, partitioned})
		var lines int64
		for _, p := range r.partitions(storage.PartitionsQuery{}).Partitions {
			lines += p.Waiting
		}
		r.want("waiting in lines "+when, lines, partitioned)
		r.balanced(s)
	}
	k := keyed("a", "k")
	k.Kind = "mail"
	r.decline(k)
	counted("of a declined task", 1, 0)
	r.addKeyed("a", 2)
	r.addKeyed("b", 1)
	r.add("x")
	counted("after inserts", 5, 3)
	r.want("declined", r.stats().Declined, []storage.KindSize{{Kind: "mail", Tasks: 1}})
	r.configure(pausingOf("a", 0))
	counted("beside a pause", 5, 3)
	holds := r.hold(knows(9, "none"), 2)
	counted("after a claim", 3, 2)
	for _, h := range holds {
		r.end(h, storage.Release)
	}
	counted("after releases", 5, 3)
	later := keyed("b", "later")
	later.Delay = time.Hour
	r.insert(later)
	counted("beside a scheduled task", 5, 3)
	r.changeNow("k", storage.Change{Now: true})
	counted("after a declined task came back", 5, 4)
	r.configure(resumingOf("a"))
	r.drain()
	counted("at the end", 0, 0)
}

func partitionOldest(r *rig) {
	a := r.joins(func() { r.addKeyed("a", 1) })
	r.oldest("in a partition", a)
	b := r.joins(func() { r.addKeyed("b", 1) })
	r.joins(func() { r.add("x") })
	r.oldest("in the older of two partitions", a)
	h := r.take(ask(1), "x")
	r.take(ask(1), "a0")
	r.oldest("in the partition that is left", b)
	r.take(ask(1), "b0")
	r.noneOld("of no task")
	r.end(h, storage.Release)
	y := r.joins(func() { r.add("y") })
	r.joins(func() { r.addKeyed("c", 1) })
	r.oldest("beside a partition", y)
}

func partitionOddKeys(r *rig) {
	keys := []string{
		"a.b", "é", "with spaces in it", strings.Repeat("k", storage.MaxPartition), "mail", "p", "k", "0", "-1",
		"{x}", "a:b", "—", `"'\`, "%", "A", "a", "*", "[a]", "null", "job", mainQueue, " ", "a ", "_", "$1", "🙂",
		strings.Repeat("é", storage.MaxPartition/2),
	}
	r.decline(of("mail", "declined"))
	want := make([]string, len(keys))
	for i, key := range keys {
		want[i] = fmt.Sprintf("t%02d", i)
		r.insert(keyed(key, want[i]))
	}
	r.want("keys", r.keys(), slices.Sorted(slices.Values(keys)))
	for i, key := range keys {
		r.inLine("of an odd key", key, want[i])
		r.configure(pausingOf(key, 0))
	}
	r.want("claimed while all are paused", ids(r.claim(knows(9, "p")).Tasks), []string{})
	holds := make([]held, len(keys))
	for i, key := range keys {
		r.isPaused("of an odd key", key, 1)
		r.configure(resumingOf(key))
		holds[i] = r.take(knows(1, "p"), want[i])
		r.want("partition as claimed", holds[i].Partition, key)
	}
	for _, h := range holds {
		r.end(h, storage.Release)
	}
	r.want("claimed", ids(r.claim(knows(len(keys), "p")).Tasks), want)
	r.want("declined", r.stats().Declined, []storage.KindSize{{Kind: "mail", Tasks: 1}})
	r.want("keys at the end", len(r.keys()), 0)
	r.insert(keyed(keys[3], "last"))
	r.changeNow("last", rekeyed(keys[1]))
	r.inLine("after a change", keys[1], "last")
}

// badKeys are texts that are not the key of a partition.
var badKeys = []string{
	strings.Repeat("k", storage.MaxPartition+1), strings.Repeat("é", storage.MaxPartition/2) + "a", "a\x00",
	"a\nb", "\t", "\xff", "a\xc3", "\u200b", "\u202ea", "a\u00a0b", "\x7f",
}

func partitionValid(r *rig) {
	later := delayed("there", time.Hour)
	later.Partition = "a"
	later.Ref.Queue = sideQueue
	r.insert(later)
	there, err := r.store.Task(r.ctx, later.Ref)
	r.must("read", err)
	for _, key := range badKeys {
		what := fmt.Sprintf(" with the key %q", key)
		_, err := r.session.ApplyOne(r.ctx, inserting(job("fine"), keyed(key, "bad")))
		r.wantInvalid("insert"+what, err)
		ch := rekeyed(key)
		ch.Ref, ch.Version = there.Ref, there.Version
		_, err = r.session.ApplyOne(r.ctx, storage.Tx{Changes: []storage.Change{ch}})
		r.wantInvalid("change"+what, err)
		r.wantInvalid("pause"+what, r.session.Configure(r.ctx, mainQueue, pausingOf(key, 0)))
		for _, q := range []storage.PartitionsQuery{{Key: key}, {After: key}} {
			q.Queue = mainQueue
			_, err = r.store.Partitions(r.ctx, q)
			r.wantInvalid("partitions"+what, err)
		}
		_, err = r.store.Tasks(r.ctx, storage.TasksQuery{Queue: mainQueue, State: storage.Waiting, Partition: key})
		r.wantInvalid("listing"+what, err)
	}
	for _, s := range storage.States() {
		if s != storage.Waiting {
			_, err := r.store.Tasks(r.ctx, storage.TasksQuery{Queue: mainQueue, State: s, Partition: "a"})
			r.wantInvalid("listing of a partition as "+string(s), err)
		}
	}
	limit := storage.OperatorLimit{On: true, Limit: slotsOf(1)}
	declared := storage.DeclaredLimit{Limit: slotsOf(1)}
	for what, s := range map[string]storage.Settings{
		"nothing": {}, "a removal": {Remove: true}, "a creation": {Create: true}, "a limit": {Limit: &limit},
		"a limit and a pause":       {Limit: &limit, Pause: &storage.Pause{On: true}},
		"a declaration and a pause": {Declared: &declared, Pause: &storage.Pause{On: true}},
		"a creation and a pause":    {Create: true, Pause: &storage.Pause{On: true}},
		"an end of no pause":        {Pause: &storage.Pause{For: time.Second}},
		"a pause under 1ms":         {Pause: &storage.Pause{On: true, For: storage.MinSpan - 1}},
	} {
		s.Partition = "a"
		r.wantInvalid("a partition and "+what, r.session.Configure(r.ctx, mainQueue, s))
	}
	for what, q := range map[string]storage.PartitionsQuery{
		"no queue": {}, "a bad queue": {Queue: "a b"}, "a page of -1": {Queue: mainQueue, Limit: -1},
		"a page of 1,001": {Queue: mainQueue, Limit: storage.MaxNames + 1},
	} {
		_, err := r.store.Partitions(r.ctx, q)
		r.wantInvalid("partitions with "+what, err)
	}
	r.partitionUnchanged(there)
}

// partitionUnchanged fails the rule unless there is still only one task, in another queue.
func (r *rig) partitionUnchanged(there storage.Task) {
	r.Helper()
	page, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
	r.must("queues", err)
	r.want("queues", page.Names, []string{sideQueue})
	r.want("the task that was there", r.snapshot(there.Ref), there)
	r.want("partitions", len(r.keys()), 0)
}
