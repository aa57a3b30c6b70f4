//go:build unix

package faulttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
)

// TestNothingIsLeftBehind checks that each drain leaves as many keys or rows as the first
// one, and that no connection is left when the test has closed its own storage. TestMain
// checks that no goroutine of this process is left.
func TestNothingIsLeftBehind(t *testing.T) {
	eachOwnServer(t, func(t *testing.T, s *server) {
		f := newFleet(t, s)
		var before []string
		for round := range 3 {
			w := f.start(workerConfig{Queues: []string{"q"}, Concurrency: 10, Lease: 10 * time.Second, Grace: time.Second})
			f.work(round)
			awaitDrained(t, f.store, "q", 30*time.Second)
			w.terminate()
			w.ended(t, 10*time.Second)
			_, err := f.client.Queue("q").DeleteAll(t.Context(), "dead", nil)
			must(t, err)
			keys := s.keys(t, f.dialing.Place)
			t.Logf("%d keys after round %d", len(keys), round+1)
			if round > 0 && f.lasting(keys) != f.lasting(before) {
				t.Errorf("%d keys after round %d, and %d after the one before; now:\n%s\nthen:\n%s",
					len(keys), round+1, len(before), strings.Join(keys, "\n"), strings.Join(before, "\n"))
			}
			before = keys
		}
		checkRuns(t, f.history())
		must(t, f.store.Close())
		if !poll(5*time.Second, func() bool { return s.connections(t) == 0 }) {
			t.Errorf("%d connections are open, want none", s.connections(t))
		}
	})
}

// lasting returns the number of keys. It leaves out the keys of runners if a process was starved: the
// entry of a runner that does not leave in time expires later.
func (f *fleet) lasting(keys []string) int {
	n := len(keys)
	if len(f.history().of(starved)) == 0 {
		return n
	}
	for _, key := range keys {
		if strings.Contains(key, "runners") {
			n--
		}
	}
	return n
}

// work enqueues tasks of all kinds that are not kept after their end.
func (f *fleet) work(round int) {
	f.t.Helper()
	jobs := map[string]stepJob{
		"plain": {}, "retried": do("fail once"), "snoozed": do("snooze once"), "discarded": do("discard"),
		"writes": do("progress", "checkpoint"),
	}
	for name, job := range jobs {
		for i := range 20 {
			f.enqueue("q", fmt.Sprint(name, "-", round, "-", i), job, midge.KeepFor(0), midge.Unique{Key: fmt.Sprint(name, i)})
		}
	}
	for i := range 20 {
		ref := f.enqueue("q", fmt.Sprint("cancelled-", round, "-", i), stepJob{}, midge.KeepFor(0), midge.In(time.Hour))
		_, err := f.client.Cancel(f.t.Context(), ref)
		must(f.t, err)
	}
}

// keys returns all keys of a Redis, or the rows of a schema, sorted.
func (s *server) keys(t *testing.T, schema string) []string {
	t.Helper()
	if s.kind == onePostgres {
		return rowsOf(t, s.nodes[0].(*testserver.PostgresServer), schema)
	}
	var keys []string
	for _, node := range s.nodes {
		reply, err := node.(*testserver.Server).Do("KEYS", "*")
		must(t, err)
		keys = append(keys, strings.Fields(reply)...)
	}
	slices.Sort(keys)
	return keys
}

// connections returns the number of client connections, without those between the nodes
// and the connection that asks, and on PostgreSQL without those of this process.
func (s *server) connections(t *testing.T) int {
	t.Helper()
	if s.kind == onePostgres {
		return backendsOf(t, s.nodes[0].(*testserver.PostgresServer))
	}
	n := 0
	for _, node := range s.nodes {
		node := node.(*testserver.Server)
		for _, is := range []string{"NORMAL", "PUBSUB"} {
			list, err := node.Do("CLIENT", "LIST", "TYPE", is)
			must(t, err)
			n += strings.Count(list, " addr=")
		}
		n-- // the connection of CLIENT LIST TYPE NORMAL itself
	}
	return n
}
