package storagetest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// divides makes a Configure that alters the settings of partitions.
func divides(edit func(*storage.Settings)) func(configureFunc) configureFunc {
	return configured(func(_ *storage.Call, s *storage.Settings) {
		if s.Partition != "" {
			edit(s)
		}
	})
}

func partitionMutants() []mutant {
	return []mutant{
		breaks("partitions ignored", fault{apply: inserts(func(j *storage.Insert) { j.Partition = "" })},
			"partition/turns", "partition/small beside big", "partition/priorities", "partition/new at the end",
			"partition/without one", "partition/passed over", "partition/many passed over", "partition/runners",
			"partition/many claimers",
			"partition/queues apart", "partition/under a limit", "partition/4 MiB", "partition/inserted",
			"partition/clock back", "partition/model"),
		breaks("partitions in one line", fault{apply: inserts(func(j *storage.Insert) {
			if j.Partition != "" {
				j.Partition = "one"
			}
		})}, "partition/turns", "partition/new at the end", "partition/joined together", "partition/inserted"),
		breaks("last partition first", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			slices.Reverse(c.Tasks)
			slices.Reverse(c.Fences)
		})}, "partition/more than a claim looks at", "partition/many pauses end", "partition/joined together",
			"share/loosened in order"),
		breaks("more is always of others", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			c.More = false
		})}, "partition/more", "partition/many pauses end", "partition/4 MiB"),
		breaks("suspects are passed over with their line", fault{claim: given(withoutA)}, "partition/passed over"),
		breaks("repeats have turns of their own", fault{claim: asked(func(c *storage.ClaimRequest) {
			c.Call = storage.Call{}
		})}, "partition/repeated"),
		breaks("ids by partition", fault{apply: inserts(func(j *storage.Insert) {
			if j.Unique.Key != "" {
				j.Unique.Key += j.Partition
			}
		})}, "partition/unique"),
		breaks("a late clock serves nobody", fault{claim: behindClock()}, "partition/clock back"),
		{
			name: "jumps end pauses of partitions", rules: []string{"partition/clock ahead"},
			opened: func(t testing.TB, _ storage.Limits, o *Opened) { believing(t, o, 0) },
		},
	}
}

// withoutA leaves the tasks of partition a out of a claim that takes no suspect.
func withoutA(req storage.ClaimRequest, c *storage.Claimed) {
	if !req.Suspect {
		c.Tasks = slices.DeleteFunc(c.Tasks, func(t storage.Task) bool { return t.Partition == "a" })
		c.Fences = c.Fences[:len(c.Tasks)]
	}
}

// behindClock makes a Claim that brings no tasks if the clock is before that of an earlier claim.
func behindClock() func(claimFunc) claimFunc {
	var last time.Time
	return given(func(_ storage.ClaimRequest, c *storage.Claimed) {
		if c.Now.Before(last) {
			c.Tasks, c.Fences = nil, nil
			return
		}
		last = c.Now
	})
}

// losing makes an Apply after which each settled task that which chooses has lost its partition.
func losing(m *mind, which func(storage.Outcome) bool) func(applyFunc) applyFunc {
	return answering(func(tx storage.Tx, a *storage.Applied) {
		for i := range a.Settled {
			if which(tx.Settles[i].Outcome) {
				m.lose(context.Background(), tx.Settles[i].Fence.Ref)
			}
		}
	})
}

// lose takes the partition away from a task.
func (m *mind) lose(ctx context.Context, ref storage.Ref) {
	t, err := m.Task(ctx, ref)
	if err != nil || t.Partition == "" || t.State == storage.Pending {
		return
	}
	_ = storage.NewSession(m.Storage, 0).ChangeTask(ctx, ref, func(storage.Task) (storage.Change, error) {
		return rekeyed(""), nil
	})
}

// scattering makes a Claim after which each task that it recovered has lost its partition.
func scattering(m *mind) func(claimFunc) claimFunc {
	return func(next claimFunc) claimFunc {
		return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
			c, err := next(ctx, req)
			for t, failed := range storage.Each(ctx, m.Storage, req.Queues[0].Name, storage.Waiting) {
				if failed == nil && len(t.Attempts) > 0 && t.Attempts[len(t.Attempts)-1].Outcome == storage.AttemptLeaseLost {
					m.lose(ctx, t.Ref)
				}
			}
			return c, err
		}
	}
}

// forgetting makes an Apply in which each change that which chooses takes the partition away.
func forgetting(which func(storage.Change) bool) func(applyFunc) applyFunc {
	return changes(func(c *storage.Change) {
		if which(*c) && c.Partition == nil {
			c.Partition = rekeyed("").Partition
		}
	})
}

func partitionLineMutants() []mutant {
	return []mutant{
		knowing("what ends loses its partition", func(m *mind) *fault {
			return &fault{apply: losing(m, func(o storage.Outcome) bool {
				return o == storage.Complete || o == storage.Bury || o == storage.Cancel
			})}
		}, "partition/settled", "partition/requeued"),
		knowing("what is put off loses its partition", func(m *mind) *fault {
			return &fault{apply: losing(m, func(o storage.Outcome) bool { return o == storage.Fail || o == storage.Snooze })}
		}, "partition/settled", "partition/promoted"),
		knowing("what is released loses its partition", func(m *mind) *fault {
			return &fault{apply: losing(m, func(o storage.Outcome) bool { return o == storage.Release })}
		}, "partition/settled", "partition/released"),
		knowing("what is declined loses its partition", func(m *mind) *fault {
			return &fault{apply: losing(m, func(o storage.Outcome) bool { return o == storage.Decline })}
		}, "partition/settled", "partition/declined", "partition/without one"),
		knowing("what is recovered loses its partition", func(m *mind) *fault { return &fault{claim: scattering(m)} },
			"partition/recovered"),
		breaks("a requeue loses the partition", fault{apply: forgetting(func(c storage.Change) bool { return c.Requeue })},
			"partition/requeued", "partition/settled"),
		breaks("a new priority loses the partition", fault{apply: forgetting(func(c storage.Change) bool {
			return c.Priority != nil
		})}, "partition/rescheduled"),
		breaks("a new moment loses the partition", fault{apply: forgetting(func(c storage.Change) bool {
			return c.Delay != 0 || c.Now
		})}, "partition/rescheduled"),
		breaks("a move loses the partition", fault{apply: forgetting(func(c storage.Change) bool { return c.Queue != "" })},
			"partition/moved", "partition/model"),
		breaks("a tick loses the partition", fault{apply: forgetting(func(c storage.Change) bool { return c.Cursor != nil })},
			"partition/schedule"),
		breaks("partitions stay as they are", fault{apply: changes(func(c *storage.Change) {
			if c.Partition != nil {
				c.Partition, c.Headers = nil, map[string]string{}
			}
		})}, "partition/changed", "partition/schedule"),
		breaks("deleted tasks stay in their line",
			fault{apply: ignoring(func(tx storage.Tx) bool { return tx.Ops() == len(tx.Deletes) })},
			"partition/ended"),
	}
}

func partitionPauseMutants() []mutant {
	return []mutant{
		breaks("pauses of partitions ignored", fault{configure: divides(func(s *storage.Settings) {
			s.Pause = &storage.Pause{}
		})}, "partition/pause", "partition/paused before it exists", "partition/paused with declined tasks",
			"partition/paused with declined suspects", "partition/many declined of a paused one",
			"partition/many declined suspects of a paused one",
			"partition/paused for a time", "partition/paused again", "partition/paused in a paused queue",
			"partition/pause of a queue that is removed", "partition/pause holds the queue", "partition/clock ahead",
			"share/resumed after a dear task"),
		breaks("a partition pauses its queue", fault{configure: divides(func(s *storage.Settings) { s.Partition = "" })},
			"partition/pause", "partition/paused in a paused queue", "partition/pause stops nothing else"),
		breaks("pauses of partitions have no end", fault{configure: divides(func(s *storage.Settings) {
			s.Pause = &storage.Pause{On: s.Pause.On}
		})}, "partition/paused for a time", "partition/paused again", "partition/many pauses end"),
		breaks("a resume makes a queue", fault{configure: divides(func(s *storage.Settings) {
			if !s.Pause.On {
				*s = storage.Settings{Create: true}
			}
		})}, "partition/resume of none"),
		breaks("a resume wakes nobody", fault{wait: waits(never)}, "partition/resume wakes"),
	}
}

func partitionReadMutants() []mutant {
	unasked := func(*storage.PartitionsQuery) {}
	asIs := func(*storage.PartitionsPage) {}
	return []mutant{
		breaks("listings of all partitions", fault{tasks: listed(
			func(q *storage.TasksQuery) { q.Partition = "" }, func(*storage.TasksPage) {},
		)}, "partition/listed", "partition/inserted"),
		breaks("partitions on one page", fault{parts: divided(
			func(q *storage.PartitionsQuery) { q.Limit = 0 }, asIs,
		)}, "partition/pages"),
		breaks("partitions by letters", fault{parts: divided(unasked, func(p *storage.PartitionsPage) {
			slices.SortFunc(p.Partitions, func(a, b storage.PartitionStats) int {
				return cmp.Compare(strings.ToLower(a.Key), strings.ToLower(b.Key))
			})
		})}, "partition/pages"),
		breaks("empty partitions are listed", fault{parts: divided(unasked, func(p *storage.PartitionsPage) {
			p.Partitions = append(p.Partitions, storage.PartitionStats{Key: "zero"})
		})}, "partition/pages beside empty ones", "partition/ended", "partition/resume of none"),
		breaks("every partition is asked for", fault{parts: divided(
			func(q *storage.PartitionsQuery) { q.Key = "" }, asIs,
		)}, "partition/pages"),
		breaks("partitions without sizes", fault{parts: divided(unasked, func(p *storage.PartitionsPage) {
			for i := range p.Partitions {
				p.Partitions[i].Waiting = 0
			}
		})}, "partition/pages", "partition/counted", "partition/model"),
		breaks("partitions uncounted", fault{stats: counted(func(s *storage.Stats) { s.Partitioned = 0 })},
			"partition/counted", "partition/joined together", "partition/model"),
		breaks("partitions count twice", fault{stats: counted(func(s *storage.Stats) { s.Waiting += s.Partitioned })},
			"partition/counted"),
		breaks("no ages in partitions", fault{stats: counted(func(s *storage.Stats) {
			if s.Partitioned > 0 {
				s.Oldest = 0
			}
		})}, "partition/oldest"),
		breaks("keys without spaces", fault{apply: inserts(func(j *storage.Insert) {
			j.Partition = strings.ReplaceAll(j.Partition, " ", ".")
		})}, "partition/odd keys"),
		breaks("keys cleaned", fault{apply: inserts(func(j *storage.Insert) {
			j.Partition = storage.PrintableText(j.Partition, storage.MaxPartition-3)
		})}, "partition/valid", "partition/odd keys"),
		breaks("keys of pauses cleaned", fault{configure: divides(func(s *storage.Settings) {
			s.Partition = storage.PrintableText(s.Partition, storage.MaxPartition-3)
		})}, "partition/valid"),
	}
}
