//go:build linux || darwin

package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/work/command"
)

// TestAResultIsReadByGo passes the parameters to a program and back as its result, in both encodings.
func TestAResultIsReadByGo(t *testing.T) {
	r := newRig(t, shell(`printf '{"result":%s}\n' "$(cat)" >&3`))
	want := packed{"a \"film\" é\n", 1<<60 + 1}
	for _, job := range []any{want, plain(want)} {
		var got packed
		if err := r.client.Await(t.Context(), r.add(job), &got); err != nil || got != want {
			t.Errorf("%T: got %+v, %v; want %+v", job, got, err, want)
		}
	}
}

// TestTheEnvironmentNamesTheTask compares the environment of a program with its task.
func TestTheEnvironmentNamesTheTask(t *testing.T) {
	t.Setenv("MIDGE_STORAGE", "redis://:secret@db")
	t.Setenv("PGPASSWORD", "secret")
	t.Setenv("PGSSLPASSWORD", "secret")
	t.Setenv("COMMAND_TEST_OTHER", "kept")
	cfg := shell(`env`)
	cfg.ResultFromStdout = true
	r := newRig(t, cfg)
	ref := r.add(packed{}, midge.Partition("acme"))
	var env string
	if err := r.client.Await(t.Context(), ref, &env); err != nil {
		t.Fatal(err)
	}
	task := r.task(ref)
	r.contains(env, "MIDGE_REF="+ref.String()+"\n", "MIDGE_QUEUE=films\n", "MIDGE_ID="+ref.ID+"\n",
		"MIDGE_FENCE=", "MIDGE_KIND=packed\n", "MIDGE_ATTEMPT=1\n", "MIDGE_PARTITION=acme\n", "MIDGE_FD=3\n",
		fmt.Sprintf("MIDGE_IDEMPOTENCY_KEY=%s@%d\n", ref, task.Created.UnixMicro()), "COMMAND_TEST_OTHER=kept\n")
	for _, hidden := range []string{"secret", "MIDGE_STORAGE", "PGPASSWORD", "MIDGE_CHECKPOINT"} {
		if strings.Contains(env, hidden) {
			t.Errorf("the environment has %s:\n%s", hidden, env)
		}
	}
}

// TestProgressShowsWhileTheProgramRuns holds a program between two lines.
func TestProgressShowsWhileTheProgramRuns(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	r := newRig(t, shell(`echo '{"progress":{"done":1,"of":2}}' >&3; until [ -e `+open+` ]; do sleep 0.02; done`))
	ref := r.add(packed{})
	r.until("the progress shows", ref, func(t midge.Task) bool { return string(t.Progress) == `{"done":1,"of":2}` })
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.client.Await(t.Context(), ref, nil); err != nil {
		t.Error(err)
	}
}

// TestALongTaskShowsItsProcess runs a program without progress for longer than a second.
func TestALongTaskShowsItsProcess(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	r := newRig(t, shell(`echo $$ > `+pid+`; exec sleep 60`))
	ref := r.add(plain{})
	want := awaitFile(t, pid)
	task := r.until("the process shows", ref, func(t midge.Task) bool { return len(t.Progress) > 0 })
	var shown struct {
		PID  json.Number
		Host string
	}
	if err := json.Unmarshal(task.Progress, &shown); err != nil || shown.PID.String() != want || shown.Host == "" {
		t.Errorf("the progress is %s, want process %s and a host", task.Progress, want)
	}
}

// TestACheckpointIsPassedOn fails the first attempt behind its checkpoint.
func TestACheckpointIsPassedOn(t *testing.T) {
	r := newRig(t, shell(`
		if [ -z "$MIDGE_CHECKPOINT" ]; then echo '{"checkpoint":{"at":[7,"x"]}}' >&3; exit 1; fi
		printf '{"result":{"saved":%s,"file":"%s","mode":"%s"}}\n' "$(cat $MIDGE_CHECKPOINT)" $MIDGE_CHECKPOINT "$(ls -l $MIDGE_CHECKPOINT | cut -c1-10)" >&3`))
	for _, job := range []any{packed{}, plain{}} {
		var got struct {
			Saved struct {
				At []any `json:"at" msgpack:"at"`
			} `json:"saved" msgpack:"saved"`
			File string `json:"file"  msgpack:"file"`
			Mode string `json:"mode"  msgpack:"mode"`
		}
		if err := r.client.Await(t.Context(), r.add(job, midge.Retries(1)), &got); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got.Saved.At) != "[7 x]" || got.Mode != "-rw-------" {
			t.Errorf("%T: got %+v, want the checkpoint [7 x] in a private file", job, got)
		}
		if _, err := os.Stat(got.File); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is left: %v", err)
		}
	}
}

// TestExitCodes runs a program with several exit codes.
func TestExitCodes(t *testing.T) {
	r := newRig(t, shell(`echo "first" >&2; echo "the disk is full" >&2; exit $(cat | tr -dc 0-9)`))
	for code, retried := range map[int64]bool{1: true, 65: false, 75: true, 127: true} {
		ref := r.add(plain{Count: code}, midge.Retries(1))
		text := r.dead(ref)
		r.contains(text, fmt.Sprintf("exit status %d: the disk is full\nfirst\nthe disk is full", code))
		task := r.task(ref)
		if got := task.Retries > 0; got != retried || retried == (task.Reason == "discarded") {
			t.Errorf("code %d: %d retries, dead of %s; want a retry: %t", code, task.Retries, task.Reason, retried)
		}
	}
}

// TestASignalIsNamed kills a program by a signal.
func TestASignalIsNamed(t *testing.T) {
	r := newRig(t, shell(`kill -$(cat | tr -dc 0-9) $$`))
	for number, name := range map[int64]string{9: "SIGKILL", 6: "SIGABRT", 15: "SIGTERM"} {
		if text := r.dead(r.add(plain{Count: number})); text != name {
			t.Errorf("the error is %q, want %s", text, name)
		}
	}
}

// TestASnooze snoozes the first run, which counts no retry.
func TestASnooze(t *testing.T) {
	again := filepath.Join(t.TempDir(), "again")
	r := newRig(t, shell(`[ -e `+again+` ] && exit; touch `+again+`; echo '{"snooze_ms":50}' >&3`))
	ref := r.add(packed{})
	if err := r.client.Await(t.Context(), ref, nil); err != nil {
		t.Fatal(err)
	}
	if task := r.task(ref); task.Retries != 0 {
		t.Errorf("%d retries, want none", task.Retries)
	}
}

// TestAThrottle does not count the first run.
func TestAThrottle(t *testing.T) {
	again := filepath.Join(t.TempDir(), "again")
	r := newRig(t, shell(`[ -e `+again+` ] && exit; touch `+again+`; echo '{"throttle_ms":50}' >&3`))
	ref := r.add(packed{}, midge.Partition("acme"))
	if err := r.client.Await(t.Context(), ref, nil); err != nil {
		t.Fatal(err)
	}
	if task := r.task(ref); task.Retries != 0 {
		t.Errorf("%d retries, want none", task.Retries)
	}
}

// TestFollowUps enqueues tasks of other kinds, if and only if the program succeeds.
func TestFollowUps(t *testing.T) {
	r := newRig(t, shell(`
		echo '{"follow_up":{"kind":"thumbs","queue":"images","params":{"n":1},"delay_ms":60000}}' >&3
		echo '{"follow_up":{"kind":"mail"}}' >&3
		exit $(cat | tr -dc 0-9)`))
	follows := func() (kinds []string) {
		for _, queue := range []string{"images", "films"} {
			for _, task := range r.tasks(queue) {
				if task.Kind != "plain" {
					kinds = append(kinds, fmt.Sprintf("%s %s %s", task.Kind, task.Encoding, task.Payload))
				}
			}
		}
		return kinds
	}
	r.dead(r.add(plain{Count: 1}))
	if got := follows(); len(got) > 0 {
		t.Errorf("a failure has left %q", got)
	}
	if err := r.client.Await(t.Context(), r.add(plain{}), nil); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(follows()); got != `[thumbs json {"n":1} mail json {}]` {
		t.Errorf("the follow-ups are %s", got)
	}
}

// TestBadLines checks that each bad line fails the attempt and is named, and that nothing of the attempt
// remains.
func TestBadLines(t *testing.T) {
	lines := t.TempDir()
	cfg := shell(`cat "$(sed 's/.*"Name":"\([^"]*\)".*/\1/')" >&3; exec sleep 60`)
	cfg.MaxLine, cfg.MaxResult = 2048, 1024
	r := newRig(t, cfg)
	for i, c := range []struct{ line, want string }{
		{`{"progres":1}`, "progres"},
		{`{"progress":1,"checkpoint":2}`, "checkpoint, progress"},
		{`{"progress":1,"progress":1}`, "progress twice"},
		{`{"progress":1,"\u0070rogress":1}`, "progress twice"},
		{`{"follow_up":{"kind":"x","params":{},"params":{}}}`, "params twice"},
		{`{}`, "one of"},
		{`[1]`, "an object of JSON"},
		{`nonsense`, "an object of JSON"},
		{`{"progress":1`, "an object of JSON"},
		{`null`, "an object of JSON"},
		{`{"snooze_ms":-1}`, "snooze_ms"},
		{`{"snooze_ms":1.5}`, "snooze_ms"},
		{`{"snooze_ms":null}`, "snooze_ms"},
		{`{"throttle_ms":0}`, "throttle_ms"},
		{`{"follow_up":{"queue":"films"}}`, "kind"},
		{`{"follow_up":{"kind":"x","to":"y"}}`, "to"},
		{`{"follow_up":{"kind":"x","queue":"` + "~own" + `","delay_ms":"1"}}`, "delay_ms"},
		{`{"follow_up":{"kind":7}}`, "follow_up.kind"},
		{`{"follow_up":{"kind":"x","params":"` + "\xff" + `"}}`, "not UTF-8"},
		{`{"checkpoint":"` + "\xff" + `"}`, "not UTF-8"},
		{`{"result":"` + "\xff" + `"}`, "not UTF-8"},
		{`{"result":"` + strings.Repeat("x", 1100) + `"}`, "at most 1024 bytes"},
		{`{"progress":"` + strings.Repeat("x", 3000) + `"}`, "at most 2048 bytes"},
	} {
		file := filepath.Join(lines, fmt.Sprint(i))
		text := `{"follow_up":{"kind":"never"}}` + "\n" + c.line + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.contains(r.dead(r.add(plain{Name: file})), "line 2 on file descriptor 3", c.want)
	}
	for _, task := range r.tasks("films") {
		if task.Kind == "never" {
			t.Error("a follow-up of a failed attempt is there")
		}
	}
}

// TestTheLastLineNeedsNoEnd writes a result without a line feed.
func TestTheLastLineNeedsNoEnd(t *testing.T) {
	r := newRig(t, shell(`printf '\n\n{"result":1}\n{"result":2}' >&3`))
	var got int
	if err := r.client.Await(t.Context(), r.add(packed{}), &got); err != nil || got != 2 {
		t.Errorf("got %d, %v; want 2", got, err)
	}
}

// TestALongStandardErrorIsCut keeps the end of it.
func TestALongStandardErrorIsCut(t *testing.T) {
	cfg := shell(`i=0; while [ $i -lt 3000 ]; do echo "line $i of é"; i=$((i+1)); done >&2; printf '\377end' >&2; exit 3`)
	cfg.MaxError = 1024
	r := newRig(t, cfg)
	text := r.dead(r.add(packed{}))
	r.contains(text, "exit status 3: \ufffdend\n(the beginning is cut off)\n", "line 2999 of é\n\ufffdend")
	if len(text) > 1100 {
		t.Errorf("the error has %d bytes", len(text))
	}
}

// TestALongLastLineEndsWithAnEllipsis checks the first line of an error, which has a part of the last line.
func TestALongLastLineEndsWithAnEllipsis(t *testing.T) {
	r := newRig(t, shell(`printf 'first\n%0400d' 7 >&2; exit 3`))
	r.contains(r.dead(r.add(packed{})), "exit status 3: "+strings.Repeat("0", 300)+"…\nfirst\n0")
}

// TestStandardOutputAsTheResult takes it whole, or not at all.
func TestStandardOutputAsTheResult(t *testing.T) {
	cfg := shell(`name=$(sed 's/.*"Name":"\([^"]*\)".*/\1/'); case $name in
		long) head -c 2000 /dev/zero ;; wrong) printf '\377' ;; both) echo '{"result":1}' >&3 ;; *) echo "it is $name" ;; esac`)
	cfg.ResultFromStdout, cfg.MaxResult = true, 1024
	r := newRig(t, cfg)
	var got string
	if err := r.client.Await(t.Context(), r.add(plain{Name: "good"}), &got); err != nil || got != "it is good\n" {
		t.Errorf("got %q, %v", got, err)
	}
	r.contains(r.dead(r.add(plain{Name: "long"})), "more than 1024 bytes")
	r.contains(r.dead(r.add(plain{Name: "wrong"})), "not UTF-8")
	r.contains(r.dead(r.add(plain{Name: "both"})), "the standard output is the result")
}

// broken is a writer that fails in its own way.
type broken func()

func (b broken) Write(p []byte) (int, error) {
	b()
	return len(p), nil
}

// TestAWriterThatFailsEndsNothing has writers for the output of programs that do not return. The value of a panic is
// not in the log.
func TestAWriterThatFailsEndsNothing(t *testing.T) {
	for name, writer := range map[string]broken{
		"panic with a value of type string": func() { panic("it has refused secret") }, "Goexit": runtime.Goexit,
	} {
		var lines strings.Builder
		cfg := shell(`for i in 1 2; do echo $i; echo $i >&2; sleep 0.05; done; [ $(cat | wc -c) -gt 25 ] && exit 3; exit 0`)
		cfg.ResultFromStdout, cfg.Stdout, cfg.Stderr = true, writer, writer
		r := newRig(t, cfg, func(c *midge.RunnerConfig) { c.Slog = slog.New(slog.NewTextHandler(&lines, nil)) })
		var got string
		if err := r.client.Await(t.Context(), r.add(plain{}), &got); err != nil || got != "1\n2\n" {
			t.Errorf("%s: got %q, %v, want the output as the result", name, got, err)
		}
		r.contains(r.dead(r.add(plain{Name: "long enough"})), "exit status 3: 2")
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(lines.String(), "Config.Std"); n != 1 || !strings.Contains(lines.String(), name) {
			t.Errorf("%s: got %d lines of the writers, want one, in:\n%s", name, n, &lines)
		}
		if strings.Contains(lines.String(), "secret") {
			t.Errorf("the log has the value of the panic:\n%s", &lines)
		}
	}
}

// within is like dead, and fails the test if the task lives for long.
func (r *rig) within(ref midge.Ref) string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
	defer cancel()
	if err := r.client.Await(ctx, ref, nil); ctx.Err() != nil {
		r.Fatalf("the task has not ended: %v", err)
	}
	return r.dead(ref)
}

// TestAWriterThatKeepsItsLockHoldsNoSlot has a writer that panics while it holds its lock.
func TestAWriterThatKeepsItsLockHoldsNoSlot(t *testing.T) {
	var mu sync.Mutex
	var calls int
	locked := broken(func() {
		mu.Lock()
		calls++
		panic("it is full")
	})
	cfg := shell(`for i in 1 2 3; do echo $i; echo $i >&2; sleep 0.05; done; exit 3`)
	cfg.Stdout, cfg.Stderr = locked, locked
	r := newRig(t, cfg)
	for range 2 {
		r.contains(r.within(r.add(plain{})), "exit status 3: 3\n1\n2\n3")
	}
	if calls != 1 { // nobody else has had the lock
		t.Errorf("the writer was called %d times, want once", calls)
	}
}

// TestAWriterThatBlocksHoldsNoSlot has a writer that blocks, for a program that ends, and for a program that
// has to be killed.
func TestAWriterThatBlocksHoldsNoSlot(t *testing.T) {
	for name, want := range map[string]string{"ends": "exit status 3: 2\n1\n2", "goes on and on": "timed out"} {
		var lines strings.Builder
		var calls atomic.Int32
		goOn := make(chan struct{})
		cfg := shell(`echo 1 >&2; sleep 0.1; echo 2 >&2; [ $(cat | wc -c) -gt 30 ] && exec yes >&2; exit 3`)
		cfg.Stderr = broken(func() {
			calls.Add(1)
			<-goOn
		})
		r := newRig(t, cfg, func(c *midge.RunnerConfig) { c.Slog = slog.New(slog.NewTextHandler(&lines, nil)) })
		r.contains(r.within(r.add(plain{Name: name}, midge.Timeout(5*time.Second))), want)
		r.contains(r.within(r.add(plain{})), "exit status 3: 2\n1\n2")
		if n := calls.Load(); n != 1 {
			t.Errorf("%s: %d calls of the writer, want one until it has returned", name, n)
		}
		close(goOn)
		testserver.Await(t, "the writer is called again", func() bool {
			r.within(r.add(plain{}))
			return calls.Load() > 1
		})
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(lines.String(), "Config.Stderr"); n != 1 {
			t.Errorf("%s: got %d lines of the writer, want one, in:\n%s", name, n, &lines)
		}
	}
}

// TestAProgramThatCannotRun is found before the first claim, and by name if it vanishes later.
func TestAProgramThatCannotRun(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "program")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  command.Config
		want string
	}{
		{command.Config{Path: "no-such-program", Reaper: reaper}, "no-such-program"},
		{command.Config{Path: file, Reaper: reaper}, filepath.Dir(folder)}, // the error has the beginning of a long path
		{command.Config{Path: folder, Reaper: reaper}, filepath.Dir(folder)},
		{command.Config{Reaper: reaper}, "Path"},
		{command.Config{Path: "sh"}, "Reaper"},
		{command.Config{Path: "sh", Reaper: reaper, Dir: file}, "Dir"},
		{command.Config{Path: "sh", Reaper: reaper, Env: []string{"x"}}, "Env"},
		{command.Config{Path: "sh", Reaper: reaper, Grace: -2}, "Grace"},
		{command.Config{Path: "sh", Reaper: reaper, MaxError: 1 << 20}, "MaxError"},
		{command.Config{Path: "sh", Reaper: reaper, MaxLine: 1}, "MaxLine"},
		{command.Config{Path: "sh", Reaper: reaper, Memory: 5}, "Memory"},
	} {
		runner, err := midge.NewRunner(store, midge.RunnerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		var invalid *midge.InvalidError
		if err = command.Handle(runner, "x", c.cfg); !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an InvalidError about %s", err, c.want)
		}
	}
	if err := os.Chmod(file, 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, command.Config{Path: file, Reaper: reaper})
	if err := r.client.Await(t.Context(), r.add(packed{}), nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.contains(r.dead(r.add(packed{})), "the program "+file+" cannot be started", "no such file")
}

// TestManyTasks runs tasks beside each other, whose results belong to them.
func TestManyTasks(t *testing.T) {
	r := newRig(t, shell(`printf '{"result":%s}\n' "$(cat)" >&3`), func(c *midge.RunnerConfig) { c.Concurrency = 20 })
	var refs []midge.Ref
	for i := range 100 {
		refs = append(refs, r.add(packed{Count: int64(i)}))
	}
	for i, ref := range refs {
		var got packed
		if err := r.client.Await(t.Context(), ref, &got); err != nil || got.Count != int64(i) {
			t.Errorf("task %d: got %+v, %v", i, got, err)
		}
	}
}
