package redis

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestWhatWasFoundIsForgottenInASecond: if a failover brings the tasks of a line back, the number
// lines is the same as before. So claims must not rely on that number for long.
func TestWhatWasFoundIsForgottenInASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l looked
		l.note("mail", []string{"a", "b"}, "7")
		for _, c := range []struct {
			queue string
			kinds []string
			want  string
		}{
			{"mail", []string{"a", "b"}, "7"}, {"mail", []string{"a"}, ""}, {"news", []string{"a", "b"}, ""},
		} {
			if got := l.at(c.queue, c.kinds); got != c.want {
				t.Errorf("%s, %v: got %q, want %q", c.queue, c.kinds, got, c.want)
			}
		}
		<-time.After(lookedFresh + 1) // virtual
		if got := l.at("mail", []string{"a", "b"}); got != "" {
			t.Errorf("after a second: got %q, want it forgotten", got)
		}
	})
}

// declining inserts tasks of a kind into mail, and declines them.
func declining(t *testing.T, session *storage.Session, kind string, n int) {
	t.Helper()
	var inserts, settles []storage.Tx
	for i := range n {
		tx := insertOf("mail", fmt.Sprintf("%s-%d", kind, i))
		tx.Inserts[0].Kind = kind
		inserts = append(inserts, tx)
	}
	if _, err := session.Apply(t.Context(), inserts...); err != nil {
		t.Fatal(err)
	}
	claimed, err := session.Claim(t.Context(), claimOfKind("other", n))
	if err != nil || len(claimed.Fences) != n {
		t.Fatalf("claimed %d, %v, want %d", len(claimed.Fences), err, n)
	}
	for _, f := range claimed.Fences {
		settles = append(settles, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Decline}}})
	}
	if _, err := session.Apply(t.Context(), settles...); err != nil {
		t.Fatal(err)
	}
}

func claimOfKind(kind string, n int) storage.ClaimRequest {
	return storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: n, Lease: time.Minute, Kinds: []string{kind},
	}
}

// TestAClaimEndsABatchOfUnknownKinds, however many kinds they are of.
func TestAClaimEndsABatchOfUnknownKinds(t *testing.T) {
	s, server := openMini(t)
	now := time.Now()
	server.SetTime(now)
	session := storage.NewSession(s, testserver.Patience)
	const kinds, each = 20, 15
	for k := range kinds {
		declining(t, session, fmt.Sprintf("kind%d", k), each)
	}
	ended := 0
	const step = 9 * time.Minute // shorter than storage.JumpAfter
	for range 26 * time.Hour / step {
		now = now.Add(step)
		server.SetTime(now)
		claimed, err := session.Claim(t.Context(), claimOfKind("other", 1))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(claimed.Ended); n > 100 {
			t.Fatalf("%d ended by one claim, want a batch of 100 at most", n)
		}
		ended += len(claimed.Ended)
	}
	if ended != kinds*each {
		t.Errorf("%d ended, want %d", ended, kinds*each)
	}
}

// TestDamagedNumbersOfLinesStopNobody: claims count the tasks of the lines anew.
func TestDamagedNumbersOfLinesStopNobody(t *testing.T) {
	for key, fields := range map[string][]string{"meta": {"lines", "looks"}, "side": {"l:knews"}} {
		for _, field := range fields {
			for _, value := range []string{"", "x"} {
				s, server := openMini(t)
				now := time.Now()
				server.SetTime(now)
				session := storage.NewSession(s, testserver.Patience)
				declining(t, session, "news", 3)
				if value == "" {
					server.HDel("midge:{mail}:"+key, field)
				} else {
					server.HSet("midge:{mail}:"+key, field, value)
				}
				got := 0
				for d := time.Duration(0); d < 3*time.Hour && got < 3; d += 5 * time.Minute {
					claimed, err := session.Claim(t.Context(), claimOfKind("news", 1))
					if err != nil {
						t.Fatal(err)
					}
					got += len(claimed.Tasks)
					now = now.Add(5 * time.Minute)
					server.SetTime(now)
				}
				if got < 3 {
					t.Errorf("%s %s is %q: %d of 3 declined tasks claimed", key, field, value, got)
				}
			}
		}
	}
}

// TestAMemberThatStandsForNoDeclinedTaskIsSetApart: wherever in the set it stands, and under its own
// name.
func TestAMemberThatStandsForNoDeclinedTaskIsSetApart(t *testing.T) {
	const key, queue = "midge:{mail}:lines", "mail"
	zeros := strings.Repeat("\x00", 6)
	s, server := openMini(t)
	now := time.Now()
	server.SetTime(now)
	session := storage.NewSession(s, testserver.Patience)
	declining(t, session, "news", 3)
	members, err := server.ZMembers(key)
	if err != nil || len(members) != 3 {
		t.Fatal(members, err)
	}
	strays := []string{
		"foreign", "a foreign one", "\x00nobody", "news", "k", "k\x00nobody", "knews", "knews\x00", "knews\x00\x09", "knews\x00\x09short",
		"knews\x00\x30" + members[0][7:], "knews\x00\xff" + members[0][7:], members[0][:13] + "\x7f" + members[0][14:],
		"knews\x00\x05" + zeros + "\x01" + zeros + "\x01nobody", "kolds" + members[1][5:], "pnews" + members[1][5:],
		members[1][1:], "knews\x00\x08" + members[1][7:],
	}
	for _, m := range strays {
		if _, err := server.ZAdd(key, 0, m); err != nil {
			t.Fatal(err)
		}
	}
	for range 12 * 12 { // in half a day
		now = now.Add(5 * time.Minute)
		server.SetTime(now)
		if claimed, err := session.Claim(t.Context(), claimOfKind("other", 1)); err != nil || len(claimed.Tasks)+len(claimed.Ended) > 0 {
			t.Fatal(claimed, err)
		}
	}
	var got []string
	for range 5 {
		claimed, err := session.Claim(t.Context(), claimOfKind("news", 2))
		if err != nil {
			t.Fatal(err)
		}
		for i := range claimed.Tasks {
			got = append(got, claimed.Tasks[i].ID)
			done := storage.Settle{Fence: claimed.Fences[i], Outcome: storage.Complete}
			if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{done}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !slices.Equal(got, []string{"news-0", "news-1", "news-2"}) {
		t.Errorf("claimed %v, want each task once", got)
	}
	for range 30 * 12 {
		now = now.Add(5 * time.Minute)
		server.SetTime(now)
		if _, err := session.Claim(t.Context(), claimOfKind("other", 1)); err != nil {
			t.Fatal(err)
		}
	}
	damaged, _ := server.HKeys("midge:{mail}:damaged")
	slices.Sort(strays)
	if slices.Sort(damaged); !slices.Equal(damaged, strays) {
		t.Errorf("set apart are\n%q, want\n%q", damaged, strays)
	}
	stats, err := s.Stats(t.Context(), queue)
	if err != nil || stats[0].Waiting != 0 || stats[0].Damaged != int64(len(strays)) || len(stats[0].Declined) > 0 {
		t.Errorf("got %+v, %v, want none waiting and %d damaged", stats[0], err, len(strays))
	}
}

// TestAListingPassesMembersOfNoKind: a page that ended at such a member would lead back to the pages before it.
func TestAListingPassesMembersOfNoKind(t *testing.T) {
	const key = "midge:{mail}:lines"
	s, server := openMini(t)
	declining(t, storage.NewSession(s, testserver.Patience), "news", 2)
	members, err := server.ZMembers(key)
	if err != nil || len(members) != 2 {
		t.Fatal(members, err)
	}
	for _, m := range members { // they sort behind the line of news and the lines of partitions
		if _, err := server.ZAdd(key, 0, "q"+m[1:]); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	query := storage.TasksQuery{Queue: "mail", State: storage.Waiting, Limit: 1}
	for range 10 {
		page, err := s.Tasks(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Tasks {
			got = append(got, page.Tasks[i].ID)
		}
		if query.After = page.Next; page.Next == "" {
			break
		}
	}
	if !slices.Equal(got, []string{"news-0", "news-1"}) || query.After != "" {
		t.Errorf("listed %v, next %q, want each task once", got, query.After)
	}
}

// TestADeclinedTaskOfAnotherScoreIsPutRight: Redis sorts members by name only if all scores are the
// same.
func TestADeclinedTaskOfAnotherScoreIsPutRight(t *testing.T) {
	s, server := openMini(t)
	now := time.Now()
	server.SetTime(now)
	session := storage.NewSession(s, testserver.Patience)
	declining(t, session, "news", 3)
	declining(t, session, "zoo", 1)
	members, _ := server.ZMembers("midge:{mail}:lines")
	for score, m := range map[float64]string{-1: members[3], 7: members[0]} {
		if _, err := server.ZAdd("midge:{mail}:lines", score, m); err != nil {
			t.Fatal(err)
		}
	}
	for range 24 {
		now = now.Add(5 * time.Minute)
		server.SetTime(now)
		if _, err := session.Claim(t.Context(), claimOfKind("other", 1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range members {
		if score, err := server.ZScore("midge:{mail}:lines", m); err != nil || score != 0 {
			t.Errorf("%q has the score %v, %v, want 0", m, score, err)
		}
	}
}

// TestATaskThatAWrongClockDeclinedKeepsNoneFromDying: tasks behind it that have waited long enough die.
func TestATaskThatAWrongClockDeclinedKeepsNoneFromDying(t *testing.T) {
	s, server := openMini(t)
	now := time.Now()
	server.SetTime(now)
	session := storage.NewSession(s, testserver.Patience)
	declining(t, session, "news", 300)
	members, _ := server.ZMembers("midge:{mail}:lines")
	for _, m := range members[10:260] { // set moments of a clock that is a year ahead
		at := len("knews") + 2 + placeSize
		r := reader{rest: m[at:]}
		moment := binary.BigEndian.AppendUint64(nil, uint64(r.number(placeSize)+(365*24*time.Hour).Microseconds()))
		if _, err := server.ZRem("midge:{mail}:lines", m); err != nil {
			t.Fatal(err)
		}
		if _, err := server.ZAdd("midge:{mail}:lines", 0, m[:at]+string(moment[8-placeSize:])+m[at+placeSize:]); err != nil {
			t.Fatal(err)
		}
	}
	ahead := now.Add(365 * 24 * time.Hour).UnixMicro()
	server.HSet("midge:{mail}:meta", "looks", fmt.Sprint(ahead))
	server.HSet("midge:{mail}:side", "l:knews", string(binary.BigEndian.AppendUint64(nil, uint64(ahead))[8-placeSize:])+"300")
	for range 27 * 12 {
		now = now.Add(5 * time.Minute)
		server.SetTime(now)
		if _, err := session.Claim(t.Context(), claimOfKind("other", 1)); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Dead != 50 || stats[0].Waiting != 250 {
		t.Errorf("got %+v, %v, want 50 dead and 250 that wait", stats[0], err)
	}
}

// TestManyDeclinedSuspectsHoldNobodyUp: claims take the tasks behind them, and each suspect when it is
// its turn.
func TestManyDeclinedSuspectsHoldNobodyUp(t *testing.T) {
	const suspects = 250
	s, server := openMini(t)
	session := storage.NewSession(s, testserver.Patience)
	want := decliningSuspects(t, session, server, "news", suspects)
	declining(t, session, "news", 2)
	want = append(want, "news-0", "news-1")
	if got := waitingIn(t, s, "mail"); !slices.Equal(got, want) {
		t.Errorf("listed %v, want them as they were declined", got)
	}
	claimed, err := session.Claim(t.Context(), claimOfKind("news", 10))
	if err != nil || len(claimed.Tasks) != 2 || claimed.More {
		t.Errorf("claimed %d, more %v, %v, want the two behind the suspects and no more", len(claimed.Tasks), claimed.More, err)
	}
	req := claimOfKind("news", 10)
	req.Suspect = true
	for i := range 3 {
		claimed, err := session.Claim(t.Context(), req)
		if err != nil || len(claimed.Tasks) != 1 || claimed.Tasks[0].ID != want[i] {
			t.Errorf("with a suspect: claimed %v, %v, want %s", claimed.Tasks, err, want[i])
		}
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Waiting != suspects-3 || len(stats[0].Declined) != 1 || stats[0].Declined[0].Tasks != suspects-3 {
		t.Errorf("got %+v, %v, want %d waiting", stats, err, suspects-3)
	}
}

// decliningSuspects declines so many suspects of a kind in mail, and returns their ids in that order.
func decliningSuspects(
	t *testing.T, session *storage.Session, server *miniredis.Miniredis, kind string, n int,
) (ids []string) {
	t.Helper()
	now := time.Now()
	server.SetTime(now)
	for i := range n {
		tx := insertOf("mail", fmt.Sprintf("suspect-%03d", i))
		tx.Inserts[0].Kind, tx.Inserts[0].CrashLimit = kind, 2
		if _, err := session.ApplyOne(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
	}
	if claimed, err := session.Claim(t.Context(), claimOfKind("other", n)); err != nil || len(claimed.Tasks) != n {
		t.Fatal(len(claimed.Tasks), err)
	}
	server.SetTime(now.Add(5 * time.Minute)) // their leases expire, so that each of them has crashed once
	req := claimOfKind("other", 1)
	req.Suspect = true
	for len(ids) < n {
		claimed, err := session.Claim(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range claimed.Fences {
			decline := storage.Settle{Fence: f, Outcome: storage.Decline}
			if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{decline}}); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, f.ID)
		}
	}
	return ids
}

// waitingIn lists the ids of the waiting tasks of a queue, page after page.
func waitingIn(t *testing.T, s *Storage, queue string) (ids []string) {
	t.Helper()
	query := storage.TasksQuery{Queue: queue, State: storage.Waiting, Limit: 40}
	for more := true; more; more = query.After != "" {
		page, err := s.Tasks(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Tasks {
			ids = append(ids, page.Tasks[i].ID)
		}
		query.After = page.Next
	}
	return ids
}
