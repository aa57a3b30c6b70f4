package scan

import (
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

func TestATextMentionsTasks(t *testing.T) {
	const id = "06gd2nq1c5v8k3m0a1b2c3d4e5"
	mail := storage.Ref{Queue: "mail", ID: id}
	for _, text := range []string{
		mail.String(), "  " + mail.String() + "\n", "queue=mail task=" + id, `{"level":"error","queue":"mail","task":"` + id + `","took":"3ms"}`,
		`time=2026-11-23T02:14:07Z msg="a job failed" task=mail/` + id + ` kind=send_invoice`, "see https://ops.example/midge/r/mail/" + id,
	} {
		if refs, _ := Mentioned(text); !slices.Contains(refs, mail) {
			t.Errorf("%q mentions %v, want %v among them", text, refs, mail)
		}
	}
	for _, text := range []string{id, " " + id + " ", `{"level":"error","id":"` + id + `","retries":3}`, "task=" + id + " at 2026-11-23T02:14:07Z"} {
		if _, ids := Mentioned(text); len(ids) == 0 || ids[0] != id {
			t.Errorf("%q mentions the ids %q, want %s first", text, ids, id)
		}
	}
	for _, text := range []string{"", "it failed again", "\x00\xff <b>", "/", "task="} {
		if refs, ids := Mentioned(text); len(refs)+len(ids) > 0 {
			t.Errorf("%q mentions %v and %q, want nothing", text, refs, ids)
		}
	}
	refs, ids := Mentioned(strings.Repeat("mail/aaaaaaaa1 a/b task=x1 queue=y ", 10_000) + strings.Repeat("q/1", 9999))
	if len(refs) > mostMentioned || len(ids) > mostMentioned {
		t.Errorf("%d refs and %d ids of a long text, want at most %d", len(refs), len(ids), mostMentioned)
	}
}

// TestARefIsWhatItIs checks a ref whose names resemble words of a log.
func TestARefIsWhatItIs(t *testing.T) {
	want := storage.Ref{Queue: "queue:eu", ID: "task:5"}
	if refs, _ := Mentioned(" " + want.String() + "\n"); len(refs) == 0 || refs[0] != want {
		t.Errorf("got %v, want %v first", refs, want)
	}
}
