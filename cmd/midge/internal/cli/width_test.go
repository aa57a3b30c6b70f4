package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/midgehq/midge/storage"
)

// TestListsFitATerminal shows names of 128 bytes on a terminal of 80 columns.
func TestListsFitATerminal(t *testing.T) {
	r := newRig(t)
	r.night()
	long := func(begin string) string { return begin + strings.Repeat("-and-so-on", 13)[:128-len(begin)] }
	queue, kind := long("orders"), long("send_letter")
	r.insert(storage.Insert{Ref: storage.Ref{Queue: queue, ID: long("t")}, Kind: kind})
	r.insert(storage.Insert{Ref: storage.Ref{Queue: queue, ID: long("d")}, Kind: kind})
	r.work(queue, storage.Settle{Outcome: storage.Bury, Error: strings.Repeat("many words of an error ", 30)})
	r.insert(storage.Insert{Ref: storage.Ref{Queue: queue, ID: long("w")}, Kind: kind, Delay: time.Hour})
	declared := storage.Declaration{Spec: "every 1h0m0s", CatchUp: "one", Hash: "h3"}
	r.insert(storage.Insert{Ref: storage.Ref{Queue: queue, ID: storage.CursorPrefix + "x"}, Kind: kind, Cursor: &storage.Cursor{
		Next: r.now.Add(time.Hour), Declaration: declared.Encode(),
	}})
	r.beat(long("web-1"), []string{queue}, []string{kind})
	lines := []string{
		"queue ls", "task ls --state all", "task ls --by cause", "schedule ls", "runner ls", "doctor", "queue show mail",
		"task show mail/a1", "task why mail/a1", "task requeue state:dead --dry-run", "stats", "",
	}
	wide := make(map[string]string)
	for _, line := range lines {
		wide[line] = r.both(line)
	}
	r.width = 80
	for _, line := range lines {
		got := r.both(line)
		for text := range strings.Lines(got) {
			text = strings.TrimRight(text, "\n")
			command := strings.Contains(text, "next: ") || strings.Contains(text, "midge ")
			// A single word is not broken.
			name := strings.Contains(text, "-so-on-and-so-on-and-so-on-and-so-on-and")
			if n := utf8.RuneCountInString(plain(text)); n > 80 && !command && !name {
				t.Errorf("midge %s writes a line of %d columns:\n%s", line, n, text)
			}
		}
	}
	for _, want := range []string{queue, kind} {
		if got := r.ok("task ls --state all -o wide"); !strings.Contains(got, want) {
			t.Errorf("-o wide cuts %s", want)
		}
	}
	if got := wide["queue ls"]; !strings.Contains(got, queue) {
		t.Errorf("without a terminal queue ls cuts %s", queue)
	}
	if got := plain(r.ok("task ls state:dead --queue mail")); !strings.Contains(got, "mail/a1") || !strings.Contains(got, "smtp: timeout after 30s") {
		t.Errorf("names that have room are cut:\n%s", got)
	}
}

// plain removes the colours from a text.
func plain(text string) string {
	for _, style := range []string{"\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[1m", "\x1b[2m", "\x1b[0m"} {
		text = strings.ReplaceAll(text, style, "")
	}
	return text
}

// both returns all output of a command that exits with 0, or with 1 as doctor does.
func (r *rig) both(line string) string {
	r.t.Helper()
	got := r.run(line)
	if got.code > Failed {
		r.t.Errorf("midge %s: got %+v", line, got)
	}
	return got.out + got.err
}
