package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// inPartitions makes a Configure that alters the limit of partitions in each limit that it sets.
func inPartitions(edit func(*storage.PartitionLimit)) func(configureFunc) configureFunc {
	return limits(func(l *storage.Limit) {
		if !l.Partition.IsZero() {
			edit(&l.Partition)
		}
	})
}

// restings makes an Apply that alters each release that puts a partition to rest.
func restings(edit func(*storage.Settle)) func(applyFunc) applyFunc {
	return settles(func(s *storage.Settle) {
		if s.Outcome == storage.Release && s.Delay > 0 {
			edit(s)
		}
	})
}

func shareMutants() []mutant {
	return []mutant{
		breaks("limits of partitions ignored", fault{configure: limits(func(l *storage.Limit) {
			l.Partition = storage.PartitionLimit{}
		})}, "share/concurrency", "share/every end", "share/rate", "share/empty", "share/declined", "share/loosened",
			"share/suspects", "share/priorities", "share/with slots of the queue", "share/with a rate of the queue",
			"share/charged once admitted", "share/repeated", "share/no room", "share/damaged while it runs",
			"share/damaged while it waits", "share/costs", "share/extended", "share/never ahead",
			"share/expired together", "share/lowered", "share/cleared while tasks run", "share/moved",
			"share/changed partition", "share/requeued", "share/cancelled and deleted", "share/unique",
			"share/first after a rate", "share/only task changed in a rest", "share/many at their limit",
			"share/many loosened", "share/many spent", "share/next due",
			"share/held names", "share/many declined of a full partition", "share/clock ahead of a rate"),
		breaks("one task too many in a partition", fault{configure: inPartitions(func(l *storage.PartitionLimit) {
			if l.Concurrency > 0 {
				l.Concurrency++
			}
		})}, "share/concurrency", "share/every end", "share/empty", "share/declined", "share/loosened",
			"share/model"),
		breaks("one start too many in a partition", fault{configure: inPartitions(func(l *storage.PartitionLimit) {
			if l.Rate.N > 0 {
				l.Rate.N++
			}
		})}, "share/rate", "share/empty", "share/loosened", "share/model"),
		breaks("a cheaper task keeps its place", fault{apply: pricingChanges(func(c *storage.Change) { c.Priority = nil })},
			"share/only task changed in a rest"),
		breaks("the limit of partitions is that of the queue", fault{configure: limits(func(l *storage.Limit) {
			l.Concurrency, l.Rate, l.Partition = l.Partition.Concurrency, l.Partition.Rate, storage.PartitionLimit{}
		})}, "share/concurrency", "share/rate", "share/declined"),
		breaks("slots of partitions do not come back", fault{configure: inPartitions(func(l *storage.PartitionLimit) {
			if l.Concurrency > 0 {
				l.Rate, l.Concurrency = storage.Rate{N: l.Concurrency, Per: time.Hour}, 0
			}
		})}, "share/every end", "share/concurrency"),
		breaks("queues with full partitions unnamed", fault{claim: given(
			func(_ storage.ClaimRequest, c *storage.Claimed) { c.Held = nil },
		)}, "share/concurrency", "share/declined", "share/last slot"),
		breaks("nothing rests", fault{apply: restings(func(s *storage.Settle) { s.Delay = 0 })},
			"share/throttle", "share/rest of an empty partition", "share/throttle without a partition",
			"share/pause, rest and rate", "share/later rest", "share/rest and declined", "share/throttled declined task",
			"share/throttled suspect", "share/many declined of a full partition", "share/rest in a paused queue",
			"share/rest of all in a paused queue", "share/next due", "share/many rests end", "share/rest is told",
			"share/loosened beside a rest", "share/held names", "share/removal", "share/holds the queue",
			"share/promoted into a rest", "share/changed partition", "share/cancelled and deleted",
			"share/clock ahead", "share/clock back beside others", "share/model"),
		breaks("rests last too long", fault{apply: restings(func(s *storage.Settle) { s.Delay += s.Delay / 2 })},
			"share/throttle", "share/rest of an empty partition", "share/throttle without a partition"),
		breaks("NextDue without rests", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			c.NextDue = time.Time{}
		})}, "share/rate", "share/throttle", "share/throttle without a partition"),
		breaks("rates of partitions last too long", fault{configure: inPartitions(func(l *storage.PartitionLimit) {
			l.Rate.Per *= 2
		})}, "share/nothing left", "share/pause, rest and rate", "share/clock back", "share/clock back in a rate",
			"share/first after a rate", "share/costs"),
		breaks("full partitions are named everywhere", fault{claim: given(
			func(req storage.ClaimRequest, c *storage.Claimed) { c.Held = []string{req.Queues[0].Name} },
		)}, "share/held names", "share/suspects", "share/cancelled and deleted"),
		breaks("repeats count in partitions", fault{claim: asked(func(c *storage.ClaimRequest) {
			c.Call = storage.Call{}
		})}, "share/repeated"),
		breaks("changed limits of partitions wake nobody", fault{wait: waits(never)}, "share/wakes"),
		breaks("all costs are 1 in partitions", fault{apply: pricing(func(storage.Cost) storage.Cost { return 0 })},
			"share/costs", "share/with a rate of the queue", "share/first after a rate", "share/rest until a dear task"),
		knowing("the first limit of partitions holds for ever", func(m *mind) *fault {
			return &fault{configure: firstLimit(m)}
		}, "share/many loosened", "share/lowered Per", "share/lowered", "share/cleared while tasks run", "share/loosened beside a rest"),
		breaks("weights ignored", fault{configure: limits(func(l *storage.Limit) { l.Partition.Weight = 0 })},
			"share/turns by weight", "share/weight in order",
			"share/weight and declined", "share/own limit without a weight", "share/weight in a clock set back",
			"share/weight and a rate of the queue"),
		knowing("turns end with the claim", func(m *mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				for i := range c.Tasks {
					if t := &c.Tasks[i]; t.Partition != "" {
						_ = m.Configure(context.Background(), storage.Call{}, t.Ref.Queue, pausingOf(t.Partition, 0))
						_ = m.Configure(context.Background(), storage.Call{}, t.Ref.Queue, resumingOf(t.Partition))
					}
				}
			})}
		}, "share/turn over claims", "share/turn and new partitions", "share/turn over claims of two queues",
			"share/turn of an emptied partition", "share/turn and rests", "share/turn under another weight",
			"share/turn passed over", "share/turn in a claim that goes on", "share/turn and declined tasks"),
		breaks("limits of one partition ignored", fault{configure: divides(func(s *storage.Settings) {
			if s.Limit != nil {
				s.Limit = new(storage.OperatorLimit)
			}
		})}, "share/own limit", "share/own limit alone", "share/own rate", "share/own limit kept",
			"share/own limit cleared", "share/own limit loosened", "share/own limit beside that of all",
			"share/own limit of declined", "share/own limit without a weight", "share/own rate in a clock set back",
			"share/own limit cleared while tasks run", "share/own limits of many", "share/own limit and why"),
		breaks("limits of one partition are not cleared", fault{configure: divides(func(s *storage.Settings) {
			if s.Limit != nil {
				s.Limit = &storage.OperatorLimit{On: true, Limit: s.Limit.Limit}
			}
		})}, "share/own limit", "share/own limit cleared", "share/own limits of many", "share/own limit of none cleared"),
		{
			name: "jumps end rests and rates", rules: []string{"share/clock ahead", "share/clock ahead of a rate"},
			opened: func(t testing.TB, _ storage.Limits, o *Opened) { believing(t, o, 0) },
		},
	}
}

// firstLimit makes a Configure that sets the first limit, and no other.
func firstLimit(m *mind) func(configureFunc) configureFunc {
	return func(next configureFunc) configureFunc {
		return func(ctx context.Context, call storage.Call, queue string, s storage.Settings) error {
			first := true
			m.locked(func() {
				if s.Limit != nil {
					m.count++
					first = m.count == 1
				}
			})
			if !first {
				return nil
			}
			return next(ctx, call, queue, s)
		}
	}
}
