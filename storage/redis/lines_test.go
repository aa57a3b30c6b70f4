package redis

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestWhatWasFoundIsForgottenInASecond: the number lines stays where a failover brings the tasks of a
// line back, so that it alone must not keep claims from them.
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
		time.Sleep(lookedFresh + 1)
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
	session := storage.NewSession(s, 0)
	const kinds, each = 20, 15
	for k := range kinds {
		declining(t, session, fmt.Sprintf("kind%d", k), each)
	}
	ended := 0
	for range 26 * 60 * 2 {
		now = now.Add(30 * time.Second)
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

// TestDamagedNumbersOfLinesStopNobody: they are found out anew.
func TestDamagedNumbersOfLinesStopNobody(t *testing.T) {
	for key, fields := range map[string][]string{"meta": {"lines", "looks"}, "side": {"k:news"}} {
		for _, field := range fields {
			for _, value := range []string{"", "x"} {
				s, server := openMini(t)
				now := time.Now()
				server.SetTime(now)
				session := storage.NewSession(s, 0)
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
