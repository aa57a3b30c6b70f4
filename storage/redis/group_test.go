package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// claimed fills a queue with n tasks and claims all of them in one claim, as a group.
func claimed(t *testing.T, n int, lease time.Duration) (*Storage, *miniredis.Miniredis, storage.Claimed) {
	t.Helper()
	s, server := openMini(t)
	txs := make([]storage.Tx, n)
	for i := range txs {
		txs[i] = insertOf("mail", fmt.Sprintf("t%04d", i))
	}
	if _, err := s.Apply(t.Context(), storage.Call{}, txs...); err != nil {
		t.Fatal(err)
	}
	req := asking(callOf(1), n, "mail")
	req.Lease = lease
	c, err := s.claim(t.Context(), &req)
	if err != nil || len(c.Tasks) != n {
		t.Fatalf("claimed %d, %v, want %d", len(c.Tasks), err, n)
	}
	return s, server, c
}

// pendingOf lists the ids of the pending tasks, in pages of three.
func pendingOf(t *testing.T, s *Storage) []string {
	t.Helper()
	var ids []string
	query := storage.TasksQuery{Queue: "mail", State: storage.Pending, Limit: 3}
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

func settleOf(f storage.Fence, outcome storage.Outcome) storage.Tx {
	return storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: outcome}}}
}

// TestAGroupHasOneAlarm: a group is one member of leases, and yet its tasks are listed one by one.
func TestAGroupHasOneAlarm(t *testing.T) {
	s, server, c := claimed(t, 8, time.Minute)
	if alarms, err := server.SortedSet("midge:{mail}:leases"); err != nil || len(alarms) != 1 {
		t.Errorf("alarms of one claim: got %v, %v, want one", alarms, err)
	}
	extend := storage.ExtendRequest{Call: callOf(2), Leases: []storage.Extension{{Fence: c.Fences[4], For: time.Hour}}}
	if _, err := s.Extend(t.Context(), extend); err != nil {
		t.Fatal(err)
	}
	want := []string{"t0000", "t0001", "t0002", "t0003", "t0005", "t0006", "t0007", "t0004"}
	if got := pendingOf(t, s); !slices.Equal(got, want) {
		t.Errorf("pending: got %v, want %v", got, want)
	}
	for i, until := range map[int]time.Duration{4: time.Hour, 5: time.Minute} {
		task, err := s.Task(t.Context(), c.Tasks[i].Ref)
		if left := time.Until(task.LeaseUntil); err != nil || left > until || left < until-10*time.Second {
			t.Errorf("the lease of %s lasts %v, %v, want %v", task.ID, left, err, until)
		}
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Pending != 8 {
		t.Errorf("stats: got %d pending, %v, want 8", stats[0].Pending, err)
	}
}

// TestTasksOfOneDeadlineAreAllListed: the tasks of a group, and tasks outside of it whose leases were
// extended to the same deadline.
func TestTasksOfOneDeadlineAreAllListed(t *testing.T) {
	const n = 12
	s, server, c := claimed(t, n, time.Minute)
	server.SetTime(c.Now)
	x, err := s.Extend(t.Context(), storage.ExtendRequest{Leases: []storage.Extension{
		{Fence: c.Fences[1], For: time.Minute}, {Fence: c.Fences[5], For: time.Minute}, {Fence: c.Fences[n-1], For: time.Minute},
	}})
	if err != nil || len(x.Lost) > 0 {
		t.Fatalf("got %+v, %v", x, err)
	}
	want := make([]string, n)
	for i := range want {
		want[i] = c.Tasks[i].ID
	}
	if got := pendingOf(t, s); !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}

// TestAGroupIsForgottenWithItsLastTask: nothing is left of a group when its last task ends, in whichever
// way its tasks end.
func TestAGroupIsForgottenWithItsLastTask(t *testing.T) {
	s, server, c := claimed(t, 8, time.Minute)
	outcomes := []storage.Outcome{storage.Complete, storage.Fail, storage.Snooze, storage.Release, storage.Bury, storage.Cancel}
	var txs []storage.Tx
	for i, outcome := range outcomes {
		txs = append(txs, settleOf(c.Fences[i], outcome))
	}
	applied, err := s.Apply(t.Context(), callOf(2), txs...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range applied {
		if applied[i].Err != nil {
			t.Errorf("%s: %v", outcomes[i], applied[i].Err)
		}
	}
	extend := storage.ExtendRequest{Call: callOf(3), Leases: []storage.Extension{{Fence: c.Fences[6], For: time.Hour}}}
	if _, err = s.Extend(t.Context(), extend); err != nil {
		t.Fatal(err)
	}
	if !server.Exists("midge:{mail}:claims") {
		t.Error("the group is gone before its last task")
	}
	if _, err = s.Apply(t.Context(), callOf(4), settleOf(c.Fences[7], storage.Complete)); err != nil {
		t.Fatal(err)
	}
	if server.Exists("midge:{mail}:claims") {
		t.Error("the group is still known after its last task")
	}
	if got := pendingOf(t, s); !slices.Equal(got, []string{"t0006"}) {
		t.Errorf("pending: got %v, want the one that was extended", got)
	}
}

// TestAGroupThatExpiredIsClaimedAnewInItsOrder: over several claims, and without its tasks that were
// settled or extended.
func TestAGroupThatExpiredIsClaimedAnewInItsOrder(t *testing.T) {
	const n = 500
	s, _, c := claimed(t, n, time.Microsecond)
	extend := storage.ExtendRequest{Call: callOf(2), Leases: []storage.Extension{{Fence: c.Fences[1], For: time.Hour}}}
	if _, err := s.Extend(t.Context(), extend); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), callOf(3), settleOf(c.Fences[0], storage.Complete)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for seq := uint64(4); ; seq++ { // takes no task before all of them wait again
		none := asking(callOf(seq), 0, "mail")
		again, err := s.Claim(t.Context(), none)
		if err != nil {
			t.Fatal(err)
		}
		if !again.More {
			break
		}
	}
	for seq := uint64(100); len(got) < n-2; seq++ {
		again, err := s.Claim(t.Context(), asking(callOf(seq), n, "mail"))
		if err != nil || len(again.Tasks) == 0 {
			t.Fatalf("claimed %d of %d, %v", len(got), n-2, err)
		}
		for i := range again.Tasks {
			got = append(got, again.Tasks[i].ID)
		}
	}
	var want []string
	for i := 2; i < n; i++ {
		want = append(want, c.Tasks[i].ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("claimed again %d tasks from %s to %s, want %d from %s", len(got), got[0], got[len(got)-1], len(want), want[0])
	}
}

// TestACompletionInTwoCallsOfOneFlushHappensOnce: the second call gets an error that its lease
// is lost.
func TestACompletionInTwoCallsOfOneFlushHappensOnce(t *testing.T) {
	s, _, c := claimed(t, 8, time.Minute)
	var txs []storage.Tx
	for _, i := range []int{0, 1, 2, 1, 3, 0} {
		txs = append(txs, settleOf(c.Fences[i], storage.Complete))
	}
	if _, err := s.Apply(t.Context(), callOf(2), settleOf(c.Fences[7], storage.Complete)); err != nil {
		t.Fatal(err) // after this call the lane is known
	}
	applied, err := s.Apply(t.Context(), callOf(3), txs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, lost := range []bool{false, false, false, true, false, true} {
		if got := applied[i].Err != nil; got != lost {
			t.Errorf("completion %d: got %v, want lost %v", i, applied[i].Err, lost)
		}
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Pending != 3 || stats[0].Totals.Completed != 5 {
		t.Errorf("got %d pending and %d completed, %v, want 3 and 5", stats[0].Pending, stats[0].Totals.Completed, err)
	}
}

// TestWhatIsRecoveredWaitsInTheOrderOfItsClaims: recovered tasks wait in the order in which they were
// claimed, as a group, one by one or extended meanwhile, and whether the short way or the general way
// claimed them.
func TestWhatIsRecoveredWaitsInTheOrderOfItsClaims(t *testing.T) {
	for _, size := range []int{1, 3, 8} {
		for _, queues := range [][]string{{"mail"}, {"mail", "bulk"}} {
			for _, general := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d, %v, general %v", size, queues, general), func(t *testing.T) {
					testRecoveredOrder(newJumpingBy(t, general), size, queues)
				})
			}
		}
	}
}

func testRecoveredOrder(j *jumping, size int, queues []string) {
	j.Helper()
	var want []string
	var txs []storage.Tx
	for i := range 16 {
		id := fmt.Sprintf("t%02d", 99-i)
		txs, want = append(txs, insertOf("mail", id)), append(want, id)
	}
	j.apply(txs...)
	var fences []storage.Fence
	for len(fences) < len(want) {
		req := asking(j.call(), size, queues...)
		req.Lease = time.Duration(100-len(fences)) * time.Second // the leases of later claims end first
		c, err := j.s.Claim(j.Context(), req)
		if err != nil || len(c.Fences) == 0 {
			j.Fatal(c, err)
		}
		fences = append(fences, c.Fences...)
	}
	for _, i := range []int{7, 6, 2, 1} {
		req := storage.ExtendRequest{Call: j.call(), Leases: []storage.Extension{
			{Fence: fences[i+1], For: 110 * time.Second, Started: true}, {Fence: fences[i], For: 110 * time.Second},
		}}
		if _, err := j.s.Extend(j.Context(), req); err != nil {
			j.Fatal(err)
		}
	}
	task, err := j.s.Task(j.Context(), fences[1].Ref)
	if err != nil || task.Runner != "r" {
		j.Errorf("the runner is %q, %v", task.Runner, err)
	}
	j.at(3 * time.Minute)
	j.want("recovered", j.claim(), want...)
}

// TestATaskWhoseLeaseIsDamagedIsRecovered: it is recovered with the other tasks of its claim.
func TestATaskWhoseLeaseIsDamagedIsRecovered(t *testing.T) {
	const tasks = 40
	s, server, held := claimed(t, tasks, time.Minute)
	server.HSet("midge:{mail}:pending", held.Tasks[0].ID, "garbage")
	server.SetTime(held.Now.Add(time.Minute + time.Second))
	seen := make(map[string]bool)
	for range 3 {
		again, err := s.Claim(t.Context(), asking(storage.Call{}, tasks, "mail"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range again.Tasks {
			seen[again.Tasks[i].ID] = true
		}
	}
	if len(seen) != tasks {
		t.Errorf("%d tasks of %d were claimed again, the one whose lease was damaged: %t", len(seen), tasks, seen[held.Tasks[0].ID])
	}
}

// TestATaskOfAnyNameKeepsItsRank: each task keeps its rank in the claim of its group, also a task whose
// id is a name that Lua code may use for a count.
func TestATaskOfAnyNameKeepsItsRank(t *testing.T) {
	s, server := openMini(t)
	now := time.Now()
	server.SetTime(now)
	want := []string{"a", "n", "b", "c", "d"}
	for _, id := range want {
		if _, err := s.Apply(t.Context(), storage.Call{}, insertOf("mail", id)); err != nil {
			t.Fatal(err)
		}
	}
	req := asking(callOf(1), len(want), "mail")
	req.Lease = time.Minute
	c, err := s.claim(t.Context(), &req)
	if err != nil || len(c.Fences) != len(want) {
		t.Fatalf("claimed %d, %v, want %d", len(c.Fences), err, len(want))
	}
	var x storage.ExtendRequest
	for _, f := range slices.Backward(c.Fences) {
		x.Leases = append(x.Leases, storage.Extension{Fence: f, For: time.Minute})
	}
	if _, err := s.Extend(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	server.SetTime(now.Add(2 * time.Minute))
	req = asking(callOf(2), len(want), "mail")
	c, err = s.claim(t.Context(), &req)
	var got []string
	for i := range c.Tasks {
		got = append(got, c.Tasks[i].ID)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("recovered in the order %q, %v, want %q", got, err, want)
	}
}

// countsOfGroups returns the fields of claims that count tasks. A fence has random bytes, and can begin like the
// name of such a field.
func countsOfGroups(t *testing.T, server *miniredis.Miniredis) []string {
	t.Helper()
	fields, err := server.HKeys("midge:{mail}:claims")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(fields), func(field string) bool {
		fence, sign := strings.CutPrefix(field, countSign)
		return !sign || !slices.Contains(fields, fence)
	})
}

// TestADamagedCountOfAGroupHoldsNobody: the tasks of the group are counted anew.
func TestADamagedCountOfAGroupHoldsNobody(t *testing.T) {
	s, server, c := claimed(t, 6, time.Minute)
	session := storage.NewSession(s, testserver.Patience)
	for _, field := range countsOfGroups(t, server) {
		server.HSet("midge:{mail}:claims", field, "")
	}
	tx := storage.Tx{Settles: []storage.Settle{{Fence: c.Fences[0], Outcome: storage.Fail, Delay: time.Hour}}}
	if _, err := session.ApplyOne(t.Context(), tx); err != nil {
		t.Errorf("a settle: got error %v", err)
	}
	server.SetTime(time.Now().Add(2 * time.Minute))
	if _, err := session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}},
	}); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Pending != 0 || stats[0].Waiting != 5 {
		t.Errorf("after the leases: got %+v, %v, want 5 waiting", stats, err)
	}
}
