package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// TestProgressIsShownInEachEncoding checks tasks of both encodings, because jobs store progress as JSON in
// either: the page has a bar, and the download has the value.
func TestProgressIsShownInEachEncoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redact, err := access.Redact("progress.secret")
		if err != nil {
			t.Fatal(err)
		}
		s, store := inserted(t, dashboard.Config{Redact: redact},
			storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "json"}},
			storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "msgpack"}, Encoding: "msgpack", Payload: []byte{0x80}})
		session := storage.NewSession(store, 0)
		claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 2, Lease: time.Hour,
		})
		if err != nil || len(claimed.Fences) != 2 {
			t.Fatalf("claimed %d tasks, %v; want two", len(claimed.Fences), err)
		}
		for progress, texts := range map[string][]string{
			`{"done":5,"of":60,"secret":7}`: {`<progress max="100" value="8">`, "5 of 60, 8.3 %, about 11 m left"},
			`{"step":"copy"}`:               {"copy"},
		} {
			req := storage.ExtendRequest{}
			for _, f := range claimed.Fences {
				req.Leases = append(req.Leases, storage.Extension{Fence: f, For: time.Hour, Progress: []byte(progress)})
			}
			if _, err := session.Extend(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			at := claimed.Tasks[0].Claimed.Add(time.Minute)
			time.Sleep(time.Until(at)) // virtual
			for _, id := range []string{"json", "msgpack"} {
				s.shows("/r/mail/"+id, texts...)
				w := s.do(request(http.MethodGet, "/r/mail/"+id+"/progress", ""))
				want := strings.Replace(progress, `"secret":7`, `"secret":"`+access.Hidden+`"`, 1)
				if w.Code != http.StatusOK || w.Body.String() != want {
					t.Errorf("the download of %s: %d %s, want 200 and %s", id, w.Code, w.Body, want)
				}
			}
		}
	})
}

// TestADamagedValueIsNoOutage checks the download of a value that cannot be read.
func TestADamagedValueIsNoOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, _ := inserted(t, dashboard.Config{},
			storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "a"}, Encoding: "msgpack", Payload: []byte("no msgpack")})
		w := s.do(request(http.MethodGet, "/r/mail/a/params", ""))
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "payload is no msgpack") {
			t.Errorf("the download: %d, want 422 and the reason:\n%s", w.Code, w.Body)
		}
	})
}
