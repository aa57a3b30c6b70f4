package storagetest

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/midgehq/midge/storage"
)

func textRules() []rule {
	return []rule{
		state("texts/cleaned", textsCleaned,
			"Errors, stacks and reasons are made valid UTF-8 without NUL, whatever they were."),
		state("texts/bounded", textsBounded,
			"Texts of any length are cut, never refused: a reason to 128 bytes, an attempt's error to 1 "+
				"KiB, stack and full error to 64 KiB each."),
		state("texts/of a runner", textsRunner,
			"Host and version of a heartbeat are made valid UTF-8 without NUL, of 128 bytes each; none stops it."),
		state("texts/odd but valid", textsKept,
			"Texts that are valid come back as they were given."),
	}
}

// odd is text that many databases cannot store or quote.
const odd = "a\x00b\xff\xfe\xed\xa0\x80c\U0001F600'\"\\\n%s{}"

// clean fails the rule if a text is not clean, or longer than limit.
func (r *rig) clean(what, text string, limit int) {
	r.Helper()
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) || len(text) > limit {
		r.Fatalf("%s: got %d bytes %.60q, want valid UTF-8 without NUL of at most %d bytes",
			what, len(text), text, limit)
	}
}

func textsCleaned(r *rig) {
	for _, o := range []storage.Outcome{storage.Fail, storage.Bury, storage.Cancel} {
		s := storage.Settle{Outcome: o, Error: odd, Stack: "stack " + odd}
		if o == storage.Bury {
			s.Reason = odd
		}
		r.settle(r.holding(kept(string(o))), s)
		t := r.read(string(o))
		r.want("attempt's error", t.Attempts[0].Error, storage.CleanText(odd, storage.MaxAttemptError))
		r.clean("stack", t.Stack, 2*storage.MaxText+10)
		if want := storage.CleanText("stack "+odd, storage.MaxText); !strings.Contains(t.Stack, want) {
			r.Fatalf("stack: got %q, want %q in it", t.Stack, want)
		}
		if o == storage.Bury {
			r.want("reason", t.Reason, storage.CleanText(odd, storage.MaxReason))
		}
		r.delete(string(o))
	}
}

func textsBounded(r *rig) {
	huge := strings.Repeat(strings.Repeat("é", 500)+"\xff", 10<<20/1001)
	r.settle(r.holding(job("a")), storage.Settle{Outcome: storage.Bury, Reason: huge, Error: huge, Stack: huge})
	t := r.is("a", storage.Dead)
	r.clean("reason", t.Reason, storage.MaxReason)
	r.clean("attempt's error", t.Attempts[0].Error, storage.MaxAttemptError)
	r.clean("stack and error", t.Stack, 2*storage.MaxText+10)
	r.want("lengths kept", [3]bool{
		len(t.Reason) > storage.MaxReason-5, len(t.Attempts[0].Error) > storage.MaxAttemptError-5,
		len(t.Stack) > storage.MaxText,
	}, [3]bool{true, true, true})
}

func textsKept(r *rig) {
	const text = "Grüße ☃ \t\"quoted\" 'single' \\ \u2028 \x01 {}[] %d <&>"
	h := r.holding(job("a"))
	r.settle(h, storage.Settle{Outcome: storage.Bury, Reason: text, Error: text, Stack: text})
	t := r.read("a")
	r.want("reason, error", [2]string{t.Reason, t.Attempts[0].Error}, [2]string{text, text})
	r.want("stack", strings.Contains(t.Stack, text), true)
	r.want("listed", r.list(storage.Dead)[0].Attempts[0].Error, text)
}

func textsRunner(r *rig) {
	long := strings.Repeat("é", storage.MaxName)
	got := r.heartbeat(storage.RunnerInfo{ID: "r1", For: time.Hour, Host: odd, Version: long})
	r.want("runners", len(got), 1)
	r.want("texts", [2]string{got[0].Host, got[0].Version},
		[2]string{storage.CleanText(odd, storage.MaxName), storage.CleanText(long, storage.MaxName)})
}
