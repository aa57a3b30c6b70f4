package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestNoCommandProposesToRequeueDiscardedTasks checks every command that proposes a requeue of dead tasks, on a
// cause of which the jobs discarded none, some and all tasks.
func TestNoCommandProposesToRequeueDiscardedTasks(t *testing.T) {
	for discarded, want := range map[int]string{
		0: "midge task requeue cause:ID --canary --rate 50",
		1: "midge task requeue 'cause:ID -reason:discarded' --rate 50",
		2: "midge task ls 'state:dead cause:ID'",
	} {
		r := newRig(t)
		for i := range 2 {
			r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: fmt.Sprint("t", i)}, Kind: "send_mail"})
			settle := storage.Settle{Outcome: storage.Bury, Error: "no such user", Reason: "out of retries"}
			if i < discarded {
				settle.Reason = storage.AttemptDiscarded
			}
			r.work("mail", settle)
		}
		id := strings.TrimPrefix(strings.TrimSpace(r.ok("task ls --by cause -o ids")), "cause:")
		want = strings.Replace(want, "ID", id, 1)
		for _, line := range []string{"doctor", "doctor -o json", "task ls --by cause"} {
			got := r.run(line)
			if all := got.out + got.err; !strings.Contains(all, want) {
				t.Errorf("%d of 2 discarded: midge %s does not propose %s:\n%s", discarded, line, want, all)
			}
		}
		for _, line := range []string{"task show mail/t0", "task why mail/t0", "task why mail/t0 -o json"} {
			got := r.run(line)
			if strings.Contains(got.out+got.err, "midge task requeue") == (discarded > 0) {
				t.Errorf("%d of 2 discarded: midge %s proposes a requeue, or none where it should:\n%s%s", discarded, line, got.out, got.err)
			}
		}
		if discarded == 1 { // the proposal leaves the discarded task alone
			r.says(Done, "requeued 1", strings.TrimPrefix(want, "midge ")+" --yes")
			if got := r.shown("mail/t0").State; got != "dead" {
				t.Errorf("the discarded task is %s, want dead", got)
			}
		}
	}
}
