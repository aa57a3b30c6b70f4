package storagetest

import (
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

func partitionRules() []rule {
	return []rule{
		state("partition/turns", partitionTurns,
			"Claims serve the partitions in turn, one task each, round after round, and go on where the claim before "+
				"ended. The tasks without a partition have a turn too."),
		state("partition/small beside big", partitionSmall,
			"A task of a small partition starts within two claims, whatever waits in a big one."),
		state("partition/priorities", partitionPriorities,
			"Priorities order the tasks within a partition, and not between partitions."),
		state("partition/pause", partitionPause,
			"A Claim takes no task of a paused partition, and all of others. A resume, or the end of the pause, puts "+
				"the partition at the end of the ring."),
		state("partition/listed", partitionListed,
			"Tasks in partitions are listed as waiting, behind the declined ones, by key and in the order of their line."),
	}
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

// pausingOf returns settings that pause a partition, for d if that is not 0.
func pausingOf(key string, d time.Duration) storage.Settings {
	return storage.Settings{Partition: key, Pause: &storage.Pause{On: true, For: d}}
}

// resumingOf returns settings that resume a partition.
func resumingOf(key string) storage.Settings {
	return storage.Settings{Partition: key, Pause: &storage.Pause{}}
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
	r.want("claimed", ids(r.claim(ask(2)).Tasks), []string{"big0", "s"})
}

func partitionPriorities(r *rig) {
	r.addKeyed("a", 1)
	urgent := keyed("b", "urgent")
	urgent.Priority = 9
	r.addKeyed("b", 1)
	r.insert(urgent)
	r.want("claimed", ids(r.claim(ask(3)).Tasks), []string{"a0", "urgent", "b0"})
}

func partitionPause(r *rig) {
	r.configure(pausingOf("b", 0))
	r.addKeyed("a", 3)
	r.addKeyed("b", 2)
	c := r.claim(ask(2))
	r.want("claimed beside a pause", ids(c.Tasks), []string{"a0", "a1"})
	r.configure(resumingOf("b"))
	r.want("claimed after a resume", ids(r.claim(ask(2)).Tasks), []string{"a2", "b0"})
	r.configure(pausingOf("b", time.Second))
	c = r.claim(ask(1))
	r.want("claimed, more", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
	r.between("NextDue", c.NextDue, c.Now, c.Now.Add(time.Second))
	r.passTo(c.NextDue)
	r.want("claimed after the pause", ids(r.claim(ask(2)).Tasks), []string{"b1"})
}

func partitionListed(r *rig) {
	r.decline(of("mail", "d"))
	r.addKeyed("b", 2)
	r.addKeyed("a", 1)
	r.add("x")
	r.listedAs(storage.Waiting, "x", "d", "a0", "b0", "b1")
	page := r.page(storage.TasksQuery{State: storage.Waiting, Partition: "b", Limit: 1})
	r.want("page of one partition", ids(page.Tasks), []string{"b0"})
	next := storage.TasksQuery{State: storage.Waiting, Partition: "b", Limit: 1, After: page.Next}
	r.want("next page", ids(r.page(next).Tasks), []string{"b1"})
	parts, err := r.store.Partitions(r.ctx, storage.PartitionsQuery{Queue: mainQueue, Limit: 1})
	r.must("partitions", err)
	r.want("partitions", parts, storage.PartitionsPage{
		Partitions: []storage.PartitionStats{{Key: "a", Waiting: 1}}, Next: "a",
	})
	parts, err = r.store.Partitions(r.ctx, storage.PartitionsQuery{Queue: mainQueue, After: "a"})
	r.must("partitions", err)
	r.want("next partitions", parts, storage.PartitionsPage{Partitions: []storage.PartitionStats{{Key: "b", Waiting: 2}}})
	r.want("partitioned", r.stats().Partitioned, int64(3))
}
