package redis_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// unindexed is a queue main on a miniredis, with one task or schedule.
type unindexed struct {
	*testing.T

	server  *miniredis.Miniredis
	store   *redis.Storage
	session *storage.Session
	now     time.Time
}

func newUnindexed(t *testing.T) *unindexed {
	t.Helper()
	server := miniredis.RunT(t)
	cfg := redis.Config{URL: "redis://" + server.Addr()}
	store, err := redis.Open(t.Context(), redis.WithReindexEvery(cfg, time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	u := &unindexed{t, server, store, storage.NewSession(store, testserver.Patience), time.Now()}
	server.SetTime(u.now)
	return u
}

func (u *unindexed) later(by time.Duration) {
	u.now = u.now.Add(by)
	u.server.SetTime(u.now)
}

func (u *unindexed) insert(alter func(*storage.Insert)) {
	u.Helper()
	in := insertOf("a")
	in.Keep = storage.Keep{For: time.Hour}
	alter(&in)
	if _, err := u.session.ApplyOne(u.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
		u.Fatal(err)
	}
}

// claim claims one task, and returns the result of the claim.
func (u *unindexed) claim() storage.Claimed {
	u.Helper()
	req := claimOf(1)
	req.Suspect = true
	claimed, err := u.session.Claim(u.Context(), req)
	if err != nil {
		u.Fatal(err)
	}
	return claimed
}

// settle claims the task and settles it.
func (u *unindexed) settle(outcome storage.Outcome) {
	u.Helper()
	settle := storage.Settle{Fence: u.claim().Fences[0], Outcome: outcome}
	if outcome == storage.Fail {
		settle.Delay = time.Hour
	}
	if _, err := u.session.ApplyOne(u.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
		u.Fatal(err)
	}
}

// lose removes the task from the key of its state: all members or entries, or the field a.
func (u *unindexed) lose(key string) {
	u.Helper()
	key = "midge:{main}:" + key
	if !u.server.Exists(key) {
		u.Fatalf("there is no %s:\n%s", key, u.server.Dump())
	}
	if strings.HasSuffix(key, ":pending") {
		u.server.HDel(key, "a")
		return
	}
	u.server.Del(key)
}

// TestATaskWithoutAPlaceIsFound: the record of a task stands, and the task is in no set and not in the line.
// The queue shows it as damaged. Then the task waits again, or is set apart if its record does not show that
// it waited or ran.
func TestATaskWithoutAPlaceIsFound(t *testing.T) {
	plain := func(*storage.Insert) {}
	for name, c := range map[string]struct {
		begin func(u *unindexed)
		keys  []string
		want  string
	}{
		"in the line": {func(u *unindexed) { u.insert(plain) }, []string{"line"}, "waits"},
		"of a priority": {func(u *unindexed) {
			u.insert(func(in *storage.Insert) { in.Priority = 2 })
		}, []string{"waiting"}, "waits"},
		"large": {func(u *unindexed) {
			u.insert(func(in *storage.Insert) { in.Payload = make([]byte, 10_000) })
		}, []string{"line"}, "waits"},
		"a suspect": {func(u *unindexed) {
			u.insert(func(in *storage.Insert) { in.CrashLimit = 2 })
			u.claim()
			u.later(2 * time.Minute)
			if claimed, err := u.session.Claim(u.Context(), claimOf(1)); err != nil || len(claimed.Tasks) > 0 {
				u.Fatal(claimed, err)
			}
		}, []string{"suspects"}, "waits"},
		"pending":           {func(u *unindexed) { u.insert(plain); u.claim() }, []string{"pending", "leases"}, "waits"},
		"that was promoted": {promoted, []string{"line"}, "waits"},
		"declined":          {func(u *unindexed) { u.insert(plain); u.settle(storage.Decline) }, []string{"lines"}, "apart"},
		"scheduled":         {func(u *unindexed) { u.insert(delayed) }, []string{"scheduled"}, "apart"},
		"that failed":       {func(u *unindexed) { u.insert(plain); u.settle(storage.Fail) }, []string{"retry"}, "apart"},
		"completed":         {func(u *unindexed) { u.insert(plain); u.settle(storage.Complete) }, []string{"completed"}, "apart"},
		"cancelled":         {func(u *unindexed) { u.insert(plain); u.settle(storage.Cancel) }, []string{"cancelled"}, "apart"},
		"dead":              {func(u *unindexed) { u.insert(plain); u.settle(storage.Bury) }, []string{"dead"}, "apart"},
		"of a schedule":     {func(u *unindexed) { u.insert(schedule) }, []string{"cursors"}, "ticks"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnindexed(t)
			c.begin(u)
			for _, key := range c.keys {
				u.lose(key)
			}
			u.wantFound(c.want)
		})
	}
}

func delayed(in *storage.Insert) { in.Delay = time.Hour }

func promoted(u *unindexed) {
	u.insert(delayed)
	u.later(2 * time.Hour)
	u.session = storage.NewSession(u.store, testserver.Patience)
	for range 2 { // the clock jumped
		if _, err := u.session.Claim(u.Context(), none()); err != nil {
			u.Fatal(err)
		}
		u.later(storage.JumpWait)
	}
}

func schedule(in *storage.Insert) {
	in.Ref.ID, in.Keep = "cursor.a", storage.Keep{}
	in.Cursor = &storage.Cursor{Declaration: `{"spec":"cron @daily"}`, Next: time.Now().Add(24 * time.Hour)}
}

// none returns a claim that only maintains main.
func none() storage.ClaimRequest {
	req := claimOf(0)
	req.Queues[0].Max = -1
	return req
}

// wantFound checks that the storage shows the record of a task without a place, and finds it.
func (u *unindexed) wantFound(want string) {
	u.Helper()
	damaged := func() int64 {
		stats, err := u.store.Stats(u.Context(), "main")
		if err != nil {
			u.Fatal(err)
		}
		return stats[0].Damaged
	}
	if n := damaged(); n != 1 {
		u.Errorf("%d damaged, want the task among them", n)
	}
	if _, err := u.store.Task(u.Context(), refOf("a")); want != "ticks" && err != nil {
		u.Errorf("the task: %v", err)
	}
	remove := u.session.Configure(u.Context(), "main", storage.Settings{Remove: true})
	if !errors.Is(remove, storage.ErrNotEmpty) {
		u.Errorf("the queue was removed: %v", remove)
	}
	u.later(time.Minute)
	claimed := u.claim()
	if got := len(claimed.Tasks) > 0 && claimed.Tasks[0].ID == "a"; got != (want == "waits") {
		u.Errorf("claimed %v", claimed.Tasks)
	}
	if got := len(claimed.Ticks) > 0; want == "ticks" && !got {
		u.later(time.Second)
		if claimed = u.claim(); len(claimed.Ticks) == 0 {
			u.Error("the cursor does not tick")
		}
	}
	if n := damaged(); n != map[string]int64{"apart": 1}[want] {
		u.Errorf("%d damaged after that", n)
	}
	if _, err := u.store.Task(u.Context(), refOf("a")); want == "apart" && !errors.Is(err, storage.ErrDamaged) {
		u.Errorf("a task set apart: %v", err)
	}
	d, err := u.store.Describe(u.Context())
	if err != nil || !slices.ContainsFunc(d.Warnings, func(w string) bool { return strings.Contains(w, "tasks of queue main had no place") }) {
		u.Errorf("the warnings are %q, %v", d.Warnings, err)
	}
}

// TestALeaseOfATornStepRecoversNobody: a torn step that leased a task by itself leaves a member of leases
// behind, and a later claim has leased the task in a group. The task is recovered with its group.
func TestALeaseOfATornStepRecoversNobody(t *testing.T) {
	u := newUnindexed(t)
	fill(t, u.session, 5, nil)
	claimed, err := u.session.Claim(t.Context(), claimOf(5))
	if err != nil || len(claimed.Tasks) != 5 {
		t.Fatal(claimed, err)
	}
	soon := u.now.Add(time.Second)
	if _, err := u.server.ZAdd("midge:{main}:leases", float64(soon.UnixMicro()), "id0"); err != nil {
		t.Fatal(err)
	}
	u.server.HSet("midge:{main}:meta", "soon", "0")
	for _, c := range []struct {
		after   time.Duration
		pending int64
	}{{2 * time.Second, 5}, {claimOf(5).Lease, 0}} {
		u.later(c.after)
		if _, err := u.session.Claim(t.Context(), none()); err != nil {
			t.Fatal(err)
		}
		stats, err := u.store.Stats(t.Context(), "main")
		if err != nil || stats[0].Pending != c.pending || stats[0].Damaged != 0 {
			t.Errorf("after %v: got %+v, %v, want %d pending", c.after, stats, err, c.pending)
		}
	}
	if members, err := u.server.ZMembers("midge:{main}:leases"); err == nil {
		t.Errorf("leases has %q", members)
	}
}

// TestTheHeadOfALongLineIsFound: claims walk through all records, and find those tasks alone that have lost
// their entries. They come first, in their order.
func TestTheHeadOfALongLineIsFound(t *testing.T) {
	const tasks, lost = 2300, 300
	u := newUnindexed(t)
	for from := 0; from < tasks; from += 100 {
		u.later(time.Millisecond)
		fillFrom(t, u.session, from, from+100, nil)
	}
	for range lost {
		if _, err := u.server.Lpop("midge:{main}:line"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		u.later(time.Second)
		if _, err := u.session.Claim(t.Context(), none()); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for {
		claimed, err := u.session.Claim(t.Context(), claimOf(500))
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed.Tasks) == 0 {
			break
		}
		for i := range claimed.Tasks {
			got = append(got, claimed.Tasks[i].ID)
		}
	}
	if len(got) != tasks {
		t.Fatalf("claimed %d tasks, want %d", len(got), tasks)
	}
	for i, id := range got {
		if want := fmt.Sprint("id", i); id != want && i >= lost {
			t.Fatalf("claim %d: got %s, want %s", i, id, want)
		}
	}
}

// TestAClockThatWasSetBackDoublesNoTask promotes a task into a long line after the clock was set back, and
// takes the entry of the first task there. A walk through the records finds that task, and leaves the
// promoted task where it stands.
func TestAClockThatWasSetBackDoublesNoTask(t *testing.T) {
	const tasks = 1200
	u := newUnindexed(t)
	u.insert(func(in *storage.Insert) { in.Delay = time.Second })
	for from := 0; from < tasks; from += 100 {
		u.later(3 * time.Second)
		fillFrom(t, u.session, from, from+100, nil)
	}
	u.later(-20 * time.Second)
	if _, err := u.session.Claim(t.Context(), none()); err != nil {
		t.Fatal(err)
	}
	if first, err := u.server.Lpop("midge:{main}:line"); err != nil || first != "id0" {
		t.Fatal(first, err)
	}
	u.server.HSet("midge:{main}:meta", "soon", "0")
	u.later(time.Second)
	if _, err := u.session.Claim(t.Context(), none()); err != nil {
		t.Fatal(err)
	}
	var waiting []string
	for task, err := range storage.Each(t.Context(), u.store, "main", storage.Waiting) {
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, task.ID)
	}
	if n := len(waiting); n != tasks+1 || waiting[0] != "id0" || waiting[n-1] != "a" {
		t.Errorf("%d tasks wait, from %s to %s, want %d from id0 to a", n, waiting[0], waiting[n-1], tasks+1)
	}
}

// TestAWalkThroughTheRecordsHoldsNobodyUp: a step of it takes less than five milliseconds.
func TestAWalkThroughTheRecordsHoldsNobodyUp(t *testing.T) {
	const tasks, lost = 30_000, 1000
	testserver.Require(t)
	server := testserver.Redis(t)
	cfg := redis.Config{URL: server.URL()}
	store, err := redis.Open(t.Context(), redis.WithReindexEvery(cfg, time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	session := storage.NewSession(store, testserver.Patience)
	fill(t, session, tasks, nil)
	do(t, server, "LTRIM", "midge:{main}:line", fmt.Sprint(lost), "-1")
	do(t, server, "HSET", "midge:{main}:meta", "soon", "0")
	m := startMeter(t, server)
	for more := true; more; m.step() {
		claimed, err := session.Claim(t.Context(), none())
		if err != nil {
			t.Fatal(err)
		}
		more = claimed.More
	}
	m.check(len(m.steps) / 20)
	stats, err := store.Stats(t.Context(), "main")
	if err != nil || stats[0].Damaged != 0 || stats[0].Waiting != tasks {
		t.Errorf("got %+v, %v, want all tasks to wait", stats, err)
	}
	if got := drain(t, session); got != tasks {
		t.Errorf("drained %d tasks, want %d", got, tasks)
	}
}
