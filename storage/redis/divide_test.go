package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// losing is a hook that loses the replies of the commands that name a queue, and of those alone that name another
// one if that is not "".
type losing struct {
	goredis.Hook

	queue, beside string
	off           *atomic.Bool // nil for a hook that is always on
}

func (l losing) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (l losing) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (l losing) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		names := func(queue string) bool {
			return slices.ContainsFunc(cmd.Args(), func(arg any) bool {
				key, _ := arg.(string)
				return strings.Contains(key, "{"+queue+"}:meta")
			})
		}
		if on := l.off == nil || !l.off.Load(); err == nil && on && names(l.queue) && (l.beside == "") != names(l.beside) {
			err = io.ErrUnexpectedEOF
			cmd.SetErr(err)
		}
		return err
	}
}

// dividing is a server with three queues of one slot, whose script calls are divided if one is damaged.
type dividing struct {
	*testing.T

	addr            string
	cluster         bool
	one, two, three string
	seq             uint64
	opened          time.Time
	ordinary        *Storage
}

// divided calls run for a server of one Redis and, as it were, on a Cluster.
func divided(t *testing.T, run func(d *dividing)) {
	t.Helper()
	for _, cluster := range []bool{false, true} {
		t.Run(fmt.Sprint("cluster ", cluster), func(t *testing.T) {
			d := &dividing{T: t, addr: miniredis.RunT(t).Addr(), cluster: cluster, opened: time.Now()}
			if testserver.Enabled() {
				d.addr = testserver.Redis(t).Addr()
			}
			in := make(map[int][]string)
			for i := 0; d.three == ""; i++ {
				queue := fmt.Sprint("q", i)
				slot := slotOf(queue)
				if in[slot] = append(in[slot], queue); len(in[slot]) == 3 {
					d.one, d.two, d.three = in[slot][0], in[slot][1], in[slot][2]
				}
			}
			d.ordinary = d.open()
			run(d)
		})
	}
}

func (d *dividing) open() *Storage {
	d.Helper()
	s, err := Open(d.Context(), Config{URL: "redis://" + d.addr})
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { _ = s.Close() })
	s.cluster, s.keys.shared = d.cluster, !d.cluster
	return s
}

func (d *dividing) queues() []string { return []string{d.one, d.two, d.three} }

func (d *dividing) call() storage.Call {
	d.seq++
	return storage.Call{Lane: storage.Lane{ID: [16]byte{7}, Opened: d.opened}, Seq: d.seq}
}

// damage makes a queue unreadable, and mend empties it.
func (d *dividing) damage(queue string) {
	d.Helper()
	if err := d.ordinary.client.Set(d.Context(), d.ordinary.keys.key(queue, metaKey), "x", 0).Err(); err != nil {
		d.Fatal(err)
	}
}

func (d *dividing) mend(queue string) {
	d.Helper()
	if err := d.ordinary.client.Del(d.Context(), d.ordinary.keys.key(queue, metaKey)).Err(); err != nil {
		d.Fatal(err)
	}
}

// apply applies a Tx by itself.
func (d *dividing) apply(tx storage.Tx) {
	d.Helper()
	if applied, err := d.ordinary.Apply(d.Context(), d.call(), tx); err != nil || applied[0].Err != nil {
		d.Fatal(applied, err)
	}
}

// take claims the one task of a queue.
func (d *dividing) take(queue string) storage.Fence {
	d.Helper()
	claimed, err := d.ordinary.Claim(d.Context(), asking(d.call(), 1, queue))
	if err != nil || len(claimed.Fences) != 1 {
		d.Fatalf("claimed %v of %s, %v, want one", claimed.Tasks, queue, err)
	}
	return claimed.Fences[0]
}

// task returns the name and version of the task of a queue.
func (d *dividing) task(queue string) storage.Delete {
	d.Helper()
	task, err := d.ordinary.Task(d.Context(), storage.Ref{Queue: queue, ID: "a"})
	if err != nil {
		d.Fatal(err)
	}
	return storage.Delete{Ref: task.Ref, Version: task.Version}
}

// state returns everything that the server has of a queue, but the lanes and the processes that are idle.
func (d *dividing) state(queue string) string {
	d.Helper()
	var all strings.Builder
	client := d.ordinary.client
	for at, suffix := range suffixes {
		key := d.ordinary.keys.key(queue, at)
		var value any
		var err error
		switch kind := client.Type(d.Context(), key).Val(); {
		case at == lanesKey || at == openedKey || at == idleKey || kind == "none":
			continue
		case kind == "hash":
			value, err = client.HGetAll(d.Context(), key).Result()
		case kind == "zset":
			value, err = client.ZRangeWithScores(d.Context(), key, 0, -1).Result()
		case kind == "list":
			value, err = client.LRange(d.Context(), key, 0, -1).Result()
		}
		if err != nil {
			d.Fatal(err)
		}
		fmt.Fprintf(&all, "%s of %s: %v\n", suffix, queue, value)
	}
	return all.String()
}

// dividedOperation is an operation on a task of a queue, and the effect of other calls on the task
// afterwards.
type dividedOperation struct {
	before func(d *dividing, queue string) storage.Tx
	after  func(d *dividing, queue string)
}

var dividedOperations = map[string]dividedOperation{
	"insert": {
		func(_ *dividing, queue string) storage.Tx { return insertOf(queue, "a") },
		func(d *dividing, queue string) {
			d.apply(storage.Tx{Settles: []storage.Settle{{Fence: d.take(queue), Outcome: storage.Complete}}})
		},
	},
	"unique insert": {
		func(_ *dividing, queue string) storage.Tx {
			tx := insertOf(queue, "a")
			tx.Inserts[0].Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife}
			return tx
		},
		func(d *dividing, queue string) {
			d.apply(storage.Tx{Settles: []storage.Settle{{Fence: d.take(queue), Outcome: storage.Complete}}})
		},
	},
	"completion": settled(storage.Complete),
	"failure":    settled(storage.Fail),
	"release":    settled(storage.Release),
	"change": {
		func(d *dividing, queue string) storage.Tx {
			d.apply(insertOf(queue, "a"))
			return delayed(d, queue)
		},
		func(d *dividing, queue string) { d.apply(delayed(d, queue)) },
	},
	"delete": {
		func(d *dividing, queue string) storage.Tx {
			d.apply(insertOf(queue, "a"))
			return storage.Tx{Deletes: []storage.Delete{d.task(queue)}}
		},
		func(d *dividing, queue string) { d.apply(insertOf(queue, "a")) },
	},
}

// delayed returns a change of the task of a queue.
func delayed(d *dividing, queue string) storage.Tx {
	task := d.task(queue)
	return storage.Tx{Changes: []storage.Change{{Ref: task.Ref, Version: task.Version, Delay: time.Hour}}}
}

// settled is the end of a claim, after which nothing happens.
func settled(outcome storage.Outcome) dividedOperation {
	return dividedOperation{
		func(d *dividing, queue string) storage.Tx {
			d.apply(insertOf(queue, "a"))
			settle := storage.Settle{Fence: d.take(queue), Outcome: outcome}
			if outcome == storage.Fail {
				settle.Delay = time.Hour
			}
			return storage.Tx{Settles: []storage.Settle{settle}}
		},
		func(*dividing, string) {},
	}
}

// TestARepeatOfADividedCallAppliesNothingAgain: the reply of a call is lost, and the repeat, of another process, finds
// a queue damaged that was sound, or a damaged one sound. The Txs that happened have their first outcome.
func TestARepeatOfADividedCallAppliesNothingAgain(t *testing.T) {
	for name, op := range dividedOperations {
		for _, when := range []string{"before", "since", "before and since"} {
			t.Run(name+", damaged "+when, func(t *testing.T) {
				divided(t, func(d *dividing) { d.repeatsApply(op, when) })
			})
		}
	}
}

func (d *dividing) repeatsApply(op dividedOperation, when string) {
	var txs []storage.Tx
	for _, queue := range d.queues() {
		txs = append(txs, op.before(d, queue))
	}
	s, lost := d.open(), losing{queue: d.three}
	if when == "since" {
		lost.beside = d.one // the reply of the whole call
	} else {
		d.damage(d.two)
	}
	s.client.AddHook(lost)
	call := storage.Call{Lane: storage.Lane{ID: [16]byte{8}, Opened: d.opened}, Seq: 1}
	if _, err := s.Apply(d.Context(), call, txs...); !errors.Is(err, storage.ErrUnknown) {
		d.Fatalf("got %v, want an unknown outcome", err)
	}
	sound := []string{d.one, d.three}
	for _, queue := range sound {
		op.after(d, queue)
	}
	switch when {
	case "before":
		d.mend(d.two)
	case "since":
		d.damage(d.two)
	case "before and since":
		d.damage(d.three)
	}
	before := d.state(d.one) + d.state(d.three)
	for range 2 {
		applied, err := d.open().Apply(d.Context(), call, txs...)
		if err != nil {
			d.Fatal(err)
		}
		for i, want := range []bool{true, when == "since", true} {
			if a := applied[i]; (a.Err == nil) != want || len(a.Inserted) > 0 && a.Inserted[0].Existing {
				d.Errorf("Tx %d: got %+v, happened: %v", i, a, want)
			}
		}
		if after := d.state(d.one) + d.state(d.three); after != before {
			d.Fatalf("the repeat has changed a queue from\n%sto\n%s", before, after)
		}
	}
}

// TestARepeatedClaimFindsItsTasksWhicheverQueuesItAsks: the reply of a claim is lost, and the repeat leaves out a
// queue, or asks a queue that was left out, or finds out itself that a queue is damaged.
func TestARepeatedClaimFindsItsTasksWhicheverQueuesItAsks(t *testing.T) {
	for _, when := range []string{"left out since", "damaged since", "left out before", "divided", "divided and damaged"} {
		for _, at := range []int{0, 1} {
			t.Run(fmt.Sprint(when, at), func(t *testing.T) {
				divided(t, func(d *dividing) { d.repeatsClaim(when, at) })
			})
		}
	}
}

func (d *dividing) repeatsClaim(when string, at int) {
	req := asking(storage.Call{Lane: storage.Lane{ID: [16]byte{8}, Opened: d.opened}, Seq: 1}, 10, d.queues()...)
	for i, queue := range d.queues() {
		fill(d.T, d.ordinary, queue, 2)
		req.Queues[i].Max = 1
	}
	bad := d.queues()[at]
	sound := slices.DeleteFunc(d.queues(), func(queue string) bool { return queue == bad })
	s, lost := d.open(), losing{queue: d.three, beside: sound[0]}
	switch when {
	case "left out before":
		s.unsound.note(bad, "damaged")
	case "divided", "divided and damaged":
		d.damage(bad)
		lost.beside = ""
	}
	s.client.AddHook(lost)
	if _, err := s.Claim(d.Context(), req); !errors.Is(err, storage.ErrUnknown) {
		d.Fatalf("got %v, want an unknown outcome", err)
	}
	again := d.open()
	switch when {
	case "left out since":
		again.unsound.note(bad, "damaged")
	case "damaged since":
		d.damage(bad)
	case "divided":
		d.mend(bad)
	}
	for range 2 {
		claimed, err := again.Claim(d.Context(), req)
		if err != nil {
			d.Fatal(err)
		}
		var got []string
		for _, task := range claimed.Tasks {
			if task.Queue != bad {
				got = append(got, task.Ref.String())
			}
		}
		if want := []string{sound[0] + "/t0", sound[1] + "/t0"}; !slices.Equal(got, want) {
			d.Errorf("the repeat returned %v, want %v", got, want)
		}
		for _, queue := range sound {
			stats, err := again.Stats(d.Context(), queue)
			if err != nil || stats[0].Pending != 1 {
				d.Errorf("%s: %+v, %v, want one pending", queue, stats, err)
			}
		}
	}
}

// TestARepeatOfADividedExtensionLosesNoTask: the tasks that the first try has extended may have ended since.
func TestARepeatOfADividedExtensionLosesNoTask(t *testing.T) {
	for _, when := range []string{"before", "since"} {
		t.Run("damaged "+when, func(t *testing.T) {
			divided(t, func(d *dividing) { d.repeatsExtension(when) })
		})
	}
}

func (d *dividing) repeatsExtension(when string) {
	req := storage.ExtendRequest{Call: storage.Call{Lane: storage.Lane{ID: [16]byte{8}, Opened: d.opened}, Seq: 1}}
	for i, queue := range d.queues() {
		d.apply(insertOf(queue, "a"))
		e := storage.Extension{Fence: d.take(queue), For: time.Hour}
		if i != 1 {
			e.Checkpoint = []byte("half")
		}
		req.Leases = append(req.Leases, e)
	}
	s, lost := d.open(), losing{queue: d.three, beside: d.one}
	if when == "before" {
		d.damage(d.two)
		lost.beside = ""
	}
	s.client.AddHook(lost)
	if _, err := s.Extend(d.Context(), req); !errors.Is(err, storage.ErrUnknown) {
		d.Fatalf("got %v, want an unknown outcome", err)
	}
	for _, i := range []int{0, 2} {
		d.apply(storage.Tx{Settles: []storage.Settle{{Fence: req.Leases[i].Fence, Outcome: storage.Release}}})
	}
	if when == "since" {
		d.damage(d.two)
	} else {
		d.mend(d.two)
	}
	before := d.state(d.one) + d.state(d.three)
	for range 2 {
		extended, err := d.open().Extend(d.Context(), req)
		if err != nil || len(extended.Lost)+len(extended.Locked) > 0 || extended.Now.IsZero() {
			d.Errorf("the repeat returned %+v, %v, want what the first try did", extended, err)
		}
		if after := d.state(d.one) + d.state(d.three); after != before {
			d.Errorf("the repeat has changed a queue from\n%sto\n%s", before, after)
		}
	}
}

// TestARepeatedClaimFindsTheTasksOfAMendedQueue: a claim tries two queues again, each in a call of its own. The first
// turns out to be mended, and the reply of the second is lost.
func TestARepeatedClaimFindsTheTasksOfAMendedQueue(t *testing.T) {
	divided(t, func(d *dividing) {
		req := asking(storage.Call{Lane: storage.Lane{ID: [16]byte{8}, Opened: d.opened}, Seq: 1}, 10, d.queues()...)
		for _, queue := range d.queues() {
			fill(d.T, d.ordinary, queue, 1)
		}
		s, off := d.open(), new(atomic.Bool)
		s.client.AddHook(losing{queue: d.three, off: off})
		s.unsound.queues = map[string]unsoundness{d.two: {why: "damaged"}, d.three: {why: "damaged"}}
		if _, err := s.Claim(d.Context(), req); !errors.Is(err, storage.ErrUnknown) {
			d.Fatalf("got %v, want an unknown outcome", err)
		}
		off.Store(true)
		claimed, err := s.Claim(d.Context(), req)
		if err != nil || len(claimed.Tasks) != 3 {
			d.Errorf("got %v, %v, want the task of each queue", claimed.Tasks, err)
		}
		if left := s.unsound.warnings(); len(left) > 0 {
			d.Errorf("got %q after the claim, want no damaged queue", left)
		}
	})
}

// TestARepeatedClaimAsksAQueueThatAnotherFoundMended: a claim tries a queue again in a call of its own, whose reply is
// lost. The claim of another runner finds the queue mended before the first one is repeated.
func TestARepeatedClaimAsksAQueueThatAnotherFoundMended(t *testing.T) {
	divided(t, func(d *dividing) {
		req := asking(storage.Call{Lane: storage.Lane{ID: [16]byte{8}, Opened: d.opened}, Seq: 1}, 10, d.queues()...)
		other := asking(storage.Call{Lane: storage.Lane{ID: [16]byte{9}, Opened: d.opened}, Seq: 1}, 10, d.queues()...)
		for _, queue := range d.queues() {
			fill(d.T, d.ordinary, queue, 1)
		}
		s, off := d.open(), new(atomic.Bool)
		s.client.AddHook(losing{queue: d.three, off: off})
		s.unsound.queues = map[string]unsoundness{d.three: {why: "damaged"}}
		for range 2 { // the repeat is lost too
			if _, err := s.Claim(d.Context(), req); !errors.Is(err, storage.ErrUnknown) {
				d.Fatalf("got %v, want an unknown outcome", err)
			}
		}
		off.Store(true)
		if claimed, err := s.Claim(d.Context(), other); err != nil || len(claimed.Tasks) > 0 {
			d.Fatalf("the other claim: got %v, %v, want no task", claimed.Tasks, err)
		}
		if left := s.unsound.warnings(); len(left) > 0 {
			d.Errorf("got %q after a claim that succeeded, want no damaged queue", left)
		}
		claimed, err := s.Claim(d.Context(), req)
		if err != nil || len(claimed.Tasks) != 3 {
			d.Errorf("got %v, %v, want the task of each queue", claimed.Tasks, err)
		}
		if len(s.unsound.lost) > 0 {
			d.Errorf("%v are still noted as lost", s.unsound.lost)
		}
	})
}
