package redis

import (
	"slices"
	"strconv"
	"testing"

	"github.com/midgehq/midge/storage"
)

// BenchmarkPartitionClaims measures how many microseconds of the server one claim takes in its script, from a queue
// with 5,000 partitions that hold one to three tasks each.
func BenchmarkPartitionClaims(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { newCalls(b).partitions(5000, n) })
	}
}

// partitions claims tasks of a queue with so many partitions. The tasks are completed after each claim, and others
// join their partitions.
func (c *benchCalls) partitions(parts, batch int) {
	var txs []storage.Tx
	for i := range 2 * parts {
		key := i % parts
		if i >= parts {
			key -= key%3 - 1 // one of three gets two more, and another one none
		}
		txs = append(txs, keyedOf(strconv.Itoa(key), storage.NewID()))
	}
	c.join(txs)
	var scripts, servers []float64
	for range c.N {
		for left := batch; left > 0; {
			claims := c.claims(1, left)
			script, server := c.spent()
			replies := c.do(c.asks(claims))
			scriptAfter, serverAfter := c.spent()
			scripts, servers = append(scripts, scriptAfter-script), append(servers, serverAfter-server)
			answer, err := c.store.readClaim(&claims[0].req, claims[0].ask, replies[0])
			if err != nil || len(answer.Tasks) == 0 {
				c.Fatalf("claimed %d tasks, %v, want some", len(answer.Tasks), err)
			}
			left -= len(answer.Tasks)
			ends, others := make([]storage.Tx, len(answer.Tasks)), make([]storage.Tx, len(answer.Tasks))
			for i, f := range answer.Fences {
				ends[i].Settles = []storage.Settle{{Fence: f, Outcome: storage.Complete}}
				others[i] = keyedOf(answer.Tasks[i].Partition, storage.NewID())
			}
			c.settle(slices.Collect(slices.Chunk(ends, 100)))
			c.join(others)
		}
	}
	slices.Sort(scripts)
	slices.Sort(servers)
	c.ReportMetric(scripts[len(scripts)/2], "script-µs")
	c.ReportMetric(servers[len(servers)/2], "server-µs")
	c.ReportMetric(float64(len(scripts))/float64(c.N), "calls/op")
	c.ReportMetric(0, "ns/op")
}

// join inserts tasks, in calls of 40.
func (c *benchCalls) join(txs []storage.Tx) {
	var calls []scriptCall
	for begin := 0; begin < len(txs); begin += 40 {
		calls = append(calls, c.applies(txs[begin:min(begin+40, len(txs))], 1))
	}
	c.do(calls)
}
