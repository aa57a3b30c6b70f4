package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/storage"
)

// jumping is a storage on a server whose clock the test sets.
type jumping struct {
	*testing.T

	s      *Storage
	server *miniredis.Miniredis
	begun  time.Time
	now    time.Time
	seq    uint64
	opened time.Time
}

func newJumping(t *testing.T) *jumping {
	t.Helper()
	return newJumpingBy(t, false)
}

// newJumpingBy is newJumping; if general is true, calls go by the general ways of the scripts only.
func newJumpingBy(t *testing.T, general bool) *jumping {
	t.Helper()
	s, server := openMiniBy(t, general)
	j := &jumping{T: t, s: s, server: server, begun: time.Now().Truncate(time.Microsecond)}
	j.at(0)
	j.opened = j.now
	return j
}

// at sets the clock to a time after the beginning of the test.
func (j *jumping) at(after time.Duration) {
	j.now = j.begun.Add(after)
	j.server.SetTime(j.now)
}

// call returns the next call of a lane, on a new lane if the old one may have expired.
func (j *jumping) call() storage.Call {
	if j.now.Sub(j.opened).Abs() > storage.LaneLife/2 {
		j.opened = j.now
	}
	j.seq++
	id := [16]byte{1}
	copy(id[1:], j.opened.String()[10:])
	return storage.Call{Lane: storage.Lane{ID: id, Opened: j.opened}, Seq: j.seq}
}

func (j *jumping) apply(txs ...storage.Tx) {
	j.Helper()
	applied, err := j.s.Apply(j.Context(), j.call(), txs...)
	if err != nil {
		j.Fatal(err)
	}
	for _, a := range applied {
		if a.Err != nil {
			j.Fatal(a.Err)
		}
	}
}

func (j *jumping) insert(id string, delay time.Duration) {
	j.Helper()
	tx := insertOf("mail", id)
	tx.Inserts[0].Delay = delay
	j.apply(tx)
}

// claim claims under a lease of a minute.
func (j *jumping) claim(queues ...string) storage.Claimed {
	j.Helper()
	claimed, err := j.s.Claim(j.Context(), asking(j.call(), 100, append([]string{"mail"}, queues...)...))
	if err != nil {
		j.Fatal(err)
	}
	return claimed
}

// want checks which tasks a claim took, and returns the claim.
func (j *jumping) want(what string, c storage.Claimed, ids ...string) storage.Claimed {
	j.Helper()
	var got []string
	for i := range c.Tasks {
		got = append(got, c.Tasks[i].ID)
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		j.Errorf("%s: claimed %v, want %v", what, got, ids)
	}
	return c
}

// TestWhatIsTimedGoesOnAfterTheClockWasAhead: the marks from that time are ahead of the clock, and the
// storage makes only versions from them.
func TestWhatIsTimedGoesOnAfterTheClockWasAhead(t *testing.T) {
	j := newJumping(t)
	j.insert("a", 0)
	j.at(2 * time.Hour)
	j.insert("ahead", 0)
	j.at(time.Second)
	j.insert("later", 2*time.Second)
	tick := insertOf("mail", "cursor.c")
	tick.Inserts[0].Cursor = &storage.Cursor{Next: j.now.Add(3 * time.Second)}
	j.apply(tick)
	c := j.want("at once", j.claim(), "a", "ahead")
	if !c.Now.Equal(j.now) || !c.Tasks[0].LeaseUntil.Equal(j.now.Add(time.Minute)) {
		t.Errorf("claimed at %v until %v, want it by the clock, %v", c.Now, c.Tasks[0].LeaseUntil, j.now)
	}
	if !c.NextDue.Equal(j.now.Add(2 * time.Second)) {
		t.Errorf("next due at %v, want two seconds after %v", c.NextDue, j.now)
	}
	fail := settleOf(c.Fences[1], storage.Fail)
	fail.Settles[0].Delay = 10 * time.Second
	j.apply(fail)
	j.at(3 * time.Second)
	j.want("due", j.claim(), "later")
	j.at(4 * time.Second)
	if c := j.want("the tick", j.claim()); len(c.Ticks) != 1 {
		t.Errorf("handed out %d ticks, want one", len(c.Ticks))
	}
	j.at(11 * time.Second)
	j.want("the retry", j.claim(), "ahead")
	j.at(61 * time.Second)
	j.want("recovered", j.claim(), "a")
}

// TestAJumpOfTheClockExpiresNothing: whichever step meets the jump first. If the time is really so late,
// leases and tasks expire once the clock has gone on.
func TestAJumpOfTheClockExpiresNothing(t *testing.T) {
	steps := map[string]func(j *jumping, held []storage.Fence){
		"claim":        func(j *jumping, _ []storage.Fence) { j.claim() },
		"sweep":        func(j *jumping, _ []storage.Fence) { j.claim("bulk") },
		"enqueue":      func(j *jumping, _ []storage.Fence) { j.insert("x", 0) },
		"insert many":  func(j *jumping, _ []storage.Fence) { j.apply(insertOf("mail", "x"), insertOf("bulk", "y")) },
		"insert later": func(j *jumping, _ []storage.Fence) { j.insert("x", 20*time.Hour) },
		"complete":     func(j *jumping, held []storage.Fence) { j.apply(settleOf(held[0], storage.Complete)) },
		"complete many": func(j *jumping, held []storage.Fence) {
			j.apply(settleOf(held[0], storage.Complete), settleOf(held[5], storage.Complete))
		},
		"release": func(j *jumping, held []storage.Fence) { j.apply(settleOf(held[0], storage.Release)) },
		"extend": func(j *jumping, held []storage.Fence) {
			req := storage.ExtendRequest{Call: j.call(), Leases: []storage.Extension{{Fence: held[0], For: 9 * time.Hour}}}
			if _, err := j.s.Extend(j.Context(), req); err != nil {
				j.Fatal(err)
			}
		},
		"configure": func(j *jumping, _ []storage.Fence) {
			if err := j.s.Configure(j.Context(), j.call(), "mail", storage.Settings{Pause: &storage.Pause{}}); err != nil {
				j.Fatal(err)
			}
		},
	}
	for name, step := range steps {
		for _, back := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, back %v", name, back), func(t *testing.T) {
				j := newJumping(t)
				var txs []storage.Tx
				for i := range 5 {
					txs = append(txs, insertOf("mail", fmt.Sprintf("held%d", i)))
				}
				j.apply(append(txs, insertOf("bulk", "held"))...)
				held := j.claim("bulk").Fences
				j.insert("later", time.Hour)
				keep := insertOf("mail", "cursor.c")
				keep.Inserts[0].Cursor = &storage.Cursor{Next: j.now.Add(time.Hour)}
				j.apply(keep)
				j.at(2 * time.Hour)
				j.apply(insertOf("other", "z")) // makes the lane known, so that calls may go the short way
				step(j, held)
				j.stands(t, "right after", held)
				j.at(2*time.Hour + 4*time.Second)
				j.stands(t, "after four seconds", held)
				if back {
					j.at(5 * time.Second)
					j.stands(t, "back", held)
					return
				}
				j.at(2*time.Hour + storage.JumpWait)
				j.goesOn(t)
			})
		}
	}
}

// stands checks that nothing expired.
func (j *jumping) stands(t *testing.T, when string, held []storage.Fence) {
	t.Helper()
	c := j.claim("bulk")
	for i := range c.Tasks {
		if id := c.Tasks[i].ID; id != "x" && id != "y" && (id != held[0].ID || c.Tasks[i].Crashes > 0) {
			t.Errorf("%s: claimed %s", when, id)
		}
	}
	if len(c.Ticks) > 0 || c.More {
		t.Errorf("%s: got %d ticks, more %v, want none", when, len(c.Ticks), c.More)
	}
	if until := j.begun.Add(2*time.Hour + storage.JumpWait); j.now.After(j.begun.Add(time.Hour)) && !c.NextDue.Equal(until) {
		t.Errorf("%s: the next is due at %v, want %v", when, c.NextDue, until)
	}
	task, err := j.s.Task(t.Context(), held[3].Ref)
	if err != nil || task.State != storage.Pending || task.Version != held[3].Version {
		t.Errorf("%s: %s is %s at %d, %v, want it pending", when, task.ID, task.State, task.Version, err)
	}
}

// goesOn checks that everything that is due happens.
func (j *jumping) goesOn(t *testing.T) {
	t.Helper()
	got := make(map[string]bool)
	for range 3 {
		c := j.claim("bulk")
		for i := range c.Tasks {
			got[c.Tasks[i].ID] = true
		}
		for i := range c.Ticks {
			got[c.Ticks[i].ID] = true
		}
	}
	for _, id := range []string{"held3", "later", "cursor.c"} {
		if !got[id] {
			t.Errorf("%s was not handed out though it is due: got %v", id, got)
		}
	}
}

// TestAQueueThatIsLookedAtNeverWaits: a claim that finds nothing moves the mark of each of its queues
// too, by the short way and by the general way. So timed work in these queues never waits.
func TestAQueueThatIsLookedAtNeverWaits(t *testing.T) {
	for _, queues := range [][]string{nil, {"bulk", "few"}} {
		for _, general := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, general %v", queues, general), func(t *testing.T) {
				j := newJumpingBy(t, general)
				j.apply(insertOf("mail", "a"), insertOf("bulk", "b"), insertOf("few", "c"))
				for _, f := range j.claim("bulk", "few").Fences {
					j.apply(settleOf(f, storage.Complete))
				}
				last := []string{"mail", "bulk", "few"}[len(queues)]
				j.claim(queues...)
				for at := 9 * time.Minute; at < time.Hour; at += 9 * time.Minute {
					j.at(at)
					j.claim(queues...)
				}
				tx := insertOf(last, "later")
				tx.Inserts[0].Delay = 9 * time.Minute
				j.apply(tx)
				j.at(63 * time.Minute)
				j.want("due", j.claim(queues...), "later")
			})
		}
	}
}

// TestALaneOpenedAheadIsRefused: each script refuses a call of a lane that was opened too far ahead.
func TestALaneOpenedAheadIsRefused(t *testing.T) {
	j := newJumping(t)
	j.insert("a", 0)
	ahead := storage.Lane{ID: [16]byte{7}, Opened: j.begun.Add(2 * time.Hour)}
	known := storage.Lane{ID: [16]byte{8}, Opened: j.begun.Add(2 * time.Hour)}
	j.at(2 * time.Hour)
	seq := uint64(0)
	call := func(lane storage.Lane) storage.Call {
		seq++
		return storage.Call{Lane: lane, Seq: seq}
	}
	if _, err := j.s.Apply(t.Context(), call(known), insertOf("mail", "b")); err != nil {
		t.Fatal(err)
	}
	repeat := storage.Call{Lane: known, Seq: seq}
	held, err := j.s.Claim(t.Context(), asking(call(known), 1, "mail"))
	if err != nil || len(held.Tasks) != 1 {
		t.Fatal(held, err)
	}
	repeatOfClaim := storage.Call{Lane: known, Seq: seq}
	j.at(time.Second)
	for _, lane := range []storage.Lane{ahead, known} {
		refused := map[string]error{}
		_, refused["apply"] = j.s.Apply(t.Context(), call(lane), insertOf("mail", "c"))
		_, refused["insert"] = j.s.Apply(t.Context(), call(lane), insertOf("mail", "d"), insertOf("bulk", "d"))
		_, refused["complete"] = j.s.Apply(t.Context(), call(lane), settleOf(held.Fences[0], storage.Complete))
		_, refused["claim"] = j.s.Claim(t.Context(), asking(call(lane), 1, "mail"))
		_, refused["claim of two"] = j.s.Claim(t.Context(), asking(call(lane), 1, "mail", "bulk"))
		_, refused["extend"] = j.s.Extend(t.Context(), storage.ExtendRequest{
			Call: call(lane), Leases: []storage.Extension{{Fence: held.Fences[0], For: time.Minute}},
		})
		refused["configure"] = j.s.Configure(t.Context(), call(lane), "mail", storage.Settings{Pause: &storage.Pause{}})
		for verb, err := range refused {
			if !errors.Is(err, storage.ErrLaneExpired) {
				t.Errorf("%s on lane %d: got %v, want ErrLaneExpired", verb, lane.ID[0], err)
			}
		}
	}
	if _, err := j.s.Claim(t.Context(), asking(repeatOfClaim, 1, "mail")); err != nil {
		t.Errorf("the repeat of the last call: %v", err)
	}
	if _, err := j.s.Apply(t.Context(), repeat, insertOf("mail", "b")); !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("a number before the last: got %v, want ErrUnknown", err)
	}
}

// TestLanesAreOpenedWhereTheClockWentBack: also if the clock went back to before the opening of lanes
// that were swept while it was ahead.
func TestLanesAreOpenedWhereTheClockWentBack(t *testing.T) {
	j := newJumping(t)
	j.apply(insertOf("mail", "a"))
	for _, after := range []time.Duration{time.Hour, time.Hour + storage.JumpWait + time.Second} {
		j.at(after)
		j.opened = j.now // the first call of a new lane sweeps old lanes
		j.apply(insertOf("mail", fmt.Sprint("at-", int(after.Seconds()))))
	}
	if swept := j.server.HGet(j.s.keys.key("mail", lanesKey), ""); swept == "" {
		t.Fatal("no lane was swept: a test that proves nothing")
	}
	j.at(-time.Minute)
	j.apply(insertOf("mail", "b"))
}

// TestLanesOfAQueueThatDoesNotExistAreSwept: on a Cluster each queue that runners poll has lanes of its own.
func TestLanesOfAQueueThatDoesNotExistAreSwept(t *testing.T) {
	j := newJumping(t)
	j.s.cluster, j.s.keys.shared = true, false
	j.apply(insertOf("mail", "a"))
	kept := make(map[string]int)
	for i := range 60 {
		j.at(time.Duration(i) * 5 * time.Minute)
		for _, queue := range []string{"mail", "ghost"} {
			j.opened = j.now
			if _, err := j.s.Claim(t.Context(), asking(j.call(), 1, queue)); err != nil {
				t.Fatal(err)
			}
			fields, err := j.server.HKeys(j.s.keys.key(queue, lanesKey))
			if err != nil {
				t.Fatal(err)
			}
			kept[queue] = len(fields)
		}
	}
	if kept["ghost"] != kept["mail"] || kept["mail"] > 5 {
		t.Errorf("the queues keep %v fields of lanes, want as many for each, and no more than 5", kept)
	}
	if j.server.Exists(j.s.keys.key("ghost", 0)) {
		t.Error("the claims have made the queue")
	}
}

// TestAJumpSweepsNoLaneOfAQueueThatDoesNotExist: the clock has to stay ahead for JumpWait. Then the lanes are
// swept, and if the clock is set back nevertheless, no call of theirs happens again.
func TestAJumpSweepsNoLaneOfAQueueThatDoesNotExist(t *testing.T) {
	j := newJumping(t)
	j.s.cluster, j.s.keys.shared = true, false
	poll := func(call storage.Call) error {
		_, err := j.s.Claim(t.Context(), asking(call, 1, "ghost"))
		return err
	}
	known := func() bool {
		id := j.s.keys.key("ghost", openedKey)
		members, err := j.server.ZMembers(id)
		if err != nil {
			t.Fatal(err)
		}
		score, err := j.server.ZScore(id, members[0])
		return err == nil && score == float64(j.begun.UnixMicro())
	}
	first := j.call()
	if err := poll(first); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{time.Hour, true}, {time.Hour + storage.JumpWait/2, true}, {time.Hour + storage.JumpWait + time.Second, false}} {
		j.at(c.after)
		j.opened = j.now
		if err := poll(j.call()); err != nil {
			t.Fatal(err)
		}
		if known() != c.want {
			t.Errorf("after %v: the first lane is known: %v, want %v", c.after, !c.want, c.want)
		}
	}
	j.at(time.Second)
	if err := poll(first); !errors.Is(err, storage.ErrLaneExpired) {
		t.Errorf("the repeat of a call of a swept lane: got %v, want %v", err, storage.ErrLaneExpired)
	}
}

// TestAJumpForgetsNoRunner: no heartbeat expires before the clock has gone on.
func TestAJumpForgetsNoRunner(t *testing.T) {
	j := newJumping(t)
	beat := func(id string) {
		t.Helper()
		info := storage.RunnerInfo{ID: id, For: time.Minute}
		if _, err := j.s.Extend(t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
			t.Fatal(err)
		}
	}
	runners := func() string {
		t.Helper()
		all, err := j.s.Runners(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for i := range all {
			ids = append(ids, all[i].ID)
		}
		return strings.Join(ids, " ")
	}
	beat("one")
	beat("two")
	j.at(2 * time.Hour)
	beat("two")
	j.at(2*time.Hour + 2*time.Second)
	beat("two")
	j.at(5 * time.Second)
	if got := runners(); got != "one two" {
		t.Errorf("after the jump the runners are %q, want both", got)
	}
	j.at(2 * time.Hour)
	beat("two")
	j.at(2*time.Hour + storage.JumpWait)
	beat("two")
	j.at(5 * time.Second)
	if got := runners(); got != "two" {
		t.Errorf("after the clock had gone on the runners are %q, want the one that beat", got)
	}
}

// pages lists the ids of all tasks of a state in the queue mail, in pages of a size.
func (j *jumping) pages(state storage.State, size int) (ids []string) {
	j.Helper()
	query := storage.TasksQuery{Queue: "mail", State: state, Limit: size}
	for {
		page, err := j.s.Tasks(j.Context(), query)
		if err != nil {
			j.Fatal(err)
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

// TestALeaseGrowsOnlyWhereTheClockWasSetBack: a lease and an attempt of the history have the moment of the
// claim only if the version of the claim does not show it.
func TestALeaseGrowsOnlyWhereTheClockWasSetBack(t *testing.T) {
	j := newJumping(t)
	sizes := func(id string) (lease, history int) {
		t.Helper()
		j.apply(insertOf("mail", id))
		held := j.want("to fail", j.claim(), id)
		lease = len(j.server.HGet("midge:{mail}:pending", id))
		fail := settleOf(held.Fences[0], storage.Fail)
		fail.Settles[0].Delay = time.Hour
		j.apply(fail)
		return lease, len(j.server.HGet("midge:{mail}:side", "h:"+id))
	}
	lease, history := sizes("a")
	runner := len(asking(storage.Call{}, 1, "mail").Runner)
	if want := fenceSize + 1 + 2 + runner; lease != want {
		t.Errorf("a usual lease has %d bytes, want %d", lease, want)
	}
	if want := 1 + 2 + 7 + 7 + 1 + 1 + runner; history != want {
		t.Errorf("a usual history has %d bytes, want %d", history, want)
	}
	j.at(-time.Hour)
	if l, h := sizes("b"); l != lease+8 || h != history+8 {
		t.Errorf("after the clock was set back: a lease of %d bytes, a history of %d, want 8 more than %d and %d",
			l, h, lease, history)
	}
}
