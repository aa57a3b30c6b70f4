package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// lateBytes bounds how much is read after the end of the child. A pipe holds at most 1 MiB.
const lateBytes = 2 << 20

// reports are the lines that a program writes to file descriptor 3.
type reports struct {
	*attempt

	from  *os.File
	done  chan struct{} // closed when no line is read any more
	bad   error         // why the reading stopped, nil at the end of the lines; read after done is closed
	asked error         // the snooze or the throttle of the program; read after done is closed

	mu    sync.Mutex
	own   bool // the program has sent progress of its own
	after bool // the child has ended
}

func newReports(t *attempt, from *os.File) *reports {
	return &reports{attempt: t, from: from, done: make(chan struct{})}
}

// drop forgets the reports of a program that was not started.
func (r *reports) drop() {
	if r != nil {
		_ = r.from.Close()
	}
}

// read starts to read the lines until their end, or until a bad one, which bad then receives.
func (r *reports) read(ctx context.Context) (bad <-chan error) {
	found := make(chan error, 1)
	if r == nil {
		return found
	}
	go func() { // ends with the lines; end makes them end
		defer close(r.done)
		if r.bad = r.lines(ctx); r.bad != nil {
			found <- r.bad
		}
	}()
	return found
}

// end waits until the lines of a child that has ended are read, and returns the error of a bad one. If the
// context of the job ends, it waits no longer than pipesAfter.
func (r *reports) end(ctx context.Context, stop context.CancelFunc) error {
	if r == nil {
		return nil
	}
	defer func() { _ = r.from.Close() }()
	r.mu.Lock()
	r.after = true
	_ = r.from.SetReadDeadline(time.Now())
	r.mu.Unlock()
	select {
	case <-r.done:
		return r.bad
	case <-ctx.Done():
	}
	late := time.AfterFunc(pipesAfter, stop)
	defer late.Stop()
	<-r.done
	return r.bad
}

// Read reads from the pipe. After the end of the child, it does not wait: the group has ended too, and a
// process that has left it may hold the pipe open, or write to it without an end.
func (r *reports) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return readNow(r.from, p)
	}
	return n, err
}

// lines reads and obeys the lines.
func (r *reports) lines(ctx context.Context) error {
	in, late := bufio.NewReader(r), lateBytes+r.MaxLine // one line may have begun before the end
	for number := 1; ; number++ {
		line, err := readLine(in, r.MaxLine)
		if text := bytes.TrimSpace(line); len(text) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			if bad := r.obey(ctx, text); bad != nil {
				return fmt.Errorf("line %d on file descriptor 3: %w", number, bad)
			}
		}
		r.mu.Lock()
		if r.after {
			late -= len(line)
		}
		r.mu.Unlock()
		switch {
		case errors.Is(err, io.EOF), late < 0:
			return nil
		case err != nil:
			return fmt.Errorf("line %d on file descriptor 3: %w", number, err)
		}
	}
}

// readLine returns the next line, of at most that many bytes.
func readLine(in *bufio.Reader, most int) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, storage.Invalid("length", "more", "at most %d bytes", most)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// obey does what a line asks for.
func (r *reports) obey(ctx context.Context, line []byte) error {
	verbs := map[string]func(ctx context.Context, value json.RawMessage) error{
		"progress": r.progress, "checkpoint": r.checkpoint, "result": r.result, "follow_up": r.followUp,
		"snooze_ms": r.snooze, "throttle_ms": r.throttle,
	}
	members, err := membersOf("line", line)
	if err != nil {
		return err
	}
	for name, value := range members {
		if do := verbs[name]; do != nil && len(members) == 1 {
			if name != "progress" && !utf8.Valid(value) { // progress is only shown
				return storage.Invalid(name, "bytes that are not UTF-8", "JSON in UTF-8")
			}
			return do(ctx, value)
		}
	}
	return storage.Invalid("members", namesOf(members), "one of %s", namesOf(verbs))
}

// membersOf reads an object of JSON, in which each name stands once.
func membersOf(what string, text []byte) (members map[string]json.RawMessage, err error) {
	if json.Unmarshal(text, &members) != nil || members == nil {
		return nil, storage.Invalid(what, fmt.Sprintf("%d bytes that are not", len(text)), "an object of JSON")
	}
	in, met := json.NewDecoder(bytes.NewReader(text)), make(map[json.Token]bool)
	for _, err = in.Token(); err == nil && in.More(); { // a name and its value at a time
		var value json.RawMessage
		var name json.Token
		if name, err = in.Token(); err == nil {
			err = in.Decode(&value)
		}
		if met[name] {
			given := storage.PrintableText(fmt.Sprint(name), storage.MaxName)
			return nil, storage.Invalid(what, "with "+given+" twice", "each name once")
		}
		met[name] = true
	}
	return members, err
}

// namesOf returns names for an error.
func namesOf[V any](of map[string]V) string {
	names := strings.Join(slices.Sorted(maps.Keys(of)), ", ")
	return storage.PrintableText(names, storage.MaxName)
}

func (r *reports) progress(ctx context.Context, value json.RawMessage) error {
	r.mu.Lock()
	r.own = true
	r.mu.Unlock()
	return heeded(ctx, midge.Progress(ctx, value))
}

// heeded returns the error of a report if the report is to blame. If the storage is away, the program goes
// on, because it cannot do anything about that: the next report or the end of the attempt stores more. A lost
// lease ends the context of the job.
func heeded(ctx context.Context, err error) error {
	if ctx.Err() == nil && !runner.Unanswered(err) && !errors.Is(err, midge.ErrLeaseLost) {
		return err
	}
	return nil
}

func (r *reports) checkpoint(ctx context.Context, value json.RawMessage) error {
	b, err := r.encode(value)
	if err != nil {
		return err
	}
	return heeded(ctx, r.task.Checkpoint(ctx, b))
}

func (r *reports) result(_ context.Context, value json.RawMessage) error {
	switch {
	case r.ResultFromStdout:
		return storage.Invalid("result", "a line", "none: the standard output is the result")
	case len(value) > r.MaxResult:
		return storage.Invalid("result", fmt.Sprintf("of %d bytes", len(value)), "at most %d bytes", r.MaxResult)
	}
	return r.setResult(value)
}

func (r *reports) snooze(_ context.Context, value json.RawMessage) error {
	d, err := milliseconds("snooze_ms", value, 0)
	if err == nil {
		r.asked = midge.Snooze(d)
	}
	return err
}

func (r *reports) throttle(_ context.Context, value json.RawMessage) error {
	d, err := milliseconds("throttle_ms", value, 1)
	if err == nil {
		r.asked = midge.Throttle(d)
	}
	return err
}

func milliseconds(what string, value json.RawMessage, least int64) (time.Duration, error) {
	var n int64
	const most = int64(storage.MaxDelay / time.Millisecond)
	if json.Unmarshal(value, &n) != nil || n < least || n > most || string(value) == "null" {
		given := storage.PrintableText(string(value), storage.MaxName)
		return 0, storage.Invalid(what, given, "an integer, %d to %d", least, most)
	}
	return time.Duration(n) * time.Millisecond, nil
}

// The options of a follow-up are the defaults of jobs.
const (
	followRetries = 20
	followCrashes = 3
)

// followUp enqueues a task together with the completion of this one.
func (r *reports) followUp(ctx context.Context, value json.RawMessage) error {
	members, err := membersOf("follow_up", value)
	if err != nil {
		return err
	}
	in := storage.Insert{
		Ref: storage.Ref{Queue: r.task.Fence.Ref.Queue, ID: storage.NewID()}, Encoding: string(midge.JSON),
		MaxRetries: followRetries, CrashLimit: followCrashes, OnConflict: storage.Skip,
	}
	params := json.RawMessage("{}")
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch name {
		case "kind":
			err = textOf("follow_up.kind", members[name], &in.Kind)
		case "queue":
			err = textOf("follow_up.queue", members[name], &in.Ref.Queue)
		case "params":
			params = members[name]
		case "delay_ms":
			in.Delay, err = milliseconds("follow_up.delay_ms", members[name], 0)
		default:
			err = storage.Invalid("member of follow_up", storage.PrintableText(name, storage.MaxName),
				"kind, queue, params or delay_ms")
		}
		if err != nil {
			return err
		}
	}
	if storage.Reserved(in.Ref.Queue) {
		return storage.Invalid("queue name", in.Ref.Queue, "one that does not begin with %q",
			storage.ReservedQueues)
	}
	if in.Payload, err = payload.Encode(in.Encoding, params, nil); err != nil {
		return err //nolint:wrapcheck // it names the parameters
	}
	if err := storage.CheckInsert(storage.Limits{MaxPayload: r.task.MaxPayload()}, &in); err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	passed, err := r.task.Jobs().Enqueue(ctx, []storage.Insert{in}) // through the middleware
	if err != nil || len(passed) == 0 {
		return err //nolint:wrapcheck // it is the middleware's
	}
	if !r.task.Spans(passed[0].Ref.Queue) {
		return fmt.Errorf("follow-up in queue %s: %w", passed[0].Ref.Queue, storage.ErrSpan)
	}
	return r.task.FollowUp(passed[0]) //nolint:wrapcheck // it names the field
}

func textOf(what string, value json.RawMessage, into *string) error {
	var text *string
	if json.Unmarshal(value, &text) != nil || text == nil {
		return storage.Invalid(what, storage.PrintableText(string(value), storage.MaxName), "a text")
	}
	*into = *text
	return nil
}

// showProcess stores the number and the host of a long task's process as its progress, if the program sends
// none.
func (r *reports) showProcess(ctx context.Context, pid int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own {
		return
	}
	host, _ := os.Hostname()
	_ = midge.Progress(ctx, map[string]any{"pid": pid, "host": host}) // only for people
}
