package midge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/steps"
	"github.com/midgehq/midge/storage"
)

// jsonOrder and packedOrder are jobs of one kind, as a program declares it before and after a change of the encoding.
type (
	jsonOrder   struct{ Number int }
	packedOrder struct{ Number int }
)

func (jsonOrder) Kind() string             { return "order" }
func (jsonOrder) Options() midge.Options   { return midge.Options{Encoding: midge.JSON} }
func (packedOrder) Kind() string           { return "order" }
func (packedOrder) Options() midge.Options { return midge.Options{Encoding: midge.MessagePack} }

// orders runs jobs with a step and a checkpoint, which fail until their number is 2. It collects their steps
// and the values that they read.
type orders struct{ seen []string }

func (o *orders) run(ctx context.Context, number int) error {
	n, err := midge.Step(ctx, "account", func(context.Context) (int, error) {
		o.seen = append(o.seen, "called")
		return 7, nil
	})
	if err != nil {
		return err
	}
	var place int
	found, err := midge.LoadCheckpoint(ctx, &place)
	o.seen = append(o.seen, fmt.Sprint(number, n, place, found, err))
	if number == 2 {
		return nil
	}
	return errors.Join(midge.Checkpoint(ctx, 9), midge.Discard(errBroken))
}

// TestAChangeOfParametersKeepsStepsReadable checks that a task whose parameters are replaced by a program that declares
// another encoding of the kind still returns the results of its steps and its checkpoint as they were stored.
func TestAChangeOfParametersKeepsStepsReadable(t *testing.T) {
	for _, c := range []struct{ first, change any }{
		{jsonOrder{1}, packedOrder{2}}, {packedOrder{1}, jsonOrder{2}}, {jsonOrder{1}, jsonOrder{2}},
	} {
		bubble(t, func(b *bench) {
			var did orders
			b.runner = must1(midge.NewRunner(b.store, midge.RunnerConfig{}))
			if _, packed := c.change.(packedOrder); packed {
				must(midge.Handle(b.runner, func(ctx context.Context, o packedOrder) error { return did.run(ctx, o.Number) }))
			} else {
				must(midge.Handle(b.runner, func(ctx context.Context, o jsonOrder) error { return did.run(ctx, o.Number) }))
			}
			go func() { b.done <- b.runner.Run(b.ctx) }()
			task, err := b.client.Enqueue(b.ctx, c.first)
			if err != nil {
				t.Fatal(err)
			}
			b.after(time.Minute)
			if err := b.client.ChangeJob(b.ctx, task.Ref, c.change); err != nil {
				t.Fatal(err)
			}
			if err := b.client.Requeue(b.ctx, task.Ref); err != nil {
				t.Fatal(err)
			}
			b.after(time.Minute)
			if want := []string{"called", "1 7 0 false <nil>", "2 7 9 true <nil>"}; !slices.Equal(did.seen, want) {
				t.Errorf("%T, then %T: the job saw %q, want %q", c.first, c.change, did.seen, want)
			}
		})
	}
}

// TestAChangeOfParametersInAnUnknownEncoding checks that the encoding of a task becomes that of its kind if midge does
// not know it, unless the task has steps or a checkpoint, which would become unreadable.
func TestAChangeOfParametersInAnUnknownEncoding(t *testing.T) {
	bubble(t, func(b *bench) {
		session := storage.NewSession(b.store, 0)
		insert := func(id string) storage.Ref {
			in := storage.Insert{Ref: storage.Ref{Queue: "q", ID: id}, Kind: "order", Encoding: "cbor", Payload: []byte{1}, CrashLimit: 3}
			if _, err := session.ApplyOne(b.ctx, storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
				t.Fatal(err)
			}
			return in.Ref
		}
		plain, begun := insert("plain"), insert("begun")
		claimed, err := session.Claim(b.ctx, storage.ClaimRequest{
			Queues: []storage.ClaimQueue{{Name: "q"}}, Start: 2, Lease: time.Minute, Runner: "r",
		})
		if err != nil || len(claimed.Fences) != 2 {
			t.Fatal(claimed, err)
		}
		envelope := steps.Envelope{Steps: []steps.Step{{Name: "s", Result: []byte{2}}}}
		_, err = session.Extend(b.ctx, storage.ExtendRequest{Leases: []storage.Extension{
			{Fence: claimed.Fences[1], For: time.Minute, Started: true, Checkpoint: envelope.Encode()},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range claimed.Fences {
			if _, err := session.ApplyOne(b.ctx, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Bury}}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.client.ChangeJob(b.ctx, plain, packedOrder{2}); err != nil {
			t.Error(err)
		}
		if got := b.task(plain); got.Encoding != "msgpack" {
			t.Errorf("the encoding is %q, want that of the kind", got.Encoding)
		}
		var invalid *midge.InvalidError
		if err := b.client.ChangeJob(b.ctx, begun, packedOrder{2}); !errors.As(err, &invalid) {
			t.Errorf("beside a stored step: got %v, want an InvalidError", err)
		}
	})
}

// TestAChangeOfParametersIsBoundedInTheEncodingOfTheTask checks the bound of the client on the bytes that are stored:
// JSON takes a third more for bytes than MessagePack.
func TestAChangeOfParametersIsBoundedInTheEncodingOfTheTask(t *testing.T) {
	bubble(t, func(b *bench) {
		client := must1(midge.NewClient(b.store, midge.ClientConfig{MaxPayload: 1000}))
		task := must1(client.Enqueue(b.ctx, jsonBlob{}))
		var invalid *midge.InvalidError
		if err := client.ChangeJob(b.ctx, task.Ref, packedBlob{make([]byte, 900)}); !errors.As(err, &invalid) {
			t.Errorf("got %v, want an InvalidError", err)
		}
		if err := client.ChangeJob(b.ctx, task.Ref, packedBlob{make([]byte, 600)}); err != nil {
			t.Error(err)
		}
		packed := must1(client.Enqueue(b.ctx, packedBlob{}))
		if err := client.ChangeJob(b.ctx, packed.Ref, jsonBlob{make([]byte, 900)}); err != nil {
			t.Errorf("what fits in the encoding of the task alone: %v", err)
		}
		if err := client.ChangeJob(b.ctx, packed.Ref, jsonBlob{make([]byte, 1100)}); !errors.As(err, &invalid) {
			t.Errorf("got %v, want an InvalidError", err)
		}
	})
}

// jsonBlob and packedBlob are jobs of one kind with bytes.
type (
	jsonBlob   struct{ Bytes []byte }
	packedBlob struct{ Bytes []byte }
)

func (jsonBlob) Kind() string             { return "blob" }
func (jsonBlob) Options() midge.Options   { return midge.Options{Encoding: midge.JSON} }
func (packedBlob) Kind() string           { return "blob" }
func (packedBlob) Options() midge.Options { return midge.Options{Encoding: midge.MessagePack} }

// money reads and writes itself in MessagePack alone.
type money struct{ cents int } //nolint:recvcheck // a decoder changes it

func (m money) MarshalMsgpack() ([]byte, error) { return []byte{byte(m.cents)}, nil }

func (m *money) UnmarshalMsgpack(b []byte) error {
	m.cents = int(b[0])
	return nil
}

func (m money) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `{"cents":%d}`, m.cents), nil }

type bill struct{ Sum money }

func (bill) Kind() string { return "blob" }

// TestAChangeOfParametersIsReadable refuses parameters whose type does not come back in the encoding of the task.
func TestAChangeOfParametersIsReadable(t *testing.T) {
	bubble(t, func(b *bench) {
		task := must1(b.client.Enqueue(b.ctx, jsonBlob{}))
		client := must1(midge.NewClient(b.store, midge.ClientConfig{}))
		var invalid *midge.InvalidError
		if err := client.ChangeJob(b.ctx, task.Ref, bill{money{7}}); !errors.As(err, &invalid) {
			t.Errorf("got %v, want an InvalidError", err)
		}
	})
}

// tenancy is a job whose method BeforeEnqueue fills in a field and refuses jobs that must not be enqueued.
type tenancy struct {
	Amount int
	Tenant string
}

func (p *tenancy) BeforeEnqueue(context.Context) error {
	if p.Amount < 0 {
		return errBroken
	}
	p.Tenant = "acme"
	return nil
}

func (p *tenancy) Partition() string         { return p.Tenant }
func (p *tenancy) Run(context.Context) error { return nil }

// TestAChangeOfParametersCallsBeforeEnqueue checks that new parameters pass the check of the job as the
// parameters of an enqueue do, and have the fields that it fills in.
func TestAChangeOfParametersCallsBeforeEnqueue(t *testing.T) {
	bubble(t, func(b *bench) {
		task, err := b.client.Enqueue(b.Context(), &tenancy{Amount: 1})
		if err != nil {
			t.Fatal(err)
		}
		before := b.task(task.Ref)
		if err := b.client.ChangeJob(b.Context(), task.Ref, &tenancy{Amount: -3}); !errors.Is(err, errBroken) {
			t.Errorf("got %v, want the error of BeforeEnqueue", err)
		}
		if after := b.task(task.Ref); after.Version != before.Version {
			t.Errorf("the refused change made version %d of %d", after.Version, before.Version)
		}
		if err := b.client.ChangeJob(b.Context(), task.Ref, &tenancy{Amount: 5}); err != nil {
			t.Fatal(err)
		}
		var job tenancy
		after := b.task(task.Ref)
		if err := midge.Decode(after, &job); err != nil || job != (tenancy{5, "acme"}) || after.Partition != "acme" {
			t.Errorf("got %+v in partition %q, %v", job, after.Partition, err)
		}
	})
}
