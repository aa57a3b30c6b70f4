package redis

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/storage"
)

// inEach is the limit of a queue that bounds its partitions.
func inEach(concurrency, n int, per time.Duration) storage.Limit {
	return storage.Limit{Partition: storage.PartitionLimit{
		Concurrency: concurrency, Rate: storage.Rate{N: n, Per: per},
	}}
}

// TestRunningTasksOfPartitionsAreCounted: after each random step the side hash has for each partition as many running
// tasks as leases name it, and the ring has each partition of which there is something. At the end nothing is left.
func TestRunningTasksOfPartitionsAreCounted(t *testing.T) {
	s, server := openMini(t)
	w := &runningWorld{
		T: t, s: s, server: server, random: rand.New(rand.NewPCG(1, 34)), now: time.Now(),
		fences: make(map[string]storage.Fence),
	}
	steps := []func(){w.insert, w.insert, w.claim, w.claim, w.settle, w.settle, w.settle, w.cancel, w.pause, w.limit}
	for range 600 {
		w.pass(time.Duration(w.random.IntN(2_000_000)) * time.Microsecond)
		steps[w.random.IntN(len(steps))]()
		w.check()
	}
	w.end()
}

type runningWorld struct {
	*testing.T

	s      *Storage
	server *miniredis.Miniredis
	random *rand.Rand
	now    time.Time
	fences map[string]storage.Fence
	next   int
}

func (w *runningWorld) pass(d time.Duration) {
	w.now = w.now.Add(d)
	w.server.SetTime(w.now)
}

func (w *runningWorld) apply(tx storage.Tx) {
	w.Helper()
	if _, err := w.s.Apply(w.Context(), storage.Call{}, tx); err != nil {
		w.Fatal(err)
	}
}

func (w *runningWorld) insert() {
	w.next++
	tx := insertOf("mail", fmt.Sprint("t", w.next))
	tx.Inserts[0].Partition = []string{"", "a", "b", "c"}[w.random.IntN(4)]
	tx.Inserts[0].Cost = []storage.Cost{storage.NoCost, 0, 2, 3}[w.random.IntN(4)]
	tx.Inserts[0].CrashLimit = 1 + w.random.IntN(3)
	w.apply(tx)
}

func (w *runningWorld) claim() {
	req := asking(storage.Call{}, 1+w.random.IntN(6), "mail")
	req.Token[0]++
	req.Lease = time.Duration(1+w.random.IntN(20)) * time.Second
	c, err := w.s.Claim(w.Context(), req)
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range c.Fences {
		w.fences[f.ID] = f
	}
}

// settle ends a task in some way. Its lease may have expired.
func (w *runningWorld) settle() {
	for _, id := range slices.Sorted(maps.Keys(w.fences)) {
		if w.random.IntN(2) == 0 {
			continue
		}
		ways := []storage.Outcome{
			storage.Complete, storage.Complete, storage.Fail, storage.Snooze, storage.Release, storage.Decline, storage.Bury,
			storage.Cancel,
		}
		end := storage.Settle{Fence: w.fences[id], Outcome: ways[w.random.IntN(len(ways))]}
		if slices.Contains([]storage.Outcome{storage.Fail, storage.Snooze, storage.Release}, end.Outcome) {
			end.Delay = time.Duration(1+w.random.IntN(3)) * time.Second
		}
		if end.Outcome == storage.Complete && w.random.IntN(2) == 0 {
			end.Result = []byte("done")
		}
		w.apply(storage.Tx{Settles: []storage.Settle{end}})
		delete(w.fences, id)
	}
}

func (w *runningWorld) cancel() {
	ref := storage.Ref{Queue: "mail", ID: fmt.Sprint("t", 1+w.random.IntN(w.next+1))}
	w.apply(storage.Tx{Changes: []storage.Change{{Ref: ref, Cancel: true}}})
}

func (w *runningWorld) pause() {
	settings := storage.Settings{Partition: []string{"a", "b", "c"}[w.random.IntN(3)], Pause: &storage.Pause{}}
	if w.random.IntN(2) == 0 {
		settings.Pause = &storage.Pause{On: true, For: time.Duration(w.random.IntN(3)) * time.Second}
	}
	if err := w.s.Configure(w.Context(), storage.Call{}, "mail", settings); err != nil {
		w.Fatal(err)
	}
}

func (w *runningWorld) limit() {
	limit(w.T, w.s, []storage.Limit{
		{}, inEach(1, 0, 0), inEach(2, 3, 5*time.Second), inEach(0, 2, time.Second), {Concurrency: 3},
	}[w.random.IntN(5)])
}

// check compares the side hash, the leases and the ring.
func (w *runningWorld) check() {
	w.Helper()
	running, found := make(map[string]uint64), make(map[string]bool)
	ids, _ := w.server.HKeys("midge:{mail}:pending")
	for _, id := range ids {
		v := w.server.HGet("midge:{mail}:pending", id)
		if last := len(v) - 1; id != "" && v[fenceSize]&leaseCounted != 0 {
			running[v[last-int(v[last]):last]]++
		}
	}
	fields, _ := w.server.HKeys("midge:{mail}:side")
	for _, field := range fields {
		key, is := strings.CutPrefix(field, "k:")
		if !is {
			continue
		}
		found["p"+key] = true
		got := binary.BigEndian.Uint64([]byte(w.server.HGet("midge:{mail}:side", field)[16:]))
		if got != running[key] {
			w.Fatalf("partition %s: %d running, counted %d", key, running[key], got)
		}
		delete(running, key)
	}
	if len(running) > 0 {
		w.Fatalf("running, and not counted: %v", running)
	}
	lines, _ := w.server.ZMembers("midge:{mail}:lines")
	for _, member := range lines {
		if line, _, _ := strings.Cut(member, "\x00"); line[0] == 'p' {
			found[line] = true
		}
	}
	ring, _ := w.server.SortedSet("midge:{mail}:ring")
	for line := range found {
		if _, is := ring[line]; !is {
			w.Fatalf("the ring lacks %s", line)
		}
	}
	for member, score := range ring {
		_, listed := ring["q"+member[1:]]
		if member[0] == 'p' && (!found[member] || listed != (score >= 0)) {
			w.Fatalf("the ring has %s at %f, with something %v, listed %v", member, score, found[member], listed)
		}
	}
}

// end ends all tasks, pauses and limits, and checks that no trace of partitions is left.
func (w *runningWorld) end() {
	w.Helper()
	limit(w.T, w.s, storage.Limit{})
	for _, key := range []string{"a", "b", "c"} {
		settings := storage.Settings{Partition: key, Pause: &storage.Pause{}}
		if err := w.s.Configure(w.Context(), storage.Call{}, "mail", settings); err != nil {
			w.Fatal(err)
		}
	}
	for range 30 {
		w.pass(5 * time.Second)
		c := claims(w.T, w.s, 1000)
		for _, f := range c.Fences {
			w.apply(storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}})
		}
		w.check()
	}
	fields, _ := w.server.HKeys("midge:{mail}:side")
	left := slices.ContainsFunc(fields, func(field string) bool { return strings.HasPrefix(field, "k:") })
	if left || w.server.Exists("midge:{mail}:ring") {
		w.Errorf("something of partitions is left: %q\n%s", fields, w.server.Dump())
	}
}

// TestDamageOfWhatPartitionsKeep: damaged fields and records neither hold tasks back nor leave anything behind.
func TestDamageOfWhatPartitionsKeep(t *testing.T) {
	for name, damage := range map[string]func(server *miniredis.Miniredis){
		"a field that is too short": func(server *miniredis.Miniredis) { server.HSet("midge:{mail}:side", "k:a", "x") },
		"a field with large numbers": func(server *miniredis.Miniredis) {
			server.HSet("midge:{mail}:side", "k:a", strings.Repeat("\xff", 32)+"\x00")
		},
		"a field with damaged starts": func(server *miniredis.Miniredis) {
			server.HSet("midge:{mail}:side", "k:a", strings.Repeat("\x00", 33)+strings.Repeat("\xff", 12))
		},
		"a field with a damaged limit": func(server *miniredis.Miniredis) {
			server.HSet("midge:{mail}:side", "k:a", strings.Repeat("\x00", 32)+"\x05x 0 0")
		},
		"a lost field":               func(server *miniredis.Miniredis) { server.HDel("midge:{mail}:side", "k:a") },
		"a record of a running task": func(server *miniredis.Miniredis) { server.HSet("midge:{mail}:tasks", "a0", "x") },
		"a lost ring":                func(server *miniredis.Miniredis) { server.Del("midge:{mail}:ring") },
		"a number rest that is none": func(server *miniredis.Miniredis) { server.HSet("midge:{mail}:meta", "rest", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			s, server, session := tended(t)
			now := time.Now()
			server.SetTime(now)
			limit(t, s, inEach(1, 0, 0))
			insertAll(t, session, keyedOf("a", "a0"))
			if c := claims(t, s, 1); len(c.Tasks) != 1 {
				t.Fatalf("claimed %d, want one", len(c.Tasks))
			}
			insertAll(t, session, keyedOf("a", "a1"))
			damage(server)
			var got []string
			for range 4 {
				now = now.Add(time.Minute)
				server.SetTime(now)
				got = append(got, completedOf(t, session, 3)...)
			}
			if !slices.Contains(got, "a1") {
				t.Errorf("claimed %v, want a1 among them", got)
			}
			fields, _ := server.HKeys("midge:{mail}:side")
			if server.Exists("midge:{mail}:ring") || slices.Contains(fields, "k:a") {
				t.Errorf("the damage is still there: %v", server.Dump())
			}
		})
	}
}
