//go:build unix

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// durableJob does three steps, with a sleep after the first and a checkpoint before the last. Its process
// dies in the function of the step Kill, in the first attempt.
type durableJob struct{ Kill string }

// Options keeps the task, so that its steps can be read, and permits a retry for each unanswered call.
func (durableJob) Options() midge.Options {
	return midge.Options{Keep: midge.Keep{For: time.Hour}, Timeout: noTimeout}
}

const (
	napLength = 300 * time.Millisecond // longer than a call that is repeated
	halfDone  = "half done"
)

// runDurable runs a durableJob. The result of a step is the fence of the attempt that called it.
func (w *workerProcess) runDurable(ctx context.Context, job durableJob) error {
	info, _ := midge.Current(ctx)
	var got [3]int64
	step := func(i int, name string) (err error) {
		got[i], err = midge.Step(ctx, name, func(context.Context) (int64, error) {
			w.rec.record(event{What: stepDone, Ref: info.Ref, Fence: info.Fence, Step: name})
			if job.Kill == name && info.Crashes == 0 {
				killSelf()
			}
			return info.Fence, nil
		})
		return err
	}
	if err := step(0, "a"); err != nil {
		return err
	}
	if err := midge.Sleep(ctx, "nap", napLength); err != nil {
		return err
	}
	if err := step(1, "b"); err != nil {
		return err
	}
	if err := midge.Checkpoint(ctx, halfDone); err != nil {
		return err
	}
	return errors.Join(step(2, "c"), midge.SetResult(ctx, got))
}

// durableKill is a moment at which a process dies that runs a durableJob. With the zero durableKill no process
// dies.
type durableKill struct {
	at     killPoint
	within string // the step whose function is running, "" for none
	// again is the step that has run and is not stored, which therefore runs again; "" for none.
	again string
}

// durableKills returns the moments around each call that a durableJob makes: a read of its task in each of two
// attempts, and a write of each step, of the sleep and of the checkpoint.
func durableKills() (all []durableKill) {
	writes := []string{"", "a", "", "", "b", "", "c"} // the step of each call
	for i, step := range writes {
		at := killPoint{Call: int64(i + 1), Durable: true}
		all = append(all, durableKill{at: at, again: step})
		at.After = true
		all = append(all, durableKill{at: at})
	}
	for _, step := range []string{"a", "b", "c"} {
		all = append(all, durableKill{within: step, again: step})
	}
	return all
}

// TestDeathAtEachMomentOfAStep kills processes at each moment of steps and sleeps. A step whose result was
// stored never runs again, and none is lost. If the write of the sleep takes longer than the sleep, on a busy
// machine, a job needs one attempt and makes fewer calls, so that its process may end without dying.
func TestDeathAtEachMomentOfAStep(t *testing.T) {
	eachStorage(t, func(t *testing.T, s *server) {
		f := newFleet(t, s)
		kills := durableKills()
		if !full { // a third of them on each kind of storage; on all together, all of them
			kinds := []kind{oneRedis, onePostgres, oneFile, aCluster}
			kills = slices.DeleteFunc(kills, func(k durableKill) bool {
				return slices.Index(durableKills(), k)%3 != slices.Index(kinds, s.kind)%3
			})
		}
		rounds := count(1, 12)
		var queues []string
		killed := make(map[string]durableKill) // by queue
		var victims []*worker
		atOnce := make(chan struct{}, 4)
		for round := range rounds {
			for i, k := range kills {
				queue := fmt.Sprintf("q-%d-%d", round, i)
				queues = append(queues, queue)
				killed[queue] = k
				_, err := f.client.Enqueue(t.Context(), durableJob{k.within}, midge.To(queue), midge.ID("job"))
				must(t, err)
				atOnce <- struct{}{}
				v := f.start(workerConfig{
					Name: queue, Queues: []string{queue}, Concurrency: 1, Lease: s.lease(), KillAt: k.at, MayDie: true,
					IdleExit: true,
				})
				victims = append(victims, v)
				go func() { <-v.done; <-atOnce }()
			}
		}
		died := len(victims)
		for _, v := range victims {
			if v.ended(t, time.Minute); v.state.Success() {
				killed[v.name] = durableKill{}
				died--
			}
		}
		f.start(workerConfig{Name: "survivor", Queues: queues, Concurrency: 20, Lease: s.lease()})
		for _, queue := range queues {
			awaitDrained(t, f.store, queue, time.Minute)
		}
		h := f.history()
		for queue, k := range killed {
			checkDurable(t, f.store, storage.Ref{Queue: queue, ID: "job"}, k, h)
		}
		if t.Logf("%d of %d processes died", died, len(killed)); 2*died < len(killed) {
			t.Error("an invalid run: most processes lived")
		}
	})
}

// checkDurable checks a durableJob after its process has died at a moment, if at all, and it has ended.
func checkDurable(t *testing.T, store storage.Storage, ref storage.Ref, k durableKill, all history) {
	t.Helper()
	h := all.about(ref)
	task, err := store.Task(t.Context(), ref)
	must(t, err)
	crashes := 1
	if k == (durableKill{}) {
		crashes = 0
	}
	if task.State != storage.Completed || !all.exactly(task.Crashes, crashes) {
		t.Errorf("%s, killed at %+v: %s (%s) after %d crashes, want it completed after %d",
			ref, k, task.State, task.LastError(), task.Crashes, crashes)
		return
	}
	var result [3]int64
	var half string
	must(t, midge.DecodeResult(task, &result))
	must(t, midge.DecodeCheckpoint(task, &half))
	kept, err := midge.StepsOf(task)
	must(t, err)
	if len(kept) != 4 || half != halfDone {
		t.Errorf("%s, killed at %+v: it has the steps %+v, and the checkpoint %q", ref, k, kept, half)
		return
	}
	if nap := kept[1].Until.Sub(kept[1].Ended); nap != napLength {
		t.Errorf("%s, killed at %+v: it slept for %v", ref, k, nap)
	}
	// A victim made more calls if it lost its lease, and fewer if it needed one attempt. It then died at another
	// moment than the intended one.
	v := h.by(ref.Queue)
	other := len(v.of(ctxDone)) > 0 || k.at.Call > 3 && len(v.of(claimed)) < 2
	for i, name := range []string{"a", "b", "c"} {
		calls := h.of(stepDone).where(func(e *event) bool { return e.Step == name })
		want := 1
		if k.again == name && !other || other && len(calls) == 2 {
			want = 2
		}
		if !all.exactly(len(calls), want) {
			t.Errorf("%s, killed at %+v: step %s was called %d times, want %d\n%s", ref, k, name, len(calls), want, h)
		}
		if last := calls[len(calls)-1]; last.Fence != result[i] {
			t.Errorf("%s, killed at %+v: step %s returned the result of attempt %d, and the last call was in %d\n%s",
				ref, k, name, result[i], last.Fence, h)
		}
	}
}
