//go:build unix

package faulttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
)

// TestNothingIsLeftBehind is point 14: after each drain the keys in Redis are as many
// as after the first, and the connections are gone. That no goroutine of this process
// is left is checked when all tests are over.
func TestNothingIsLeftBehind(t *testing.T) {
	eachOwnServer(t, func(t *testing.T, s *server) {
		f := newFleet(t, s)
		connections := connectionsOf(t, s)
		var before []string
		for round := range 3 {
			w := f.start(workerConfig{Queues: []string{"q"}, Concurrency: 10, Lease: 2 * time.Second, Grace: time.Second})
			f.work(round)
			awaitDrained(t, f.store, "q", 30*time.Second)
			w.terminate()
			w.ended(t, 10*time.Second)
			_, err := f.client.Queue("q").DeleteAll(t.Context(), "dead", nil)
			must(t, err)
			keys := keysOf(t, s)
			t.Logf("%d keys after round %d", len(keys), round+1)
			if round > 0 && len(keys) != len(before) {
				t.Errorf("%d keys after round %d, and %d after the one before; now:\n%s\nthen:\n%s",
					len(keys), round+1, len(before), strings.Join(keys, "\n"), strings.Join(before, "\n"))
			}
			before = keys
		}
		checkRuns(t, f.history())
		if !poll(5*time.Second, func() bool { return connectionsOf(t, s) <= connections }) {
			t.Errorf("%d connections are open, want the %d of the beginning", connectionsOf(t, s), connections)
		}
	})
}

// work enqueues some of everything, kept no longer than it lives.
func (f *fleet) work(round int) {
	f.t.Helper()
	jobs := map[string]act{
		"plain": {}, "retried": do("fail once"), "snoozed": do("snooze once"), "discarded": do("discard"),
		"writes": do("progress", "checkpoint"),
	}
	for name, job := range jobs {
		for i := range 20 {
			f.enqueue("q", fmt.Sprint(name, "-", round, "-", i), job, midge.KeepFor(0), midge.Unique{Key: fmt.Sprint(name, i)})
		}
	}
	for i := range 20 {
		ref := f.enqueue("q", fmt.Sprint("cancelled-", round, "-", i), act{}, midge.KeepFor(0), midge.In(time.Hour))
		_, err := f.client.Cancel(f.t.Context(), ref)
		must(f.t, err)
	}
}

// keysOf lists all keys of a server, sorted.
func keysOf(t *testing.T, s *server) []string {
	t.Helper()
	var keys []string
	for _, node := range s.nodes {
		reply, err := node.Do("KEYS", "*")
		must(t, err)
		keys = append(keys, strings.Fields(reply)...)
	}
	slices.Sort(keys)
	return keys
}

// connectionsOf counts the connections of midge's clients: neither those between the
// nodes nor the one that asks.
func connectionsOf(t *testing.T, s *server) int {
	t.Helper()
	n := 0
	for _, node := range s.nodes {
		list, err := node.Do("CLIENT", "LIST", "TYPE", "NORMAL")
		must(t, err)
		n += strings.Count(list, "addr=") - strings.Count(list, "cmd=client")
		list, err = node.Do("CLIENT", "LIST", "TYPE", "PUBSUB")
		must(t, err)
		n += strings.Count(list, " addr=")
	}
	return n
}
