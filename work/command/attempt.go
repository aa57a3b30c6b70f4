package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// The exit codes with a meaning of their own.
const (
	exitData     = 65  // EX_DATAERR of sysexits.h: no other attempt would succeed
	exitNotFound = 127 // as shells have it
)

// The times of an attempt.
const (
	shownAfter   = time.Second            // until the progress of a task shows its process
	pipesAfter   = time.Second            // for the pipes of a child that has ended
	writersAfter = pipesAfter * 3 / 4     // for a writer of the output; the rest of pipesAfter is for the pipe
	returnAhead  = 300 * time.Millisecond // of the end of ReturnWithin
)

// attempt is one run of a program.
type attempt struct {
	*worker

	task    *runner.Attempt
	child   child
	reports *reports // nil if the system has none
	stderr  tail
	stdout  bounded
	files   []*os.File // closed when the child has started
	saved   string     // the file of the checkpoint, "" for none
}

// newAttempt prepares the run of a program. The caller calls close.
func (w *worker) newAttempt(ctx context.Context, params []byte) (*attempt, error) {
	t := &attempt{worker: w, task: runner.FromContext(ctx)}
	if err := t.prepare(ctx, params); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *attempt) prepare(ctx context.Context, params []byte) error {
	w := t.worker
	t.stderr.most, t.stdout.most = w.MaxError, w.MaxResult
	if err := t.saveCheckpoint(ctx); err != nil {
		return err
	}
	cmd := &exec.Cmd{
		Path: w.Path, Args: append([]string{w.Path}, w.Args...), Dir: w.Dir, Env: t.environment(ctx),
		Stdin: bytes.NewReader(params), Stderr: io.Writer(&t.stderr), WaitDelay: pipesAfter,
	}
	if w.Stderr != nil {
		cmd.Stderr = io.MultiWriter(&t.stderr, t.heedless("Config.Stderr", w.Stderr))
	}
	switch file, ok := w.Stdout.(*os.File); {
	case w.ResultFromStdout && w.Stdout != nil:
		cmd.Stdout = io.MultiWriter(&t.stdout, t.heedless("Config.Stdout", w.Stdout))
	case w.ResultFromStdout:
		cmd.Stdout = &t.stdout
	case ok:
		cmd.Stdout = file
	case w.Stdout != nil:
		cmd.Stdout = t.heedless("Config.Stdout", w.Stdout)
	}
	if hasReports {
		from, to, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("make the pipe for file descriptor 3: %w", err)
		}
		t.files = append(t.files, to)
		cmd.ExtraFiles = []*os.File{to}
		t.reports = newReports(t, from)
	}
	group(cmd)
	if w.Memory > 0 {
		if err := bound(cmd, w.Memory); err != nil {
			return err
		}
	}
	t.child = child{cmd: cmd, reaper: w.Reaper}
	return nil
}

// heedless returns a heedless writer of the attempt.
func (t *attempt) heedless(name string, to io.Writer) *heedless {
	return &heedless{attempt: t, name: name, to: to}
}

// close removes what only the attempt needed.
func (t *attempt) close() {
	for _, file := range t.files {
		_ = file.Close()
	}
	t.files = nil
	if t.saved != "" {
		_ = os.Remove(t.saved)
	}
}

// saveCheckpoint writes the last checkpoint of the task to a file for the program.
func (t *attempt) saveCheckpoint(ctx context.Context) error {
	b, err := t.task.LoadCheckpoint(ctx)
	if runner.Unanswered(err) { // the task is not to blame
		return errors.Join(fmt.Errorf("the checkpoint cannot be read: %w", err), midge.Snooze(0))
	}
	if err != nil || len(b) == 0 {
		return err //nolint:wrapcheck // it names the task
	}
	text, err := payload.JSON(t.task.Encoding, b)
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	file, err := os.CreateTemp(filepath.Split(t.Reaper.files + "*")) // for this user alone
	if err != nil {
		return fmt.Errorf("write the checkpoint to a file: %w", err)
	}
	t.saved = file.Name()
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the checkpoint to a file: %w", err)
	}
	return nil
}

// environment returns the variables of the program.
func (t *attempt) environment(ctx context.Context) []string {
	info, _ := midge.Current(ctx)
	env := append(slices.Clone(t.Env),
		"MIDGE_REF="+info.Ref.String(), "MIDGE_QUEUE="+info.Ref.Queue, "MIDGE_ID="+info.Ref.ID,
		"MIDGE_KIND="+info.Kind, "MIDGE_ATTEMPT="+strconv.Itoa(info.Attempt),
		"MIDGE_IDEMPOTENCY_KEY="+info.IdempotencyKey, "MIDGE_FENCE="+strconv.FormatInt(info.Fence, 10),
		"MIDGE_PARTITION="+info.Partition)
	if hasReports {
		env = append(env, "MIDGE_FD=3")
	}
	if t.saved != "" {
		env = append(env, "MIDGE_CHECKPOINT="+t.saved)
	}
	return env
}

// run runs the program and returns the verdict of the attempt.
func (t *attempt) run(ctx context.Context) error {
	killed := oomKills()
	err := t.child.start(ctx)
	for _, file := range t.files {
		_ = file.Close() // the child has it
	}
	t.files = nil
	if err != nil {
		t.reports.drop()
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
			return fmt.Errorf("%w: the program was not started", err)
		}
		return fmt.Errorf("the program %s cannot be started: %w", t.Path, err)
	}
	reporting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	bad := t.reports.read(reporting)
	cause, ended := t.await(ctx, bad)
	if reported := t.reports.end(ctx, stop); ended == nil {
		ended = reported
	}
	status := t.status(killed)
	switch {
	case cause:
		return t.failed(fmt.Errorf("%w: the program ended with %s", ended, cmp.Or(status, "exit status 0")))
	case ended != nil && status != "":
		return t.failed(fmt.Errorf("%w; the program ended with %s", ended, status))
	case ended != nil:
		return t.failed(ended)
	case status != "" && t.child.cmd.ProcessState.ExitCode() == exitData:
		return midge.Discard(t.failed(errors.New(status)))
	case status != "":
		return t.failed(errors.New(status))
	}
	return t.complete()
}

// await waits for the end of the child. It ends the child when the context of the job ends, whose cause it
// then returns with true, and after a bad report, which it returns with false.
func (t *attempt) await(ctx context.Context, bad <-chan error) (cause bool, ended error) {
	shown := time.NewTimer(shownAfter)
	defer shown.Stop()
	kill := time.NewTimer(0)
	kill.Stop()
	var due time.Time                        // of kill, which never becomes later; zero for none
	done, all := ctx.Done(), t.task.AllEnd() // the end of this job, and that of all jobs of the runner
	end := func(err error) {
		grace := t.Grace
		if all == nil || errors.Is(err, midge.ErrShutdown) { // later the task would run elsewhere beside this child
			grace = min(grace, t.task.ReturnWithin()-returnAhead)
		}
		if grace > 0 && due.IsZero() {
			t.child.terminate()
		}
		if at := time.Now().Add(max(grace, 0)); due.IsZero() || at.Before(due) {
			due = at
			kill.Reset(max(grace, 0))
		}
	}
	for {
		select {
		case <-t.child.ended:
			return cause, ended
		case <-done:
			ended, cause, done = context.Cause(ctx), true, nil
			end(ended)
		case <-all:
			if all = nil; ended != nil {
				end(ended)
			}
		case err := <-bad:
			if bad = nil; ended == nil {
				ended = err
				end(err)
			}
		case <-kill.C:
			t.child.kill()
		case <-shown.C:
			t.reports.showProcess(ctx, t.child.cmd.Process.Pid)
		}
	}
}

// status returns how the program ended, "" for exit code 0. killed is the number of kills of the control
// group before the program was started.
func (t *attempt) status(killed int) string {
	state := t.child.cmd.ProcessState
	if state == nil { // then nobody knows whether the program has done its work
		return "an unknown status, because other code of this worker has waited for the process"
	}
	switch name := signalled(state); {
	case name == "SIGKILL" && oomKills() > killed:
		return name + "; the cgroup counts an OOM kill"
	case name != "":
		return name
	case state.Success():
		return ""
	}
	return "exit status " + strconv.Itoa(state.ExitCode())
}

// longestLine bounds the line of the standard error that stands in the first line of an error.
const longestLine = 300

// failed adds the standard error of the program to an error. The first line of the text has the last line of
// the standard error, because lists show the first line alone.
func (t *attempt) failed(err error) error {
	text := t.stderr.text(t.MaxError)
	if text == "" {
		return err
	}
	last := lastLine(text, longestLine)
	if last == text {
		return fmt.Errorf("%w: %s", err, text)
	}
	return fmt.Errorf("%w: %s\n%s", err, last, text)
}

// complete returns the verdict of a program that ended with exit code 0.
func (t *attempt) complete() error {
	if t.ResultFromStdout {
		switch {
		case t.stdout.over:
			return t.failed(fmt.Errorf("the standard output has more than %d bytes", t.MaxResult))
		case !utf8.Valid(t.stdout.kept):
			return t.failed(errors.New("the standard output is not UTF-8"))
		}
		text, err := json.Marshal(string(t.stdout.kept))
		if err == nil {
			err = t.setResult(text)
		}
		if err != nil {
			return t.failed(fmt.Errorf("the standard output as the result: %w", err))
		}
	}
	if t.reports == nil {
		return nil
	}
	return t.reports.asked
}

// setResult sets the result of the task to a value of JSON.
func (t *attempt) setResult(text []byte) error {
	b, err := t.encode(text)
	if err != nil {
		return err
	}
	return t.task.SetResult(b) //nolint:wrapcheck // the caller names the line
}

// encode returns a value of JSON in the encoding of the task.
func (t *attempt) encode(text []byte) ([]byte, error) {
	b, err := payload.Encode(cmp.Or(t.task.Encoding, string(midge.JSON)), text, nil)
	if most := t.task.MaxPayload(); err == nil && len(b) > most {
		err = storage.Invalid("value", fmt.Sprintf("of %d bytes", len(b)), "at most %d bytes", most)
	}
	return b, err //nolint:wrapcheck // it names the value
}
