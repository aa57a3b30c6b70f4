package redis

import (
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/storage"
)

// mixture inserts plain tasks of some priorities, with and without what hangs on them.
func mixture(t *testing.T, s *Storage, queue string, n int) {
	t.Helper()
	for i := range n {
		tx := insertOf(queue, fmt.Sprintf("t%d", i))
		in := &tx.Inserts[0]
		in.Priority = i%4 - 1
		if i%5 == 0 {
			in.Keep.For = time.Hour
		}
		if i%7 == 0 {
			in.Unique = storage.Unique{Mode: storage.UniqueLife, Key: in.Ref.ID}
		}
		if _, err := s.Apply(t.Context(), storage.Call{}, tx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheShortClaimIsTheGeneralOne: what grab.lua and glean.lua take, leave and answer to
// a repeat is what claim.lua does.
func TestTheShortClaimIsTheGeneralOne(t *testing.T) {
	several := func(most ...int) (queues []storage.ClaimQueue) {
		for i, name := range []string{"mail", "none", "bulk", "few"} {
			queues = append(queues, storage.ClaimQueue{Name: name, Max: most[i]})
		}
		return queues
	}
	for n, queues := range map[int][]storage.ClaimQueue{
		1: several(0, 0, 0, 0), 2: {{Name: "mail"}}, 3: several(1, 0, 2, 9), 4: {{Name: "mail"}},
		5: several(3, 1, 2, 0), 9: several(2, 2, 3, 0), 20: several(8, 8, 8, 8), 40: {{Name: "mail"}},
		43: {{Name: "mail", Max: 43}}, 60: several(0, 0, 0, 0), 95: several(0, 0, 0, 0),
	} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			short, general := claimedBy(t, true, n, queues), claimedBy(t, false, n, queues)
			if short != general {
				t.Errorf("the short one took\n%s\nand the general one\n%s", short, general)
			}
		})
	}
}

// claimedBy tells what a claim of n tasks comes to, and what their completion leaves.
func claimedBy(t *testing.T, short bool, n int, queues []storage.ClaimQueue) string {
	t.Helper()
	s, server := openMini(t)
	mixture(t, s, "mail", 45)
	mixture(t, s, "bulk", 48)
	mixture(t, s, "few", 4)
	if _, err := s.Claim(t.Context(), asking(callOf(1), 1, "mail")); err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		s.calm.saw(q.Name, short)
	}
	req := asking(callOf(2), n)
	req.Queues, req.Start, req.Ahead = queues, n-1, 1
	first, err := s.Claim(t.Context(), req)
	if err != nil || len(first.Tasks) != n || !s.calm.are(queues) {
		t.Fatalf("got %d tasks, %v, want %d", len(first.Tasks), err, n)
	}
	awaited := ""
	for _, q := range queues {
		awaited += server.HGet("midge:{"+q.Name+"}:meta", "awaited")
	}
	again, err := s.Claim(t.Context(), req)
	if err != nil || !reflect.DeepEqual(again.Tasks, first.Tasks) || !reflect.DeepEqual(again.Fences, first.Fences) {
		t.Errorf("repeated: got %v, %v, want %v", again.Tasks, err, first.Tasks)
	}
	var txs []storage.Tx
	for _, f := range first.Fences {
		txs = append(txs, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}})
	}
	if _, err := s.Apply(t.Context(), storage.Call{}, txs...); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats(t.Context(), "mail", "bulk", "few")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(taken(t, &first, req.Lease), first.More, awaited, stats)
}

// taken tells all of claimed tasks but the times, which it checks.
func taken(t *testing.T, c *storage.Claimed, lease time.Duration) string {
	t.Helper()
	text := ""
	for _, task := range c.Tasks {
		if task.LeaseUntil.Sub(c.Now) != lease || task.Version < c.Now.UnixMicro() {
			t.Errorf("%s: version %d until %v, claimed at %v", task.Ref, task.Version, task.LeaseUntil, c.Now)
		}
		task.Version, task.Created, task.LeaseUntil = 0, time.Time{}, time.Time{}
		text += fmt.Sprintf("%+v\n", task)
	}
	return text
}

// TestTheShortClaimLeavesWhatIsNotPlain to the general one, having written nothing.
func TestTheShortClaimLeavesWhatIsNotPlain(t *testing.T) {
	type spoil = func(s *Storage, server *miniredis.Miniredis)
	cases := map[string]spoil{
		"scheduled": func(s *Storage, _ *miniredis.Miniredis) {
			tx := insertOf("mail", "later")
			tx.Inserts[0].Delay = time.Hour
			_, _ = s.Apply(t.Context(), storage.Call{}, tx)
		},
		"paused": func(s *Storage, _ *miniredis.Miniredis) {
			_ = s.Configure(t.Context(), storage.Call{}, "mail", storage.Settings{Pause: &storage.Pause{On: true}})
		},
		"damaged": func(_ *Storage, server *miniredis.Miniredis) { server.HSet("midge:{mail}:tasks", "t0", "?") },
		"missing": func(_ *Storage, server *miniredis.Miniredis) { server.HDel("midge:{mail}:tasks", "t0") },
		"a window": func(_ *Storage, server *miniredis.Miniredis) {
			_, _ = server.ZAdd("midge:{mail}:windows", 1, "w")
		},
		"an expired lease": func(_ *Storage, server *miniredis.Miniredis) {
			_, _ = server.ZAdd("midge:{mail}:leases", 1, "gone")
		},
		"unused for a day": func(_ *Storage, server *miniredis.Miniredis) {
			server.HSet("midge:{mail}:meta", "touched", "1")
		},
	}
	for _, name := range []string{"meta", "tasks", "pending", "waiting", "line", "leases", "claims"} {
		cases[name+" of another type"] = func(_ *Storage, server *miniredis.Miniredis) {
			server.Del("midge:{mail}:" + name)
			_ = server.Set("midge:{mail}:"+name, "of another type")
		}
	}
	for name, act := range cases {
		t.Run(name, func(t *testing.T) {
			s, server := openMini(t)
			mixture(t, s, "mail", 5)
			mixture(t, s, "bulk", 5)
			if _, err := s.Claim(t.Context(), asking(callOf(1), 1, "mail")); err != nil {
				t.Fatal(err)
			}
			act(s, server)
			before := server.Dump()
			req := storage.ClaimRequest{Call: callOf(2), Runner: "r", Lease: time.Minute}
			for _, queues := range [][]storage.ClaimQueue{{{Name: "mail"}}, {{Name: "bulk"}, {Name: "mail"}}} {
				sc, keys, args := s.grabArgs(&req, ask{group: &group{queues: queues}, most: 10, start: 10})
				reply, err := sc.run(t.Context(), s.client, keys, args...)
				if after := server.Dump(); err == nil || after != before {
					t.Errorf("got %q, %v, and\n%s\nwas\n%s", reply, err, after, before)
				}
			}
		})
	}
}

// TestAShortClaimInVainIsNotTriedAtOnce: in a queue that is calm at every other claim each
// would cost two calls.
func TestAShortClaimInVainIsNotTriedAtOnce(t *testing.T) {
	var c calm
	mail, both := []storage.ClaimQueue{{Name: "mail"}}, []storage.ClaimQueue{{Name: "mail"}, {Name: "bulk"}}
	c.saw("mail", true)
	if !c.are(mail) {
		t.Error("a queue that was calm is not tried")
	}
	c.vain(mail)
	for i := range calmAgain {
		c.saw("mail", true)
		if c.are(mail) {
			t.Errorf("tried again after %d claims", i+1)
		}
	}
	c.saw("mail", true)
	if !c.are(mail) || c.are(both) {
		t.Errorf("got %v and %v beside another queue, want true and false", c.are(mail), c.are(both))
	}
	c.saw("bulk", true)
	if both[1].Max = 5; !c.are(both) {
		t.Error("two queues that were calm are not tried")
	}
	if both[1].Max = -1; c.are(both) {
		t.Error("tried where nothing may be taken from a queue")
	}
}

// A process that claims from queues that come and go remembers a bounded number of them.
func TestCalmQueuesAreBounded(t *testing.T) {
	var c calm
	name := strconv.Itoa
	for i := range 3 * calmMost {
		c.saw(name(i), true)
		if c.queues[name(i)] <= 0 || len(c.queues) > calmMost {
			t.Fatalf("queue %d: calm %d, %d remembered, want at most %d", i, c.queues[name(i)], len(c.queues), calmMost)
		}
	}
	for i := range calmMost { // what is remembered already takes no room
		c.vain([]storage.ClaimQueue{{Name: name(3*calmMost - 1 - i)}})
	}
	if len(c.queues) != calmMost {
		t.Errorf("%d remembered, want %d", len(c.queues), calmMost)
	}
}
