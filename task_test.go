package midge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestARefIsReadAsItPrints(t *testing.T) {
	for _, want := range []midge.Ref{ref("mail", "7"), ref("a.b-c_d", "cursor.x")} {
		if got, err := midge.ParseRef(want.String()); err != nil || got != want {
			t.Errorf("%s: got %v, %v", want, got, err)
		}
	}
	for _, text := range []string{"", "mail", "mail/", "/7", "a b/7", "mail/7/", strings.Repeat("x", 1<<20)} {
		var invalid *midge.InvalidError
		if got, err := midge.ParseRef(text); !errors.As(err, &invalid) || got != (midge.Ref{}) {
			t.Errorf("%.20q: got %v, %.200v; want an *InvalidError", text, got, err)
		}
	}
}

func TestATaskPrintsItsFields(t *testing.T) {
	task := midge.Task{
		Ref: ref("mail", "7"), Kind: "work", Payload: []byte("secret"), State: midge.Retry,
		Due: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), Headers: map[string]string{"a": "1"},
		Attempts: []storage.Attempt{{Outcome: "fail", Error: "boom"}}, Cursor: &storage.Cursor{Declaration: "x"},
	}
	if got := fmt.Sprint(task); got != "mail/7" {
		t.Errorf("got %q, want the ref", got)
	}
	got := fmt.Sprintf("%+v", task)
	for _, want := range []string{
		"{mail/7 Kind:work", "Payload:(6 bytes)", "State:retry", "Due:2026-11-23T12:00:00Z", "Headers:map[a:1]", "Error:boom", "Declaration:x",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
	for _, never := range []string{"secret", "Ended:", "Keep:"} {
		if strings.Contains(got, never) {
			t.Errorf("got %s, want no %s in it", got, never)
		}
	}
}

func TestWhatATaskStoredIsDecoded(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(ctx context.Context, w work) error {
			if w.Name == "silent" {
				return nil
			}
			return errors.Join(midge.Progress(ctx, 7), midge.Checkpoint(ctx, w), midge.SetResult(ctx, w))
		})
		told := b.enqueue("told", midge.KeepFor(time.Hour))
		silent := b.enqueue("silent", midge.KeepFor(time.Hour))
		b.after(time.Second)
		var done int
		var result, checkpoint, job work
		task := b.task(told.Ref)
		for what, err := range map[string]error{
			"result": midge.DecodeResult(task, &result), "progress": midge.DecodeProgress(task, &done),
			"checkpoint": midge.DecodeCheckpoint(task, &checkpoint), "parameters": midge.Decode(task, &job),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if want := (work{"told"}); done != 7 || result != want || checkpoint != want || job != want {
			t.Errorf("got %d, %v, %v, %v; want 7 and the job three times", done, result, checkpoint, job)
		}
		checkNoneStored(t, b.task(silent.Ref))
		for what, err := range map[string]error{
			"a result into a value": midge.DecodeResult(task, result), "progress into nil": midge.DecodeProgress(task, nil),
			"another kind": midge.Decode(task, new(stranger)), "no kind": midge.Decode(task, new(struct{ Name string })),
		} {
			if _, ok := errors.AsType[*midge.InvalidError](err); !ok {
				t.Errorf("%s: got %v, want an *InvalidError", what, err)
			}
		}
		if err := midge.DecodeResult(task, &done); err == nil || !strings.Contains(err.Error(), "the result of work is of another shape than *int") {
			t.Errorf("got %v, want both types named", err)
		}
		var names map[string]any
		if err := midge.Decode(task, &names); err != nil || names["Name"] != "told" {
			t.Errorf("got %v, %v; want the parameters by their names", names, err)
		}
	})
}

// checkNoneStored checks a task whose job has stored nothing.
func checkNoneStored(t *testing.T, task midge.Task) {
	t.Helper()
	var v int
	for what, err := range map[string]error{
		"decode result of %s: midge: task completed without a result": midge.DecodeResult(task, &v),
		"decode progress of %s: the job has stored none":              midge.DecodeProgress(task, &v),
		"decode checkpoint of %s: the job has stored none":            midge.DecodeCheckpoint(task, &v),
	} {
		if want := fmt.Sprintf(what, task.Ref); !errors.Is(err, midge.ErrNoResult) ||
			strings.ReplaceAll(err.Error(), "midge: ", "") != strings.ReplaceAll(want, "midge: ", "") {
			t.Errorf("got %v, want ErrNoResult: %s", err, want)
		}
	}
}

// TestATaskThatIsNotThereIsExplained asks why a task does not run that never was, and for the result of one
// that has not run.
func TestATaskThatIsNotThereIsExplained(t *testing.T) {
	bubble(t, func(b *bench) {
		_, err := b.client.Why(b.ctx, midge.Ref{Queue: "default", ID: "none"})
		if !errors.Is(err, midge.ErrNotFound) || !strings.Contains(err.Error(), "why default/none: there is no such task: it never was") {
			t.Errorf("got %v, want an ErrNotFound that explains itself", err)
		}
		var v int
		err = midge.DecodeResult(b.task(b.enqueue("later").Ref), &v)
		if !errors.Is(err, midge.ErrNoResult) || strings.Contains(err.Error(), "completed") {
			t.Errorf("got %v, want an ErrNoResult of a task that has not completed", err)
		}
	})
}

func TestATaskTellsSinceWhenItRuns(t *testing.T) {
	bubble(t, func(b *bench) {
		began := time.Now()
		b.run(midge.RunnerConfig{}, func(context.Context, work) error {
			<-time.After(time.Minute) // virtual
			return errors.New("boom")
		})
		task := b.enqueue("a")
		b.after(30 * time.Second)
		if got := b.task(task.Ref).StartedAt(); got.Before(began) || got.After(began.Add(time.Second)) {
			t.Errorf("got %v, want about %v", got, began)
		}
		b.after(31 * time.Second)
		got := b.task(task.Ref)
		if took := got.Attempts[0].Took(); took.Round(time.Second) != time.Minute || !got.StartedAt().IsZero() {
			t.Errorf("got %v of %+v, want a minute, and nothing that runs", took, got)
		}
		if !got.Tick().IsZero() {
			t.Errorf("got %v, want no tick", got.Tick())
		}
		got.Headers = map[string]string{storage.TickHeader: "2026-11-23T12:00:00Z"}
		if want := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC); !got.Tick().Equal(want) {
			t.Errorf("got %v, want %v", got.Tick(), want)
		}
	})
}
