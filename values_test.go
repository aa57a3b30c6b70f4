package midge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// carrier is a job that carries a value of any type, and cartons are its twin in the other encoding.
type (
	carrier struct{ V any }
	carton  struct{ V any }
)

func (carton) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

// cents hides its content. It has the methods of one encoding, so that it vanishes in the other.
type (
	cents  struct{ n int64 }
	binary struct{ n byte }
)

func (c cents) MarshalJSON() ([]byte, error)      { return json.Marshal(c.n) }
func (c *cents) UnmarshalJSON(b []byte) error     { return json.Unmarshal(b, &c.n) }
func (b binary) MarshalBinary() ([]byte, error)   { return []byte{b.n}, nil }
func (b *binary) UnmarshalBinary(of []byte) error { b.n = of[0]; return nil }

type (
	client struct {
		Name   string
		Orders []*purchase
	}
	purchase struct{ Client *client }
)

// itself returns a value that contains itself.
func itself() *client {
	c := &client{Name: "ann"}
	c.Orders = []*purchase{{c}}
	return c
}

// tooDeep is the error of 101 levels.
const tooDeep = ` "nested too deep": want at most 100 levels`

// jobOf returns a job of an encoding that carries a value.
func jobOf(encoding midge.Encoding, v any) any {
	if encoding == midge.JSON {
		return carton{v}
	}
	return carrier{v}
}

// bad is a value that does not come back, and a part of the error about it.
type bad struct {
	v    any
	want string
}

// badValues returns a value of each kind.
func badValues(encoding midge.Encoding) map[string]bad {
	type late struct {
		time.Time

		N int
	}
	hidden := any(cents{5})
	if encoding == midge.JSON {
		hidden = binary{5}
	}
	all := map[string]bad{
		"a value that contains itself": {itself(), tooDeep}, "a hidden value": {hidden, "of type "}, "one in a list": {[]any{hidden}, "[] of"},
		"an error": {errors.New("x"), "of type errors.errorString"}, "an embedded moment": {late{time.Now(), 1}, "N of"},
	}
	if encoding == midge.JSON {
		all["text"] = bad{"caf\xe9", "text that is not UTF-8"}
		all["keys"] = bad{map[string]int{"a\xff": 1, "a\xfe": 2}, "[key]"}
	}
	return all
}

// TestNoValueIsStoredThatDoesNotComeBack passes bad values to each function that encodes one. Nothing
// may be stored.
func TestNoValueIsStoredThatDoesNotComeBack(t *testing.T) {
	for _, encoding := range []midge.Encoding{midge.MessagePack, midge.JSON} {
		for name, v := range badValues(encoding) {
			bubble(t, func(b *bench) {
				for verb, err := range refusedByClient(b, encoding, v.v) {
					wantsInvalid(t, string(encoding)+" "+verb+" of "+name, err, v.want)
				}
				inJob(b, encoding, func(ctx context.Context) {
					for verb, err := range map[string]error{
						"FollowUp": midge.FollowUp(ctx, jobOf(encoding, v.v)), "SetResult": midge.SetResult(ctx, v.v),
						"Checkpoint": midge.Checkpoint(ctx, v.v), "SetResult within": midge.SetResult(ctx, map[string]any{"a": v.v}),
					} {
						wantsInvalid(t, string(encoding)+" "+verb+" of "+name, err, v.want)
					}
					if name != "text" && name != "keys" && name != "a hidden value" && name != "one in a list" {
						wantsInvalid(t, "Progress of "+name, midge.Progress(ctx, v.v), v.want)
					}
				})
				if s := b.stats("default"); s.Waiting+s.Scheduled > 0 {
					t.Errorf("%s of %s: got %+v, want no task", encoding, name, s)
				}
			})
		}
	}
}

// refusedByClient passes a value to each function outside jobs that encodes one.
func refusedByClient(b *bench, encoding midge.Encoding, v any) map[string]error {
	first, err := b.client.Enqueue(b.ctx, jobOf(encoding, "x"), midge.To("waiting"))
	must(err)
	runner, err := midge.NewRunner(b.store, midge.RunnerConfig{})
	must(err)
	job := jobOf(encoding, v)
	results, _ := b.client.EnqueueMany(b.ctx, []midge.Item{midge.New(job), midge.New(job, midge.Unique{})})
	_, err1 := b.client.Enqueue(b.ctx, job)
	_, err2 := b.client.EnqueueIn(b.ctx, time.Hour, job)
	_, err3 := b.client.EnqueueAt(b.ctx, time.Now().Add(time.Hour), job)
	_, err4 := b.client.Enqueue(b.ctx, job, midge.Unique{By: []string{"V"}})
	return map[string]error{
		"Enqueue": err1, "EnqueueIn": err2, "EnqueueAt": err3, "Unique": err4, "EnqueueMany": results[0].Err,
		"EnqueueMany unique": results[1].Err, "ChangeJob": b.client.ChangeJob(b.ctx, first.Ref, job),
		"Periodic": runner.Periodic(midge.Every(time.Hour), job),
	}
}

// inJob runs do in a job of an encoding.
func inJob(b *bench, encoding midge.Encoding, do func(ctx context.Context)) {
	b.Helper()
	r, err := midge.NewRunner(b.store, midge.RunnerConfig{})
	must(err)
	must(midge.Handle(r, func(ctx context.Context, _ carrier) error { do(ctx); return nil }))
	must(midge.Handle(r, func(ctx context.Context, _ carton) error { do(ctx); return nil }))
	task, err := b.client.Enqueue(b.ctx, jobOf(encoding, "x"), midge.KeepFor(time.Hour))
	must(err)
	must(r.Start(b.ctx))
	must(b.client.Await(b.ctx, task.Ref, nil))
	must(r.Shutdown(b.ctx))
}

func wantsInvalid(t *testing.T, what string, err error, word string) {
	t.Helper()
	var invalid *midge.InvalidError
	if !errors.As(err, &invalid) || !strings.Contains(err.Error(), word) {
		t.Errorf("%s: got %v, want an *InvalidError with %q", what, err, word)
	}
}

// Each of these job types loses something, or cannot be run.
type (
	invoice  struct{ Total cents }
	sealed   struct{ Seal binary }
	reminder struct {
		time.Time

		Note string
	}
	meeting struct {
		A int `json:"x" msgpack:"x"`
		B int `json:"y" msgpack:"x"`
	}
	visit struct{ Guests []error }
	base  struct{ N int }
	stop  struct{ *base }
)

func (sealed) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

func TestAJobTypeThatLosesValuesIsRefusedEarly(t *testing.T) {
	bubble(t, func(b *bench) {
		for field, err := range map[string][]error{
			"Total": refusals(b, invoice{}), "Seal": refusals(b, sealed{}), "Note": refusals(b, reminder{}), "A": refusals(b, meeting{}),
			"Guests[]": refusals(b, visit{}), "base": refusals(b, stop{}),
		} {
			for i, err := range err {
				wantsInvalid(t, fmt.Sprint("way ", i), err, "invalid field "+field+" of midge_test.")
			}
		}
	})
}

// refusals returns the errors of the ways in which a job type becomes known.
func refusals[J any](b *bench, job J) []error {
	r, err := midge.NewRunner(b.store, midge.RunnerConfig{})
	must(err)
	_, err1 := b.client.Enqueue(b.ctx, job)
	_, err2 := b.client.EnqueueMany(b.ctx, []midge.Item{midge.New(&job)})
	return []error{midge.Handle(r, func(context.Context, J) error { return nil }), r.Periodic(midge.Every(time.Hour), job), err1, err2}
}

func (invoice) Run(context.Context) error { return nil }

func TestRegisterNamesTheFieldAndWhatWorks(t *testing.T) {
	bubble(t, func(b *bench) {
		r, err := midge.NewRunner(b.store, midge.RunnerConfig{})
		must(err)
		want := `midge: register: invalid field Total of midge_test.invoice "of type midge_test.cents": want exported fields in it, ` +
			"or MarshalMsgpack, MarshalBinary or MarshalText with the method that reads it back: msgpack stores nothing else of a type, " +
			"and calls none of its methods, as Options.Encoding json does; `msgpack:\"-\"` leaves a field out"
		if err := midge.Register[invoice](r); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
}

// Numbers of an any keep their value along a chain of follow-ups, and in results, checkpoints and
// progress.
func TestNumbersOfAnAnyStayTheSame(t *testing.T) {
	const large = 616581622363398142
	for _, encoding := range []midge.Encoding{midge.MessagePack, midge.JSON} {
		for _, n := range []int64{1, 127, 128, 255, 65536, -129, large, -large} {
			want, digits := any(n), json.Number(fmt.Sprint(n))
			if encoding == midge.JSON {
				want = digits
			}
			bubble(t, func(b *bench) {
				task, seen := chain(b, encoding, n)
				var progress, again any
				must(midge.DecodeProgress(task, &progress))
				must(midge.DecodeResult(task, &again))
				seen["decoded result"] = again.(map[string]any)["n"]
				for where, got := range seen {
					if got != want {
						t.Errorf("%s, %s: got %T %v, want %T %v", encoding, where, got, got, want, want)
					}
				}
				if progress != digits {
					t.Errorf("%s: got progress %T %v, want all digits of %v", encoding, progress, progress, n)
				}
			})
		}
	}
}

// chain enqueues a value, and runs its job and three follow-ups with the value that each got. It
// returns the last task, and the values that were seen.
func chain(b *bench, encoding midge.Encoding, v any) (last midge.Task, seen map[string]any) {
	b.Helper()
	seen = make(map[string]any)
	end := make(chan midge.Ref, 1)
	run := func(ctx context.Context, v any) error {
		seen[fmt.Sprint("step ", len(seen))] = v
		info, _ := midge.Current(ctx)
		if len(seen) < 4 {
			return midge.FollowUp(ctx, jobOf(encoding, v))
		}
		var back any
		must(midge.Checkpoint(ctx, v))
		_, err := midge.LoadCheckpoint(ctx, &back)
		seen["checkpoint"] = back
		end <- info.Ref
		return errors.Join(err, midge.Progress(ctx, v), midge.SetResult(ctx, map[string]any{"n": v}))
	}
	r, err := midge.NewRunner(b.store, midge.RunnerConfig{})
	must(err)
	must(midge.Handle(r, func(ctx context.Context, c carrier) error { return run(ctx, c.V) }))
	must(midge.Handle(r, func(ctx context.Context, c carton) error { return run(ctx, c.V) }))
	_, err = b.client.Enqueue(b.ctx, jobOf(encoding, v))
	must(err)
	must(r.Start(b.ctx))
	var result map[string]any
	ref := <-end
	must(b.client.Await(b.ctx, ref, &result))
	must(r.Shutdown(b.ctx))
	seen["awaited result"] = result["n"]
	last, err = b.client.Task(b.ctx, ref)
	must(err)
	return last, seen
}

type latinUnique struct{ Name string }

func (latinUnique) Options() midge.Options {
	return midge.Options{Encoding: midge.JSON, Unique: &midge.Unique{}}
}

func TestTwoTextsThatAreNotUTF8AreNotOne(t *testing.T) {
	bubble(t, func(b *bench) {
		for _, name := range []string{"caf\xe9", "caf\xe8"} {
			task, err := b.client.Enqueue(b.ctx, latinUnique{name})
			wantsInvalid(t, "Enqueue", err, "invalid field Name of midge_test.latinUnique")
			if task.Existing {
				t.Errorf("%q: got the task of another job", name)
			}
		}
		var progress string
		inJob(b, midge.JSON, func(ctx context.Context) {
			must(midge.Progress(ctx, "caf\xe9"))
			info, _ := midge.Current(ctx)
			task, err := b.client.Task(ctx, info.Ref)
			must(err)
			must(midge.DecodeProgress(task, &progress))
		})
		if progress != "caf\ufffd" {
			t.Errorf("got progress %q, want U+FFFD", progress)
		}
	})
}

// dates has moments in both encodings' jobs.
type dates struct {
	At  time.Time
	All []*time.Time
	Any any
}

func TestMomentsOfMessagePackAreInUTC(t *testing.T) {
	zone := time.FixedZone("Auckland", 13*60*60)
	local := time.Local                      //nolint:gosmopolitan // the local zone is under test
	t.Cleanup(func() { time.Local = local }) //nolint:gosmopolitan // as above
	time.Local = zone                        //nolint:gosmopolitan // as above
	at := time.Date(2026, 3, 8, 0, 30, 0, 0, zone)
	want := time.Date(2026, 3, 7, 11, 30, 0, 0, time.UTC)
	bubble(t, func(b *bench) {
		var ran dates
		var loaded, result time.Time
		r, err := midge.NewRunner(b.store, midge.RunnerConfig{})
		must(err)
		must(midge.Handle(r, func(ctx context.Context, d dates) error {
			ran = d
			must(midge.Checkpoint(ctx, at))
			_, err := midge.LoadCheckpoint(ctx, &loaded)
			must(err)
			return midge.SetResult(ctx, at)
		}))
		task, err := b.client.Enqueue(b.ctx, dates{at, []*time.Time{&at}, []any{at}})
		must(err)
		must(r.Start(b.ctx))
		must(b.client.Await(b.ctx, task.Ref, &result))
		must(r.Shutdown(b.ctx))
		if ran.At != want || *ran.All[0] != want || ran.Any.([]any)[0] != want || loaded != want || result != want {
			t.Errorf("got %+v, checkpoint %v, result %v; want %v", ran, loaded, result, want)
		}
	})
}

// These are the keys that 2173b82 made.
func TestUniqueKeysStayAsTheyAre(t *testing.T) {
	bubble(t, func(b *bench) {
		for want, in := range map[string]midge.Option{
			"30gk1s4cqer8hgfqafsf6qv82c": midge.Unique{}, "8bi64lakvs70o767qhnv710gm4": midge.Unique{For: time.Hour},
			"hf7ik3l235d2pmcmjhkn052r2o": midge.Unique{By: []string{"User", "Notes"}}, "7bppqqakote6lupf4e2dru0hog": midge.Unique{Key: "k"},
		} {
			task, err := b.client.Enqueue(b.ctx, payment{7, "12", map[string]string{"b": "2", "a": "1"}}, in)
			if err != nil || task.Unique.Key != want {
				t.Errorf("%+v: got key %s, %v; want %s", in, task.Unique.Key, err, want)
			}
		}
		for want, in := range map[string]midge.Option{
			"7c64tfj3d6mi0102pql9tg6o94": midge.Unique{}, "qdn9ldvpc1b16qd4ogt2jm6nc4": midge.Unique{For: time.Hour},
			"58bf8ve7a0budadqsjlmb4j10s": midge.Unique{By: []string{"User", "Notes"}},
		} {
			task, err := b.client.Enqueue(b.ctx, paymentJSON{7, "12", map[string]string{"b": "2", "a": "1"}}, in)
			if err != nil || task.Unique.Key != want {
				t.Errorf("%+v: got key %s, %v; want %s", in, task.Unique.Key, err, want)
			}
		}
	})
}

type payment struct {
	User   int
	Amount string
	Notes  map[string]string
}

type paymentJSON payment

func (paymentJSON) Kind() string           { return "payment" }
func (paymentJSON) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

// These facts stand beside Unique.
func TestWhatUniqueComparesIsEncoded(t *testing.T) {
	type notes map[string]string
	at := time.Date(2026, 3, 8, 0, 30, 0, 0, time.UTC)
	there := at.In(time.FixedZone("Auckland", 13*60*60))
	bubble(t, func(b *bench) {
		existing := func(one, other any) bool {
			_, err := b.client.Enqueue(b.ctx, one, midge.Unique{})
			must(err)
			task, err := b.client.Enqueue(b.ctx, other, midge.Unique{})
			must(err)
			return task.Existing
		}
		for name, c := range map[string]struct {
			one, other any
			same       bool
		}{
			"a nil and an empty slice":               {carrier{[]int(nil)}, carrier{[]int{}}, false},
			"a nil and an empty slice as JSON":       {carton{[]int(nil)}, carton{[]int{}}, false},
			"a nil and an empty map":                 {carrier{notes(nil)}, carrier{notes{}}, false},
			"a nil and an empty map as JSON":         {carton{notes(nil)}, carton{notes{}}, false},
			"one moment in two zones as MessagePack": {carrier{at}, carrier{there}, true},
			"one moment in two zones as JSON":        {carton{at}, carton{there}, false},
			"two moments in one zone as MessagePack": {carrier{at}, carrier{at.Add(1)}, false},
		} {
			must(b.client.Queue("default").Remove(b.ctx))
			if got := existing(c.one, c.other); got != c.same {
				t.Errorf("%s: got one task %t, want %t", name, got, c.same)
			}
		}
		window := []midge.Option{midge.Unique{For: time.Hour}, midge.In(2 * time.Hour)}
		_, err := b.client.Enqueue(b.ctx, carrier{1}, window...)
		must(err)
		b.after(time.Hour + time.Second) // the first task is not even due
		if task, err := b.client.Enqueue(b.ctx, carrier{1}, window...); err != nil || task.Existing {
			t.Errorf("after an hour: got %+v, %v; want another task, as the window counts from the enqueueing", task, err)
		}
	})
}

// A rename in storage takes three deploys. Programs of two deploys in a row run at the same time.
func TestARenameInThreeDeploysEmptiesNoField(t *testing.T) {
	for _, encoding := range []midge.Encoding{midge.MessagePack, midge.JSON} {
		renameOptions = midge.Options{Encoding: encoding, Unique: &midge.Unique{}}
		steps := []rename{
			renameOf(func(to string) rename0 { return rename0{to} }, func(r rename0) string { return r.Recipient }),
			renameOf(func(to string) rename1 { return rename1{to} }, func(r rename1) string { return r.To }),
			renameOf(func(to string) rename2 { return rename2{to} }, func(r rename2) string { return r.To }),
			renameOf(func(to string) rename3 { return rename3{to} }, func(r rename3) string { return r.To }),
		}
		for i := range steps {
			for _, writer := range steps[max(0, i-1):min(len(steps), i+2)] {
				bubble(t, func(b *bench) {
					if got := steps[i].run(b, writer.make("ann")); got != "ann" {
						t.Errorf("%s: program %d ran a task of its neighbour for %q, want ann", encoding, i, got)
					}
					one, err := b.client.Enqueue(b.ctx, steps[i].make("bob"))
					must(err)
					other, err := b.client.Enqueue(b.ctx, writer.make("bob"))
					if err != nil || other.Ref != one.Ref {
						t.Errorf("%s: program %d let a duplicate in: %+v, %v", encoding, i, other, err)
					}
				})
			}
		}
	}
}

// These are the steps of a rename, as docs/deploying.md has them.
type (
	rename0 struct{ Recipient string }
	rename1 struct {
		To string `json:"Recipient" msgpack:"Recipient"`
	}
	rename2 struct {
		To string `json:"Recipient" midge:"was=Recipient,was=To" msgpack:"Recipient"`
	}
	rename3 struct {
		To string `midge:"was=Recipient"`
	}
)

// renameOptions are their options; the test sets them.
var renameOptions midge.Options

func (rename0) Kind() string           { return "rename" }
func (rename1) Kind() string           { return "rename" }
func (rename2) Kind() string           { return "rename" }
func (rename3) Kind() string           { return "rename" }
func (rename0) Options() midge.Options { return renameOptions }
func (rename1) Options() midge.Options { return renameOptions }
func (rename2) Options() midge.Options { return renameOptions }
func (rename3) Options() midge.Options { return renameOptions }

// rename is a program of one step.
type rename struct {
	make func(to string) any
	run  func(b *bench, job any) string // enqueues a job and runs it
}

func renameOf[J any](of func(to string) J, to func(J) string) rename {
	return rename{
		make: func(to string) any { return of(to) },
		run: func(b *bench, job any) (got string) {
			r, err := midge.NewRunner(b.store, midge.RunnerConfig{})
			must(err)
			must(midge.Handle(r, func(_ context.Context, j J) error { got = to(j); return nil }))
			task, err := b.client.Enqueue(b.ctx, job, midge.KeepFor(time.Hour))
			must(err)
			must(r.Start(b.ctx))
			must(b.client.Await(b.ctx, task.Ref, nil))
			must(r.Shutdown(b.ctx))
			return got
		},
	}
}

// These are the programs of a rolling deploy that renames Amount. The old one is strict.
type (
	chargeOld struct{ Amount int }
	chargeNew struct {
		Total int `midge:"was=Amount"`
	}
	chargeBoth struct {
		Total int `json:"Amount" msgpack:"Amount"`
	}
	chargeNewJSON  chargeNew
	chargeBothJSON chargeBoth
)

func (chargeOld) Kind() string               { return "charge" }
func (chargeOld) Options() midge.Options     { return midge.Options{Strict: true} }
func (chargeNew) Kind() string               { return "charge" }
func (chargeNewJSON) Kind() string           { return "charge" }
func (chargeNewJSON) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }
func (chargeBoth) Kind() string              { return "charge" }
func (chargeBothJSON) Kind() string          { return "charge" }
func (chargeBothJSON) Options() midge.Options {
	return midge.Options{Encoding: midge.JSON}
}

// charges collects the amounts that jobs charged, of which several may run at once.
type charges struct {
	mu      sync.Mutex // guards amounts
	amounts []int
}

func (c *charges) add(amount int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.amounts = append(c.amounts, amount)
	return nil
}

func (c *charges) sorted() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(slices.Sorted(slices.Values(c.amounts)))
}

func TestAStrictJobLeavesFieldsThatItDoesNotKnowToANewerProgram(t *testing.T) {
	for _, job := range []any{chargeNew{7}, chargeNewJSON{7}} {
		bubble(t, func(b *bench) {
			var old, fresh charges
			was, err := midge.NewRunner(b.store, midge.RunnerConfig{})
			must(err)
			must(midge.Handle(was, func(_ context.Context, c chargeOld) error { return old.add(c.Amount) }))
			must(was.Start(b.ctx))
			task, err := b.client.Enqueue(b.ctx, job)
			must(err)
			for _, c := range []any{chargeBoth{8}, chargeBothJSON{9}, chargeOld{6}} {
				_, err := b.client.Enqueue(b.ctx, c)
				must(err)
			}
			b.after(time.Minute)
			want := `undecodable payload: got a field "Total", which midge_test.chargeOld does not have`
			if got := b.task(task.Ref); got.State != storage.Scheduled || got.Reason != want || old.sorted() != "[6 8 9]" {
				t.Errorf("%T: got %s, %q, and charges of %v; want it put off, %q, and those of 6, 8 and 9", job, got.State, got.Reason, old.sorted(), want)
			}
			must(was.Shutdown(b.ctx))
			now, err := midge.NewRunner(b.store, midge.RunnerConfig{})
			must(err)
			must(midge.Handle(now, func(_ context.Context, c chargeNew) error { return fresh.add(c.Total) }))
			must(now.Start(b.ctx))
			b.after(time.Hour)
			must(now.Shutdown(b.ctx))
			if got := fresh.sorted(); got != "[7]" {
				t.Errorf("%T: the new program charged %v, want 7", job, got)
			}
		})
	}
}
