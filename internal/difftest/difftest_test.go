package difftest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/redis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limits are the limits of every storage. They are so short that dead and declined tasks expire
// during the sequence. A storage may store the time when a kind was last named with a precision
// of a twenty-fourth of DeclinedFor. That is less than the time between two steps, so it is
// certain in which step a task dies.
var limits = storage.Limits{DeadFor: 225*grid + grid/2, DeclinedFor: 11*grid + grid/2}

// opener opens fresh storages, the first of which is the memory storage, and returns a function
// that sets their clocks. The storages are closed when t ends.
type opener func(t testing.TB) ([]*side, func(now time.Time))

// openMemory opens the memory storage, with which the others are compared.
func openMemory(t testing.TB) (*side, func(time.Time)) {
	t.Helper()
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	store, err := memory.Open(memory.Config{Limits: limits, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return newSide("memory", store), func(to time.Time) { ahead.Store(int64(time.Until(to))) }
}

func openRedis(t testing.TB, name, url, prefix string) *side {
	t.Helper()
	store, err := redis.Open(t.Context(), redis.Config{URL: url, Prefix: prefix, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s := newSide(name, store)
	return s
}

// TestMiniredis compares Redis on miniredis, which needs no server.
func TestMiniredis(t *testing.T) {
	sequences(t, 5, 300, func(t testing.TB) ([]*side, func(time.Time)) {
		reference, move := openMemory(t)
		server := miniredis.NewMiniRedis()
		server.SetTime(begin)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		return []*side{reference, openRedis(t, "miniredis", "redis://"+server.Addr(), "")}, func(now time.Time) {
			move(now)
			server.SetTime(now)
		}
	})
}

// number returns the number in an environment variable, or otherwise if it is not set.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// sequences runs the given number of seeds and a sequence of evictions, or only the seed that the environment names.
func sequences(t *testing.T, seeds, steps int, open opener) {
	t.Helper()
	steps = number(t, "MIDGE_DIFF_STEPS", steps)
	first := number(t, "MIDGE_DIFF_SEED", 0)
	if first > 0 {
		seeds = 1
	} else {
		first = 1
		t.Run("evictions", func(t *testing.T) { evictions(t, open) })
		t.Run("kept schedules", func(t *testing.T) { kept(t, open) })
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { sequence(t, uint64(seed), steps, open) })
	}
}

// wholeEvery is the number of steps after which the whole states are compared.
const wholeEvery = 50

// again is how often a sequence may begin again because a step took too long, as happens on a
// busy machine.
const again = 20

func sequence(t *testing.T, seed uint64, steps int, open opener) {
	for range again {
		if done := false; t.Run("try", func(t *testing.T) { done = try(t, seed, steps, open) }) && !done {
			continue
		}
		return
	}
	t.Fatalf("seed %d: %d times in a row a step took too long", seed, again)
}

// try runs a sequence and reports whether it reached its end. It returns false if a step took
// too long, and fails the test at a difference.
func try(t *testing.T, seed uint64, steps int, open opener) bool {
	t.Helper()
	sides, move := open(t)
	w := newWorld(t, sides, move)
	g := newGenerator(seed, w)
	g.plan = g.dividedFirst()
	var done []step
	for n := 1; n <= steps; n++ {
		var st step
		if n%wholeEvery == 0 { // g.next would number a call that is then not sent
			st = &whole{names: all, page: pick(g, 1, 3, 50)}
		} else {
			st = g.next()
		}
		done = append(done, st)
		diff := w.do(st)
		// A late read changes nothing, and every whole state is a late one on some machines. But if it
		// differs, the maintenance before it may have been late on one side only.
		if _, reads := st.(*whole); w.late() && (!reads || diff != "") {
			t.Logf("step %d took %v", n, time.Since(w.moved))
			return false
		}
		if diff == "" {
			continue
		}
		if number(t, "MIDGE_DIFF_SHRINK", 0) > 0 {
			done = shrink(t, done, open)
			w, diff, _ = replay(t, done, open)
			t.Logf("shrunk to %d steps", len(done))
		}
		t.Fatalf("seed %d, step %d:\n%s\nThe last steps, and what memory answered:\n%s", seed, n, diff, w.told(number(t, "MIDGE_DIFF_LOG", 12)))
	}
	return true
}

// replay runs a sequence on fresh storages up to its first difference, and returns the
// difference and the index of its step.
func replay(t testing.TB, steps []step, open opener) (w *world, diff string, at int) {
	t.Helper()
	sides, move := open(t)
	w = newWorld(t, sides, move)
	for i, st := range steps {
		if diff = w.do(st); diff != "" {
			return w, diff, i
		}
	}
	return w, "", len(steps)
}

// shrinkFor bounds the time of a shrink.
const shrinkFor = 4 * time.Minute

// shrink removes the steps and operations that the difference does not need.
func shrink(t *testing.T, steps []step, open opener) []step {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), shrinkFor)
	defer cancel()
	differs := func(steps []step) (found bool) {
		t.Run("try", func(t *testing.T) {
			_, _, at := replay(t, steps, open)
			found = at == len(steps)-1 // an earlier difference is another one
		})
		return found
	}
	for size := len(steps) / 2; size > 0; size /= 2 {
		for at := 0; at+size < len(steps) && ctx.Err() == nil; { // the last step shows the difference
			idle := waiting(steps[at : at+size])
			fewer := slices.Concat(steps[:at], idle, steps[at+size:])
			if onlyWaits(steps[at:at+size]) && len(idle) == size || !differs(fewer) {
				at += size
				continue
			}
			steps = fewer
		}
	}
	for i := range steps {
		if a, ok := steps[i].(*apply); ok && ctx.Err() == nil {
			steps[i] = shrinkApply(a, func(smaller *apply) bool {
				tried := slices.Clone(steps)
				tried[i] = smaller
				return differs(tried)
			})
		}
	}
	return steps
}

// waiting returns steps that only advance the clocks, by as much as the given steps do.
func waiting(steps []step) (idle []step) {
	var by time.Duration
	for _, st := range steps {
		if a, ok := st.(*advance); ok {
			by += a.by
		} else {
			by += grid
		}
	}
	for ; by > 0; by -= min(by, unlooked-grid) {
		idle = append(idle, &advance{min(by, unlooked-grid)})
	}
	return idle
}

func onlyWaits(steps []step) bool {
	return !slices.ContainsFunc(steps, func(st step) bool {
		_, ok := st.(*advance)
		return !ok
	})
}

// shrinkApply removes Txs and operations that the difference does not need.
func shrinkApply(a *apply, differs func(*apply) bool) *apply {
	for size := max(len(a.txs)/2, 1); size > 0 && a.spanning < 0; size /= 2 {
		for at := 0; at+size <= len(a.txs) && len(a.txs) > size; {
			smaller := &apply{call: a.call, txs: slices.Delete(slices.Clone(a.txs), at, at+size), spanning: -1}
			if !differs(smaller) {
				at += size
				continue
			}
			a = smaller
		}
	}
	for i := range a.txs {
		for at := 0; at < len(a.txs[i]) && len(a.txs[i]) > 1; {
			smaller := &apply{call: a.call, txs: slices.Clone(a.txs), spanning: a.spanning}
			smaller.txs[i] = slices.Delete(slices.Clone(a.txs[i]), at, at+1)
			if !differs(smaller) {
				at++
				continue
			}
			a = smaller
		}
	}
	return a
}
