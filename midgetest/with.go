package midgetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// With matches the tasks that were enqueued with these options, whether the call or the type's
// Options set them: the queue, the partition, the priority, the cost, the id, the headers, the
// retries and so on. Values that the options do not set may be anything.
//
//	midgetest.With(midge.To("mail"), midge.In(time.Hour), midge.Header("tenant", "7"))
//
// [midge.In] and [midge.At] match a task that is still scheduled for that moment, and In(0) a task
// that is due now. A [midge.Unique] matches if its key is the task's own unique key.
func With(opts ...midge.Option) Match {
	return Match{read: func(ctx context.Context) Match { return readOptions(ctx, opts) }}
}

// readOptions returns the match of options.
func readOptions(ctx context.Context, opts []midge.Option) Match {
	var uniques, others []midge.Option
	var names []string
	for _, o := range opts {
		if u, ok := o.(midge.Unique); ok {
			uniques = append(uniques, o)
			names = append(names, fmt.Sprintf("Unique%+v", u))
		} else {
			others = append(others, o)
		}
	}
	said, err := saidBy(ctx, others)
	if invalid := (*midge.InvalidError)(nil); errors.As(err, &invalid) {
		err = fmt.Errorf("with: %w", invalid)
	}
	for _, s := range said {
		names = append(names, s.text)
	}
	return Match{
		text: strings.Join(names, ", "), err: err,
		why: func(t *midge.Task, job any) string {
			for _, s := range said {
				if got := s.got(t); got != "" {
					return got
				}
			}
			return uniqueDiffers(ctx, t, job, uniques)
		},
	}
}

// saying is a value that options set.
type saying struct {
	text string
	got  func(t *midge.Task) string // what a task has instead; "" if it has the same
}

// The values that options set are found by enqueueing with them, for two types whose own options
// differ in everything. If both inserts have the same value, the options have set it.
type (
	probeA struct{}
	probeB struct{}
)

func (probeA) Options() midge.Options {
	return midge.Options{
		Queue: "a", Partition: "a", Priority: 1, Cost: 2, Retries: 1, CrashLimit: 1, Timeout: time.Hour,
		Encoding: midge.JSON, Keep: midge.Keep{For: time.Hour}, Unique: &midge.Unique{Key: "a"},
		Headers: map[string]string{},
	}
}

func (probeB) Options() midge.Options {
	return midge.Options{
		Queue: "b", Partition: "b", Priority: 2, Cost: 3, Retries: 2, CrashLimit: 2, Timeout: 2 * time.Hour,
		Encoding: midge.JSON, Keep: midge.Keep{For: 2 * time.Hour}, Unique: &midge.Unique{Key: "b"},
		Headers: map[string]string{},
	}
}

// readings holds the inserts of both types, with the options and without.
type readings struct{ a, b, bareA, bareB storage.Insert }

// saidBy returns the values that options set.
func saidBy(ctx context.Context, opts []midge.Option) ([]saying, error) {
	var r readings
	for _, one := range []struct {
		into  *storage.Insert
		probe any
		opts  []midge.Option
	}{{&r.a, probeA{}, opts}, {&r.b, probeB{}, opts}, {&r.bareA, probeA{}, nil}, {&r.bareB, probeB{}, nil}} {
		var err error
		if *one.into, err = insertOf(ctx, one.probe, one.opts); err != nil {
			return nil, err
		}
	}
	var all []saying
	add := func(name string, in func(*storage.Insert) any, of func(*midge.Task) any) {
		want := in(&r.a)
		if want != in(&r.b) || want == in(&r.bareA) && want == in(&r.bareB) {
			return
		}
		all = append(all, saying{name + " " + shown(want), func(t *midge.Task) string {
			if got := of(t); got != want {
				return name + " is " + shown(got)
			}
			return ""
		}})
	}
	add("queue",
		func(in *storage.Insert) any { return in.Ref.Queue }, func(t *midge.Task) any { return t.Queue })
	add("id",
		func(in *storage.Insert) any { return in.Ref.ID }, func(t *midge.Task) any { return t.ID })
	add("unique",
		func(in *storage.Insert) any { return in.Unique.Key != "" },
		func(t *midge.Task) any { return t.Unique.Key != "" })
	for _, name := range common() {
		add(name,
			func(in *storage.Insert) any { return reflect.ValueOf(*in).FieldByName(name).Interface() },
			func(t *midge.Task) any { return reflect.ValueOf(*t).FieldByName(name).Interface() })
	}
	for _, name := range slices.Sorted(maps.Keys(r.a.Headers)) {
		add("header "+name,
			func(in *storage.Insert) any { return header(in.Headers, name) },
			func(t *midge.Task) any { return header(t.Headers, name) })
	}
	// Beside another option for the moment, In is refused.
	if _, err := insertOf(ctx, probeA{}, append(slices.Clip(opts), midge.In(0))); err != nil {
		all = append(all, dueSaying(&r.a))
	}
	return all, nil
}

// header returns the value of a header, or nil if it is absent.
func header(headers map[string]string, name string) any {
	if value, ok := headers[name]; ok {
		return value
	}
	return nil
}

// shown formats a value of an option.
func shown(value any) string {
	if value == nil {
		return "absent"
	}
	if value == storage.NoTimeout {
		return "none"
	}
	if cost, ok := value.(storage.Cost); ok {
		return strconv.Itoa(cost.N())
	}
	return fmt.Sprint(value)
}

// common returns the names of the fields that an insert and a task share, and options set:
// priority, retries, timeout, keep and so on.
func common() (names []string) {
	insert, task := reflect.TypeFor[storage.Insert](), reflect.TypeFor[midge.Task]()
	for f := range insert.Fields() {
		other, ok := task.FieldByName(f.Name)
		apart := slices.Contains([]string{"Ref", "Kind", "Unique", "Cursor"}, f.Name)
		if ok && other.Type == f.Type && f.Type.Comparable() && !apart {
			names = append(names, f.Name)
		}
	}
	return names
}

// dueSaying returns the moment that the options set, at which a task is due.
func dueSaying(in *storage.Insert) saying {
	text, now := fmt.Sprintf("due in %v", in.Delay), in.At.IsZero() && in.Delay == 0
	if !in.At.IsZero() {
		text = fmt.Sprintf("due at %v", in.At)
	}
	return saying{text, func(t *midge.Task) string {
		switch {
		case now && t.Due.IsZero():
			return ""
		case t.Due.IsZero():
			return "it is due now"
		case in.At.IsZero() && t.Due.Sub(t.Created) != in.Delay:
			return fmt.Sprintf("it is due in %v", t.Due.Sub(t.Created))
		case !in.At.IsZero() && !t.Due.Equal(in.At):
			return fmt.Sprintf("it is due at %v", t.Due)
		}
		return ""
	}}
}

// uniqueDiffers returns how a task's unique key differs from the key that options set for its job;
// "" if it does not.
func uniqueDiffers(ctx context.Context, t *midge.Task, job any, uniques []midge.Option) string {
	if len(uniques) == 0 || job == nil {
		return ""
	}
	in, err := insertOf(ctx, job, uniques)
	switch {
	case err != nil:
		return err.Error()
	case t.Unique.Key == "":
		return "it is not unique"
	case t.Unique != in.Unique:
		return "it is unique in another way"
	}
	return ""
}

// prepared is a storage for jobs that were enqueued before.
type prepared struct{ storage.Storage }

// Prepared is part of the interface, and never called.
func (prepared) Prepared() {}

// insertOf returns the insert that enqueueing a job would send to the storage. It does not call the job's
// BeforeEnqueue.
func insertOf(ctx context.Context, job any, opts []midge.Option) (storage.Insert, error) {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		return storage.Insert{}, err
	}
	client, err := midge.NewClient(prepared{store}, midge.ClientConfig{MaxPayload: storage.MaxPayloadCap})
	if err != nil {
		return storage.Insert{}, err
	}
	var into recorder
	_, err = client.With(&into).Enqueue(ctx, job, opts...) // nothing is stored
	return into.insert, err
}

// recorder is a transaction that keeps the insert.
type recorder struct{ insert storage.Insert }

// Apply keeps the insert.
func (r *recorder) Apply(_ context.Context, _ storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	r.insert = txs[0].Inserts[0]
	return []storage.Applied{{Inserted: []storage.Placed{{Ref: r.insert.Ref, State: storage.Waiting}}}}, nil
}
