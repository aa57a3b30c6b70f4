package faulttest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/redis"
)

// twins does everything in two storages. The memory storage is the reference.
type twins struct {
	*testing.T

	random *rand.Rand
	stores [2]*storage.Session
	fences [2][]storage.Fence
}

func newTwins(t *testing.T, seed uint64) *twins {
	t.Helper()
	server := miniredis.RunT(t)
	here, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	there, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	w := &twins{T: t, random: rand.New(rand.NewPCG(seed, 0))}
	w.stores = [2]*storage.Session{storage.NewSession(here, 0), storage.NewSession(there, 0)}
	return w
}

// both calls act with each storage and compares the results.
func (w *twins) both(what string, act func(i int, s *storage.Session) string) {
	w.Helper()
	want, got := act(0, w.stores[0]), act(1, w.stores[1])
	if got != want {
		w.Fatalf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

func (w *twins) pick(of ...string) string { return of[w.random.IntN(len(of))] }

func (w *twins) ref() storage.Ref {
	return storage.Ref{Queue: w.pick("main", "main", "bulk"), ID: "t" + strconv.Itoa(w.random.IntN(24))}
}

// tx draws a random Tx of one operation. It returns a function that builds the Tx for one of the
// storages, because their versions differ.
func (w *twins) tx() func(s *storage.Session) storage.Tx {
	ref, priority := w.ref(), []int{0, 0, 0, 0, 1, -1}[w.random.IntN(6)]
	kind, to := w.random.IntN(12), w.pick("main", "bulk")
	return func(s *storage.Session) (tx storage.Tx) {
		change := storage.Change{Ref: ref, Version: 1}
		if have, err := s.Storage().Task(w.Context(), ref); err == nil {
			change.Version, change.Requeue = have.Version, kind == 4 && have.State.Ended()
		}
		switch kind {
		case 0:
			tx.Deletes = []storage.Delete{{Ref: ref, Version: change.Version}}
			return tx
		case 1:
			change.Cancel, change.Version = true, 0
		case 2:
			change.Priority = &priority
		case 3:
			change.Delay = time.Hour
		case 4:
			change.Now = !change.Requeue
		case 5:
			change.Encoding, change.Payload = "raw", []byte("new")
		case 6:
			change.Queue = to
			if to == ref.Queue {
				change.Queue, change.Headers = "", map[string]string{"a": "b"}
			}
		default:
			tx.Inserts = []storage.Insert{{
				Ref: ref, Kind: "job", Encoding: "raw", Payload: []byte("p"), MaxRetries: 3, CrashLimit: 3,
				Priority: priority, Keep: storage.Keep{For: time.Duration(kind%2) * time.Hour},
			}}
			return tx
		}
		tx.Changes = []storage.Change{change}
		return tx
	}
}

// apply applies a few Txs in one call.
func (w *twins) apply() {
	makers := make([]func(*storage.Session) storage.Tx, 1+w.random.IntN(4))
	for i := range makers {
		makers[i] = w.tx()
	}
	w.both("apply", func(_ int, s *storage.Session) (text string) {
		var txs []storage.Tx
		for _, maker := range makers {
			txs = append(txs, maker(s))
		}
		applied, err := s.Apply(w.Context(), txs...)
		text = fmt.Sprint(err)
		for _, a := range applied {
			text += fmt.Sprint(a.Err != nil, " ")
		}
		return text
	})
}

// claim claims some tasks, some of them perhaps ahead.
func (w *twins) claim() {
	n, queues := 1+w.random.IntN(9), []storage.ClaimQueue{{Name: w.pick("main", "bulk")}}
	if w.random.IntN(2) == 0 {
		queues = []storage.ClaimQueue{{Name: "main", Max: w.random.IntN(5)}, {Name: "bulk"}}
	}
	start, suspect := w.random.IntN(n+1), w.random.IntN(2) == 0
	w.both("claim", func(i int, s *storage.Session) (text string) {
		claimed, err := s.Claim(w.Context(), storage.ClaimRequest{
			Runner: "r", Queues: queues, Start: start, Ahead: n - start, Suspect: suspect, Lease: time.Hour,
		})
		if err != nil {
			w.Fatal(err)
		}
		for _, f := range claimed.Fences {
			text += f.Ref.String() + " "
			w.fences[i] = append(w.fences[i], f)
		}
		return text
	})
}

// settle ends the claim of one task.
func (w *twins) settle() {
	if len(w.fences[0]) == 0 {
		return
	}
	n := w.random.IntN(len(w.fences[0]))
	outcome := []storage.Outcome{
		storage.Complete, storage.Complete, storage.Release, storage.Fail, storage.Snooze, storage.Bury,
	}[w.random.IntN(6)]
	w.both("settle", func(i int, s *storage.Session) string {
		f := w.fences[i][n]
		w.fences[i] = append(w.fences[i][:n], w.fences[i][n+1:]...)
		settle := storage.Settle{Fence: f, Outcome: outcome, Delay: delayOf(outcome)}
		a, err := s.ApplyOne(w.Context(), storage.Tx{Settles: []storage.Settle{settle}})
		return fmt.Sprint(err, a.Err)
	})
}

func delayOf(outcome storage.Outcome) time.Duration {
	if outcome == storage.Fail || outcome == storage.Snooze {
		return time.Hour
	}
	return 0
}

// look compares the sizes of the queues and the pages of waiting tasks.
func (w *twins) look() {
	limit := 1 + w.random.IntN(5)
	w.both("sizes and pages", func(_ int, s *storage.Session) (text string) {
		stats, err := s.Storage().Stats(w.Context(), "main", "bulk")
		if err != nil {
			w.Fatal(err)
		}
		for i := range stats {
			stats[i].Oldest = 0 // the storages have different clocks
		}
		for _, queue := range []string{"main", "bulk"} {
			query := storage.TasksQuery{Queue: queue, State: storage.Waiting, Limit: limit}
			text += strings.Join(listed(w.T, s.Storage(), query), " ") + "\n"
		}
		return text + fmt.Sprintf("%+v", stats)
	})
}

// listed returns the ids of all pages.
func listed(t *testing.T, s storage.Storage, query storage.TasksQuery) (ids []string) {
	t.Helper()
	for {
		page, err := s.Tasks(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Tasks {
			ids = append(ids, page.Tasks[i].ID)
		}
		if page.Next == "" {
			return ids
		}
		query.After = page.Next
	}
}

// TestRedisKeepsTheOrderOfMemory checks that claims and pages have the order of the memory
// storage, whichever tasks leave their turn, come back under the same id or go to the head of
// the queue.
func TestRedisKeepsTheOrderOfMemory(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := newTwins(t, seed)
			for i := range 200 {
				switch w.random.IntN(8) {
				case 0, 1:
					w.claim()
				case 2:
					w.settle()
				default:
					w.apply()
				}
				if i%4 == 0 {
					w.look()
				}
			}
		})
	}
}
