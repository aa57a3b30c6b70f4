package redis

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/storage"
)

// mixture inserts tasks of several priorities into a queue, some to be kept and some with a unique key.
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

// TestTheShortClaimIsTheGeneralOne: shortclaim.lua takes and leaves the same tasks as claim.lua, and returns
// the same answer to a repeat.
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

// claimedBy returns the result of a claim of n tasks, and the state of the queue after their completion,
// as text.
func claimedBy(t *testing.T, short bool, n int, queues []storage.ClaimQueue) string {
	t.Helper()
	s, server := openMiniBy(t, !short)
	mixture(t, s, "mail", 45)
	mixture(t, s, "bulk", 48)
	mixture(t, s, "few", 4)
	mixture(t, s, "none", 1)
	if _, err := s.Claim(t.Context(), asking(callOf(1), 1, "none", "mail", "bulk", "few")); err != nil {
		t.Fatal(err)
	}
	req := asking(callOf(2), n)
	req.Queues, req.Start, req.Ahead = queues, n-1, 1
	if !takesShort(t, s, &req, false) {
		t.Errorf("%v: left to the general one", queues)
	}
	first, err := s.Claim(t.Context(), req)
	if err != nil || len(first.Tasks) != n {
		t.Fatalf("got %d tasks, %v, want %d", len(first.Tasks), err, n)
	}
	idle := ""
	for _, q := range queues {
		idle += fmt.Sprint(server.Exists("midge:{" + q.Name + "}:idle"))
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
	for i := range stats {
		stats[i].Oldest = 0 // the two queues began at different moments
	}
	return fmt.Sprint(taken(t, &first, req.Lease), first.More, idle, stats)
}

// taken returns claimed tasks as text without their times and versions, which it checks.
func taken(t *testing.T, c *storage.Claimed, lease time.Duration) string {
	t.Helper()
	text := ""
	for _, task := range c.Tasks {
		if task.LeaseUntil.Sub(c.Now) != lease || task.Version < c.Now.UnixMicro() {
			t.Errorf("%s: version %d until %v, claimed at %v", task.Ref, task.Version, task.LeaseUntil, c.Now)
		}
		task.Version, task.Created, task.Claimed, task.LeaseUntil = 0, time.Time{}, time.Time{}, time.Time{}
		text += fmt.Sprintf("%+v\n", task)
	}
	return text
}

// takesShort reports whether a claim goes the short way. If happens is true it carries out that claim.
func takesShort(t *testing.T, s *Storage, req *storage.ClaimRequest, happens bool) bool {
	t.Helper()
	files := []string{"pack", "wake", "lease", "shortclaim"}
	source, err := sourceOf(files, constants(s.limits, ways{}), make(map[string]string))
	if err != nil {
		t.Fatal(err)
	}
	if !happens { // it stops before its first write
		source = strings.Replace(source, "local stamp", "if true then return {} end local stamp", 1)
	}
	g := &group{queues: req.Queues}
	keys, args := s.claimArgs(req, ask{group: g, most: req.Most(), start: req.Start, suspect: leave})
	if req.Suspect {
		keys, args = s.claimArgs(req, ask{group: g, most: req.Most(), start: req.Start, suspect: give})
	}
	names := make([]string, len(keys))
	for i := range keys {
		names[i] = fmt.Sprint(keys[i])
	}
	reply, err := s.client.Eval(t.Context(), source, names, args...).Result()
	return err == nil && reply != nil
}

// plainWorld opens a storage with two queues of five plain tasks, and claims one task, so that the lane
// of claims is known.
func plainWorld(t *testing.T) (*Storage, *miniredis.Miniredis) {
	t.Helper()
	s, server := openMini(t)
	mixture(t, s, "mail", 5)
	mixture(t, s, "bulk", 5)
	if _, err := s.Claim(t.Context(), asking(callOf(1), 1, "mail", "bulk")); err != nil {
		t.Fatal(err)
	}
	return s, server
}

// TestTheShortClaimLeavesWhatIsNotPlain: it leaves such a call to the general way and writes nothing.
func TestTheShortClaimLeavesWhatIsNotPlain(t *testing.T) {
	type spoil = func(s *Storage, server *miniredis.Miniredis)
	meta := func(field, value string) spoil {
		return func(_ *Storage, server *miniredis.Miniredis) { server.HSet("midge:{mail}:meta", field, value) }
	}
	startOnly := func(_ *Storage, server *miniredis.Miniredis) {
		record := []byte(server.HGet("midge:{mail}:tasks", "t2"))
		record[2]++
		server.HSet("midge:{mail}:tasks", "t2", string(record))
	}
	cases := map[string]spoil{
		"paused": func(s *Storage, _ *miniredis.Miniredis) {
			_ = s.Configure(t.Context(), storage.Call{}, "mail", storage.Settings{Pause: &storage.Pause{On: true}})
		},
		"damaged":              func(_ *Storage, server *miniredis.Miniredis) { server.HSet("midge:{mail}:tasks", "t2", "?") },
		"missing":              func(_ *Storage, server *miniredis.Miniredis) { server.HDel("midge:{mail}:tasks", "t2") },
		"only to start":        startOnly,
		"something due":        meta("soon", "1"),
		"what is due unknown":  func(_ *Storage, server *miniredis.Miniredis) { server.HDel("midge:{mail}:meta", "soon") },
		"a mark of no number":  meta("mark", "x"),
		"a mark of long ago":   meta("mark", "1"),
		"a mark far too great": meta("mark", strconv.Itoa(never+1)),
	}
	for _, name := range []string{"meta", "tasks", "pending", "waiting", "line", "leases", "claims"} {
		cases[name+" of another type"] = func(_ *Storage, server *miniredis.Miniredis) {
			server.Del("midge:{mail}:" + name)
			_ = server.Set("midge:{mail}:"+name, "of another type")
		}
	}
	for name, action := range cases {
		t.Run(name, func(t *testing.T) {
			s, server := plainWorld(t)
			action(s, server)
			before := server.Dump()
			for _, queues := range [][]string{{"mail"}, {"bulk", "mail"}} {
				req := asking(callOf(2), 10, queues...)
				req.Start, req.Ahead = 0, 10
				if taken := takesShort(t, s, &req, true); taken || server.Dump() != before {
					t.Errorf("%v: taken %v, and\n%s\nwas\n%s", queues, taken, server.Dump(), before)
				}
			}
		})
	}
}

// TestTheShortClaimIsTakenBesideOthers: claims of plain tasks go the short way although their queue has
// other tasks too.
func TestTheShortClaimIsTakenBesideOthers(t *testing.T) {
	s, server := plainWorld(t)
	later := insertOf("mail", "later")
	later.Inserts[0].Delay = time.Hour
	large := insertOf("mail", "large")
	large.Inserts[0].Payload = make([]byte, 2*largePayload)
	window := insertOf("mail", "window")
	window.Inserts[0].Unique = storage.Unique{Mode: storage.UniqueWindow, Key: "k", For: time.Hour}
	c, err := s.Claim(t.Context(), asking(callOf(2), 2, "bulk"))
	if err != nil || len(c.Fences) != 2 {
		t.Fatal(c, err)
	}
	cancel := storage.Tx{Changes: []storage.Change{{Ref: storage.Ref{Queue: "mail", ID: "last"}, Cancel: true}}}
	for _, tx := range []storage.Tx{
		later, large, window, insertOf("mail", "last"), cancel,
		settleOf(c.Fences[0], storage.Bury), settleOf(c.Fences[1], storage.Fail),
	} {
		if applied, err := s.Apply(t.Context(), storage.Call{}, tx); err != nil || applied[0].Err != nil {
			t.Fatal(applied, err)
		}
	}
	req := asking(callOf(3), 4, "mail", "bulk")                                   // the void entry comes behind
	if _, err := s.Claim(t.Context(), asking(callOf(3), 1, "bulk")); err != nil { // the failed one is due
		t.Fatal(err)
	}
	req.Call = callOf(4)
	if !takesShort(t, s, &req, true) {
		t.Errorf("it is left to the general one:\n%s", server.Dump())
	}
}

// TestAShortClaimKeepsTheTurnOfASuspect: it takes the tasks that come before, and leaves the suspect.
func TestAShortClaimKeepsTheTurnOfASuspect(t *testing.T) {
	s, server := plainWorld(t)
	for i := range 20 {
		if _, err := s.Apply(t.Context(), storage.Call{}, insertOf("line", fmt.Sprint("t", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Claim(t.Context(), asking(callOf(2), 1, "line")); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ZAdd("midge:{line}:suspects", 10.5, "t9"); err != nil { // behind nine others
		t.Fatal(err)
	}
	server.HSet("midge:{line}:meta", "odd", "1")
	for n, want := range map[int]bool{5: true, 9: true, 10: false, 30: false} {
		req := asking(callOf(3), n, "line")
		req.Start, req.Suspect = n, true
		if got := takesShort(t, s, &req, false); got != want {
			t.Errorf("%d tasks before or with a suspect: short %v, want %v", n, got, want)
		}
		if req.Suspect = false; !takesShort(t, s, &req, false) {
			t.Errorf("%d tasks where no suspect is wanted: left to the general one", n)
		}
	}
}
