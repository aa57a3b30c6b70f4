package midge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestARawJobReceivesTheBytesOfItsTask(t *testing.T) {
	type label struct {
		N    int64
		Icon []byte
		Name string
	}
	bubble(t, func(b *bench) {
		var got midge.RawJob
		var info midge.RunInfo
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, nil)
		if err := midge.HandleRaw(b.runner, "label", func(ctx context.Context, job midge.RawJob) error {
			got = job
			info, _ = midge.Current(ctx)
			return midge.SetResult(ctx, "printed")
		}); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		task, err := b.client.Enqueue(b.Context(), label{N: 1<<62 + 1, Icon: []byte{0, 1}, Name: "ä"})
		if err != nil {
			t.Fatal(err)
		}
		var result string
		if err := b.client.Await(b.Context(), task.Ref, &result); err != nil || result != "printed" {
			t.Fatalf("got %q, %v; want the result", result, err)
		}
		text, err := got.JSON()
		const want = `{"N":4611686018427387905,"Icon":{"$bytes":"AAE="},"Name":"ä"}`
		if err != nil || string(text) != want || got.Encoding != midge.MessagePack || got.Kind != "label" {
			t.Errorf("got %s of %s in %s, %v; want %s", text, got.Kind, got.Encoding, err, want)
		}
		if raw, ok := info.Job.(*midge.RawJob); !ok || string(raw.Payload) != string(got.Payload) {
			t.Errorf("got job %T, want a pointer to the raw job", info.Job)
		}
	})
}

func TestARawJobWithDamagedParametersIsPutOff(t *testing.T) {
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, nil)
		if err := midge.HandleRaw(b.runner, "label", func(_ context.Context, job midge.RawJob) error {
			_, err := job.JSON()
			return err
		}); err != nil {
			t.Fatal(err)
		}
		in := storage.Insert{
			Ref: storage.Ref{Queue: midge.DefaultQueue, ID: "1"}, Kind: "label", Encoding: "msgpack", CrashLimit: 3,
			Payload: []byte{0x92, 1},
		}
		_, err := b.store.Apply(b.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{in}})
		if err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		if task := b.task(in.Ref); task.Reason != storage.ReasonUndecodable || task.Retries != 0 || task.State.Ended() {
			t.Errorf("got %+v, want a task that is put off and has not failed", task)
		}
	})
}

func TestHandleRawRefuses(t *testing.T) {
	bubble(t, func(b *bench) {
		r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
		run := func(context.Context, midge.RawJob) error { return nil }
		var invalid *midge.InvalidError
		for name, err := range map[string]error{
			"no runner":   midge.HandleRaw(nil, "a", run),
			"no function": midge.HandleRaw(r, "a", nil),
			"no kind":     midge.HandleRaw(r, "", run),
			"a bad kind":  midge.HandleRaw(r, "a b", run),
		} {
			if !errors.As(err, &invalid) {
				t.Errorf("%s: got %v, want an InvalidError", name, err)
			}
		}
		if err := midge.HandleRaw(r, "a", run); err != nil {
			t.Fatal(err)
		}
		if err := midge.HandleRaw(r, "a", run); !errors.As(err, &invalid) {
			t.Errorf("a kind twice: got %v, want an InvalidError", err)
		}
		b.done <- nil
	})
}

// TestARawJobReceivesAnyBytes, also damaged bytes and bytes of an encoding that midge does not know.
func TestARawJobReceivesAnyBytes(t *testing.T) {
	all := map[string]storage.Insert{
		"1": {Encoding: "msgpack", Payload: []byte{0x81, 0xa1}}, "2": {Encoding: "msgpack", Payload: []byte{0xdf, 0xff, 0xff, 0xff, 0xff}},
		"3": {Encoding: "msgpack"}, "4": {Encoding: "json", Payload: []byte(`{"a":`)}, "5": {Encoding: "avro", Payload: []byte{1, 2}},
	}
	bubble(t, func(b *bench) {
		got := make(map[string]midge.RawJob)
		b.runner = b.newRunner(b.store, midge.RunnerConfig{Concurrency: 1}, nil)
		if err := midge.HandleRaw(b.runner, "label", func(ctx context.Context, job midge.RawJob) error {
			info, _ := midge.Current(ctx)
			got[info.Ref.ID] = job
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for id, in := range all {
			in.Ref, in.Kind, in.CrashLimit = storage.Ref{Queue: midge.DefaultQueue, ID: id}, "label", 3
			_, err := b.store.Apply(b.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{in}})
			if err != nil {
				t.Fatal(err)
			}
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		for id, in := range all {
			if job := got[id]; string(job.Payload) != string(in.Payload) || string(job.Encoding) != in.Encoding {
				t.Errorf("task %s: got %q in %q, want %q in %q", id, job.Payload, job.Encoding, in.Payload, in.Encoding)
			}
		}
	})
}

// sees returns a middleware that appends the kinds of raw jobs.
func sees(kinds *[]string) midge.Middleware {
	return func(next func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			info, _ := midge.Current(ctx)
			if raw, ok := info.Job.(*midge.RawJob); ok {
				*kinds = append(*kinds, raw.Kind)
			}
			return next(ctx)
		}
	}
}

// twice returns a raw job with a step, which fails behind a checkpoint, and then has a follow-up and a result.
func twice(called *int) func(context.Context, midge.RawJob) error {
	return func(ctx context.Context, _ midge.RawJob) error {
		n, err := midge.Step(ctx, "count", func(context.Context) (int, error) { *called++; return 7, nil })
		if err != nil {
			return err
		}
		var at int
		if found, err := midge.LoadCheckpoint(ctx, &at); err != nil || !found {
			return errors.Join(err, midge.Checkpoint(ctx, 5), errors.New("not yet"))
		}
		return errors.Join(midge.SetResult(ctx, n+at), midge.FollowUp(ctx, work{Name: "next"}))
	}
}

// TestARawJobHasAllThatAJobHas runs a raw job twice, in both encodings.
func TestARawJobHasAllThatAJobHas(t *testing.T) {
	for _, in := range []storage.Insert{
		{Encoding: "msgpack", Payload: []byte{0xc0}}, {Encoding: "json", Payload: []byte("[7]")},
	} {
		bubble(t, func(b *bench) {
			called, kinds := 0, []string(nil)
			b.runner = b.newRunner(b.store, midge.RunnerConfig{
				Backoff: midge.Constant(time.Second), Middleware: []midge.Middleware{sees(&kinds)},
			}, nil)
			if err := midge.HandleRaw(b.runner, "label", twice(&called)); err != nil {
				t.Fatal(err)
			}
			in.Ref, in.Kind, in.CrashLimit, in.MaxRetries = storage.Ref{Queue: midge.DefaultQueue, ID: "1"}, "label", 3, 2
			in.Keep = storage.Keep{For: time.Hour}
			_, err := b.store.Apply(b.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{in}})
			if err != nil {
				t.Fatal(err)
			}
			go func() { b.done <- b.runner.Run(b.ctx) }()
			var result int
			if err := b.client.Await(b.Context(), in.Ref, &result); err != nil || result != 12 {
				t.Errorf("%s: got %d, %v; want 12", in.Encoding, result, err)
			}
			if task := b.task(in.Ref); task.Retries != 1 || called != 1 || len(kinds) != 2 {
				t.Errorf("%s: %d retries, the step called %d times, the kinds %v; want 1, 1 and two kinds",
					in.Encoding, task.Retries, called, kinds)
			}
		})
	}
}

// TestAStepOfAnUnknownEncodingIsNotCalled checks that the function of a step is not called if its result cannot be
// stored.
func TestAStepOfAnUnknownEncodingIsNotCalled(t *testing.T) {
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, nil)
		called := 0
		if err := midge.HandleRaw(b.runner, "label", func(ctx context.Context, _ midge.RawJob) error {
			_, err := midge.Step(ctx, "charge", func(context.Context) (int, error) {
				called++
				return 7, nil
			})
			if invalid, ok := errors.AsType[*midge.InvalidError](err); !ok || !strings.Contains(invalid.Got, "cbor") {
				t.Errorf("the step returned %v, want an *InvalidError that names the encoding", err)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		in := storage.Insert{
			Ref: storage.Ref{Queue: midge.DefaultQueue, ID: "1"}, Kind: "label", Encoding: "cbor", CrashLimit: 3,
			MaxRetries: 5, Payload: []byte{0xa0},
		}
		_, err := b.store.Apply(b.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{in}})
		if err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		if task := b.task(in.Ref); called != 0 || task.State != storage.Retry {
			t.Errorf("called %d times, and the task is %s; want no call, and a retry", called, task.State)
		}
	})
}
