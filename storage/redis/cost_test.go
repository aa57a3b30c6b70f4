package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// A meter measures how much of the server's processor time each step takes, and beside each step how much
// a yardstick takes. The ratio hardly depends on the machine and its other work.
type meter struct {
	t      *testing.T
	server *testserver.Server

	used  time.Duration   // the server's processor time after the last step
	calls int             // the script calls until then
	steps []time.Duration // the processor time of a script call, for each step
	yards []time.Duration // the processor time of the yardstick, after each step
}

// yardstick is a script that takes about a millisecond on a quiet machine.
const yardstick = `for i = 1, 400 do
  redis.call('HSET', 'yardstick', i % 10, 'value ' .. i)
  redis.call('ZADD', 'yardsticks', i, i % 100)
end`

func startMeter(t *testing.T, server *testserver.Server) *meter {
	return &meter{t: t, server: server, used: processor(t, server), calls: scriptCalls(t, server)}
}

// step ends a step, which may be one script call or several.
func (m *meter) step() {
	used, calls := processor(m.t, m.server), scriptCalls(m.t, m.server)
	if calls > m.calls {
		m.steps = append(m.steps, (used-m.used)/time.Duration(calls-m.calls))
	}
	do(m.t, m.server, "EVAL", yardstick, "0")
	m.used, m.calls = processor(m.t, m.server), calls
	m.yards = append(m.yards, m.used-used)
}

// stepMost is how many yardsticks a step may take. On a quiet machine a step of five milliseconds takes four
// or five; if others use the processor's caches, the steps, which read more memory, slow down more.
const stepMost = 8

// check reports an error if more than most steps took over stepMost yardsticks.
func (m *meter) check(most int) {
	m.t.Helper()
	slices.Sort(m.steps)
	slices.Sort(m.yards)
	yard := m.yards[len(m.yards)/2]
	m.t.Logf("%d steps took %v to %v, %v in the middle; a yardstick took %v", len(m.steps), m.steps[0],
		m.steps[len(m.steps)-1], m.steps[len(m.steps)/2], yard)
	if slow := m.steps[max(len(m.steps)-1-most, 0)]; slow > stepMost*yard {
		m.t.Errorf("a slow step took %v, want at most %d yardsticks of %v", slow, stepMost, yard)
	}
}

// checkMean reports an error if the steps took over four yardsticks on average, which are about five
// milliseconds on a quiet machine.
func (m *meter) checkMean() {
	m.t.Helper()
	var all time.Duration
	for _, step := range m.steps {
		all += step
	}
	slices.Sort(m.yards)
	mean, yard := all/time.Duration(len(m.steps)), m.yards[len(m.yards)/2]
	m.t.Logf("%d steps took %v on average; a yardstick took %v", len(m.steps), mean, yard)
	if mean > 4*yard {
		m.t.Errorf("a step took %v on average, want at most 4 yardsticks of %v", mean, yard)
	}
}

// TestManyDueAtOnceHoldNobodyUp: a step that takes longer than five milliseconds delays all other
// calls.
func TestManyDueAtOnceHoldNobodyUp(t *testing.T) {
	const tasks = 30_000
	server, _, session := started(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	due := time.Now().Add(-time.Hour)
	fill(t, session, tasks, func(in *storage.Insert) { in.Delay = time.Hour })
	// Make all tasks due at once: set their scores to a time in the past.
	for cursor, done := uint64(0), false; !done; done = cursor == 0 {
		found, next, err := client.ZScan(t.Context(), "midge:{main}:scheduled", cursor, "", 10_000).Result()
		if err != nil {
			t.Fatal(err)
		}
		var moved []goredis.Z
		for i := 0; i < len(found); i += 2 {
			moved = append(moved, goredis.Z{Score: float64(due.UnixMicro()), Member: found[i]})
		}
		if len(moved) > 0 {
			if err := client.ZAdd(t.Context(), "midge:{main}:scheduled", moved...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		cursor = next
	}
	m := startMeter(t, server)
	if got := drain(t, session, m.step); got != tasks {
		t.Errorf("drained: got %d, want %d", got, tasks)
	}
	m.check(tasks / 2000)
}

// commands counts the commands that a server received while action ran, by name.
func commands(t *testing.T, server *testserver.Server, action func()) map[string]int {
	t.Helper()
	do(t, server, "CONFIG", "RESETSTAT")
	action()
	counts := make(map[string]int)
	for line := range strings.Lines(do(t, server, "INFO", "commandstats")) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		n, _, _ := strings.Cut(rest, ",")
		count, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(err)
		}
		counts[name] = count
	}
	return counts
}

// TestPartsOfACallBringTheirScript: a call of several parts sends the text of its scripts if the
// server may not know them. Otherwise the server could refuse the first part, learn the script from
// another client, and carry out the second part before the first.
func TestPartsOfACallBringTheirScript(t *testing.T) {
	server, _, session := started(t)
	fill(t, session, 1000, nil) // the queue is known, and the lanes of all parts
	do(t, server, "SCRIPT", "FLUSH")
	for i, want := range []map[string]int{{"eval": 4}, {"evalsha": 4}} {
		got := commands(t, server, func() {
			fill(t, session, 1000, func(in *storage.Insert) { in.Ref.ID = fmt.Sprint(i, in.Ref.ID) })
		})
		if got["eval"] != want["eval"] || got["evalsha"] != want["evalsha"] {
			t.Errorf("call %d: by text %d and by hash %d, want %v", i, got["eval"], got["evalsha"], want)
		}
	}
}

func TestEachVerbIsOneScriptCall(t *testing.T) {
	server, store, session := started(t)
	fill(t, session, 10, nil)
	if _, err := session.Claim(t.Context(), claimOf(1)); err != nil {
		t.Fatal(err)
	}
	claimed, err := session.Claim(t.Context(), claimOf(3))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Task(t.Context(), refOf("id9")); err != nil {
		t.Fatal(err)
	}
	extend := storage.ExtendRequest{Leases: []storage.Extension{{Fence: claimed.Fences[0], For: time.Minute}}}
	if _, err := session.Extend(t.Context(), extend); err != nil {
		t.Fatal(err)
	}
	done := storage.Settle{Fence: claimed.Fences[2], Outcome: storage.Complete}
	for _, tx := range []storage.Tx{ // after these the server knows all scripts
		{Settles: []storage.Settle{done}}, {Inserts: []storage.Insert{insertOf("one")}},
	} {
		if _, err := session.ApplyOne(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
	}
	for name, action := range map[string]func() error{
		"claim": func() error { _, err := session.Claim(t.Context(), claimOf(1)); return err },
		"enqueue": func() error {
			_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{insertOf("more")}})
			return err
		},
		"settle": func() error {
			s := storage.Settle{Fence: claimed.Fences[1], Outcome: storage.Complete}
			_, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{s}})
			return err
		},
		"extend": func() error { _, err := session.Extend(t.Context(), extend); return err },
		"task":   func() error { _, err := store.Task(t.Context(), refOf("id9")); return err },
	} {
		counts := commands(t, server, func() {
			if err := action(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if got := counts["evalsha"]; got != 1 || counts["eval"] > 0 {
			t.Errorf("%s: got %d script calls by hash and %d by text, want 1 and 0", name, got, counts["eval"])
		}
	}
}

func TestIdleClaimCostsOneCommandAndWaitNone(t *testing.T) {
	server, store, session := started(t)
	fill(t, session, 1, nil)
	drain(t, session)
	idle := func() error {
		claimed, err := session.Claim(t.Context(), claimOf(10))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		return store.Wait(ctx, storage.WaitRequest{Queues: []string{"main"}, Since: claimed.Since})
	}
	for idle() == nil { // the wake-up of the task that fill inserted may still be on its way
		t.Log("a wake-up came late")
	}
	counts := commands(t, server, func() {
		if err := idle(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait: got %v, want a deadline exceeded", err)
		}
	})
	sent := counts["evalsha"] + counts["eval"] + counts["subscribe"] + counts["publish"] + counts["ping"]
	if sent != 1 {
		t.Errorf("an idle claim and a wait: got %v, want one script call", counts)
	}
}

// TestPlainVerbsCallFewCommands: the plain verbs call only the commands of the short ways in their
// scripts; a call that falls through to the general way calls more.
func TestPlainVerbsCallFewCommands(t *testing.T) {
	server, _, session := started(t)
	fill(t, session, 10, nil)
	var claimed storage.Claimed
	enqueue := func() error {
		_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{insertOf(storage.NewID())}})
		return err
	}
	claim := func() (err error) { claimed, err = session.Claim(t.Context(), claimOf(8)); return err }
	settle := func() error {
		txs := make([]storage.Tx, len(claimed.Fences))
		for i, f := range claimed.Fences {
			txs[i].Settles = []storage.Settle{{Fence: f, Outcome: storage.Complete}}
		}
		_, err := session.Apply(t.Context(), txs...)
		return err
	}
	for _, action := range []func() error{enqueue, claim} { // after these the lane is known
		if err := action(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		action func() error
		most   int
	}{{"enqueue", enqueue, 10}, {"settle", settle, 14}, {"claim", claim, 22}} {
		total := 0
		counts := commands(t, server, func() {
			if err := c.action(); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		})
		for command, n := range counts {
			switch command {
			case "info", "config|resetstat", "evalsha":
			// The listener calls these on a connection of its own, whenever that is made or hears of a queue.
			case "subscribe", "unsubscribe", "hello", "client|setname", "client|setinfo":
			default:
				total += n
			}
		}
		if total > c.most || total == 0 {
			t.Errorf("%s: got %d commands inside of its script, want 1 to %d: %v", c.name, total, c.most, counts)
		}
	}
}

// TestAThousandTasksTakeFewScriptCalls: as few as the table of costs in the package comment has.
func TestAThousandTasksTakeFewScriptCalls(t *testing.T) {
	server, _, session := started(t)
	for round := range 3 { // the server knows the lanes from the second round on, all scripts from the third
		thousand(t, server, session, round == 2)
	}
}

// thousand enqueues, claims, extends and completes a thousand tasks. If counted is true it checks
// the number of script calls.
func thousand(t *testing.T, server *testserver.Server, session *storage.Session, counted bool) {
	t.Helper()
	inserts := make([]storage.Tx, 1000)
	for i := range inserts {
		inserts[i].Inserts = []storage.Insert{insertOf(storage.NewID())}
	}
	var claimed storage.Claimed
	for _, c := range []struct {
		name   string
		want   int
		action func() error
	}{
		{"inserts", 4, func() error { _, err := session.Apply(t.Context(), inserts...); return err }},
		{"claim", 1, func() (err error) { claimed, err = session.Claim(t.Context(), claimOf(1000)); return err }},
		{"extend", 5, func() error {
			req := storage.ExtendRequest{}
			for _, f := range claimed.Fences {
				req.Leases = append(req.Leases, storage.Extension{Fence: f, For: time.Minute})
			}
			_, err := session.Extend(t.Context(), req)
			return err
		}},
		{"completions", 2, func() error {
			txs := make([]storage.Tx, len(claimed.Fences))
			for i, f := range claimed.Fences {
				txs[i].Settles = []storage.Settle{{Fence: f, Outcome: storage.Complete}}
			}
			_, err := session.Apply(t.Context(), txs...)
			return err
		}},
	} {
		counts := commands(t, server, func() {
			if err := c.action(); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		})
		if got := counts["evalsha"]; counted && (got != c.want || counts["eval"] > 0) {
			t.Errorf("%s: got %d script calls by hash and %d by text, want %d and 0", c.name, got, counts["eval"], c.want)
		}
	}
}

// used returns the server's memory in use, in bytes.
func used(t *testing.T, server *testserver.Server) int {
	t.Helper()
	for line := range strings.Lines(do(t, server, "INFO", "memory")) {
		if value, ok := strings.CutPrefix(line, "used_memory:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("INFO does not tell the memory in use")
	return 0
}

// TestMemoryOfATask: a task takes the memory that the package comment states.
func TestMemoryOfATask(t *testing.T) {
	const tasks = 25_000 // three quarters of the places in the tables of the server
	server, _, session := started(t)
	fill(t, session, 1000, nil) // so that the server has run each script
	drain(t, session)
	empty := used(t, server)
	for begin := 0; begin < tasks; begin += 1000 {
		txs := make([]storage.Tx, 1000)
		for i := range txs {
			in := insertOf(storage.NewID())
			in.Kind, in.Encoding, in.Payload = "send_welcome", "msgpack", make([]byte, 64)
			txs[i].Inserts = []storage.Insert{in}
		}
		if _, err := session.Apply(t.Context(), txs...); err != nil {
			t.Fatal(err)
		}
	}
	takes := func(most int) { // the buffers of a connection on a busy machine shrink within seconds
		t.Helper()
		testserver.Await(t, fmt.Sprint("a task takes at most ", most, " bytes"), func() bool {
			return (used(t, server)-empty)/tasks <= most
		})
	}
	takes(235)
	for range tasks / 1000 {
		if claimed, err := session.Claim(t.Context(), claimOf(1000)); err != nil || len(claimed.Tasks) != 1000 {
			t.Fatalf("claimed %d, %v, want 1000", len(claimed.Tasks), err)
		}
	}
	takes(345)
}

// TestManyVoidEntriesHoldNobodyUp: claims drop the void entries at the head of the line in parts, also
// if there are as many as possible.
func TestManyVoidEntriesHoldNobodyUp(t *testing.T) {
	const tasks, void, most = 12_000, 5900, 10
	server, _, session := started(t)
	fill(t, session, tasks, nil)
	m := startMeter(t, server)
	cancel(t, session, 0, void, m.step)
	if got := drain(t, session, m.step); got != tasks-void {
		t.Errorf("drained: got %d, want %d", got, tasks-void)
	}
	m.check(most) // of about a hundred, of which 12 drop void entries
}

// TestTheIDsOfRunnersReadNoRecords has a hundred records of runners.
func TestTheIDsOfRunnersReadNoRecords(t *testing.T) {
	server, store, session := started(t)
	want := make([]string, 100)
	for i := range want {
		want[i] = fmt.Sprintf("r%03d", i)
		info := storage.RunnerInfo{ID: want[i], For: time.Hour}
		if _, err := session.Extend(t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	read := commands(t, server, func() {
		var err error
		if got, err = storage.RunnerIDs(t.Context(), store); err != nil {
			t.Fatal(err)
		}
	})
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want the ids of all", got)
	}
	if read["hmget"]+read["hget"]+read["hgetall"] > 0 || read["zrangebyscore"] != 1 {
		t.Errorf("the server was asked for %v, want one range of ids", read)
	}
}
