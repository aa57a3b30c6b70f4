package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// faults is a storage whose calls fail at random.
type faults struct {
	storage.Storage

	kill func() // ends the loader, as a kill does

	mu    sync.Mutex // guards the fields below
	seed  *rand.Rand
	one   int // how many calls there are for a fault, 0 for no faults
	late  []func()
	count map[string]int
}

// fate chooses the outcome of a call. Calls that were late may arrive now.
func (f *faults) fate(call bool) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.late) > 0 && f.seed.IntN(2) == 0 {
		f.late[0]()
		f.late = f.late[1:]
	}
	if f.one == 0 || f.seed.IntN(f.one) > 0 {
		return ""
	}
	fates := []string{"away"}
	if call {
		fates = []string{"away", "lost before", "lost after", "kill before", "kill after", "late"}
	}
	fate := fates[f.seed.IntN(len(fates))]
	f.count[fate]++
	return fate
}

func (f *faults) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	switch fate := f.fate(true); fate {
	case "away":
		return nil, storage.ErrUnavailable
	case "lost before", "kill before":
		if fate == "kill before" {
			f.kill()
		}
		return nil, storage.ErrUnknown
	case "lost after", "kill after":
		if _, err := f.Storage.Apply(ctx, call, txs...); err != nil {
			return nil, err
		}
		if fate == "kill after" {
			f.kill()
		}
		return nil, storage.ErrUnknown
	case "late":
		f.mu.Lock()
		f.late = append(f.late, func() { _, _ = f.Storage.Apply(context.WithoutCancel(ctx), call, txs...) })
		f.mu.Unlock()
		return nil, storage.ErrUnknown
	}
	return f.Storage.Apply(ctx, call, txs...)
}

func (f *faults) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if f.fate(false) != "" {
		return storage.Task{}, storage.ErrUnavailable
	}
	return f.Storage.Task(ctx, ref)
}

// sample is a random file.
type sample struct {
	name, text     string
	rows, rejected []string
}

// sampleOf makes a file of up to 60 rows. Without wrong none of them is wrong.
func sampleOf(seed *rand.Rand, wrong bool) (s sample) {
	ending := []string{"jsonl", "csv", "txt"}[seed.IntN(3)]
	s.name = "a." + ending
	if seed.IntN(3) == 0 {
		s.name += ".gz"
	}
	end := []string{"\n", "\r\n"}[seed.IntN(2)]
	var b strings.Builder
	if ending == "csv" {
		b.WriteString("n,x" + end)
	}
	for i := range seed.IntN(60) {
		row, params, bad := "", "", ""
		switch ending {
		case "jsonl":
			params = fmt.Sprintf(`{"n":%d}`, i)
			row, bad = params, fmt.Sprintf(`{"n":%d`, i)
		case "csv":
			row, params = fmt.Sprintf("%d,\"a\n,b\"", i), fmt.Sprintf(`{"n":"%d","x":"a\n,b"}`, i)
			bad = fmt.Sprintf("%d", i)
		case "txt":
			row, params = fmt.Sprintf("row %d", i), fmt.Sprintf(`"row %d"`, i)
			bad = fmt.Sprintf("row %d\xff", i)
		}
		if wrong && seed.IntN(6) == 0 {
			s.rejected, row = append(s.rejected, bad+end), bad
		} else {
			s.rows = append(s.rows, params)
		}
		b.WriteString(row + end)
		if seed.IntN(5) == 0 {
			b.WriteString(end) // a blank line
		}
	}
	s.text = b.String()
	if len(s.rejected) > 0 && ending == "csv" {
		s.rejected = slices.Insert(s.rejected, 0, "n,x"+end)
	}
	return s
}

// run runs loaders until one of them has finished. Each run is stopped, or ends by a fault, at a random
// place.
func (f *faults) run(t *testing.T, loader func() *Loader) {
	for range 10_000 {
		l := loader()
		ctx, kill := context.WithCancel(t.Context())
		f.mu.Lock()
		f.kill = kill
		f.mu.Unlock()
		l.Session = storage.NewSession(f, -1)
		report, err := l.Run(ctx)
		kill()
		if err == nil && report.Finished {
			return
		}
		known := errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) || errors.Is(err, context.Canceled)
		if !known {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	t.Fatal("the load does not end")
}

// TestEachRowIsLoadedOnce loads random files by loaders that are killed, and whose calls and answers are
// lost or late.
func TestEachRowIsLoadedOnce(t *testing.T) {
	fates := make(map[string]int)
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { // a loader waits for a storage that is away
			random := rand.New(rand.NewPCG(seed, 1))
			r := newRig(t)
			s := sampleOf(random, true)
			path := r.write(s.name, s.text)
			f := &faults{Storage: r.store, seed: random, one: 2 + random.IntN(6), count: fates}
			f.run(t, func() *Loader {
				l := r.rejecting(r.loader(path))
				l.steps = 1 + random.Int64N(7)
				return l
			})
			r.isLoaded(s)
			f.one = 0
			for range 20 { // the calls still under way arrive
				f.fate(false)
			}
			r.isLoaded(s)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
	for _, fate := range []string{"away", "lost before", "lost after", "kill before", "kill after", "late"} {
		if fates[fate] == 0 {
			t.Errorf("no call was %s", fate)
		}
	}
}

// isLoaded checks that each row of a sample is there once, and each wrong row in its file.
func (r *rig) isLoaded(s sample) {
	r.t.Helper()
	r.loaded(s.rows...)
	if got, want := r.rejected(), strings.Join(s.rejected, ""); got != want {
		r.t.Errorf("rejected %q, want %q", got, want)
	}
	l, ok := payload.LoadOf(r.marker(NameOf(s.name)))
	if n := int64(len(s.rows)) + l.Rejected; !ok || !l.Finished || l.Rows != n {
		r.t.Errorf("the marker has %+v, want %d rows", l, n)
	}
}

// TestTwoLoadersLoadEachRowOnce lets two loaders load a file at once, with faults and steps of different
// sizes.
func TestTwoLoadersLoadEachRowOnce(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 2))
			r := newRig(t)
			s := sampleOf(random, true)
			path := r.write(s.name, s.text)
			var loaders sync.WaitGroup
			for i := range 2 {
				own := rand.New(rand.NewPCG(seed, uint64(3+i)))
				f := &faults{Storage: r.store, seed: own, one: 4 + own.IntN(20), count: make(map[string]int)}
				if own.IntN(3) == 0 {
					f.one = 0
				}
				most := 1 + own.Int64N(7)
				loaders.Go(func() {
					f.run(t, func() *Loader {
						l := r.rejecting(r.loader(path))
						l.steps = most
						return l
					})
				})
			}
			loaders.Wait()
			r.isLoaded(s)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}

// TestOneOfTwoLoadersStopsAtAWrongRow while the other, which rejects it, goes on.
func TestOneOfTwoLoadersStopsAtAWrongRow(t *testing.T) {
	r := newRig(t)
	path := r.write("a.txt", "1\n\xff\n3\n")
	if report, err := r.loader(path).Run(t.Context()); err == nil || report.Rows != 1 {
		t.Errorf("got %+v, %v", report, err)
	}
	r.ok(r.rejecting(r.loader(path)))
	r.loaded(`"1"`, `"3"`)
	if report := r.ok(r.loader(path)); report.Before != 3 {
		t.Errorf("got %+v, want 3 rows before", report)
	}
}

// TestAnotherFileIsRefused changes a file between two runs.
func TestAnotherFileIsRefused(t *testing.T) {
	const rows = 700
	text := strings.Repeat("1234567\n", rows)
	for name, c := range map[string]struct {
		now     string
		refused bool
		rows    int
	}{
		"the same":            {text, false, rows},
		"grown":               {text + "new\n", false, rows + 1},
		"a first byte":        {"x" + text[1:], true, 0},
		"the last byte":       {text[:len(text)-2] + "x\n", true, 0},
		"shorter":             {text[:len(text)-8], true, 0},
		"empty":               {"", true, 0},
		"the last row, grown": {strings.TrimSuffix(text, "\n") + "8\n", true, 0},
	} {
		r := newRig(t)
		begun := strings.TrimSuffix(text, "\n")
		r.ok(r.loader(r.write("a.txt", begun)))
		report, err := r.loader(r.write("a.txt", c.now)).Run(t.Context())
		var other *OtherFileError
		if errors.As(err, &other) != c.refused || err == nil && int(report.Rows) != c.rows {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
		if c.refused && len(r.rows()) != rows {
			t.Errorf("%s: %d rows, want %d", name, len(r.rows()), rows)
		}
	}
}

// TestTwoFilesUnderOneName are loaded at once: one of them is refused.
func TestTwoFilesUnderOneName(t *testing.T) {
	for _, short := range []int{10, 500, 1000, 1500} {
		r := newRig(t)
		a := r.loader(r.write("a.txt", strings.Repeat("a\n", 1000)))
		b := r.loader(r.write("b.txt", strings.Repeat("b\n", short)))
		b.Name = a.Name
		once := sync.Once{}
		a.Session = storage.NewSession(&ahead{Storage: r.store, do: func() {
			once.Do(func() { r.ok(b) })
		}}, -1)
		var other *OtherFileError
		if _, err := a.Run(t.Context()); !errors.As(err, &other) || other.Loaded != "b.txt" {
			t.Errorf("got %v, want that the file is another one than b.txt", err)
		}
		if got := r.rows(); len(got) != short || got[0] != `"b"` {
			t.Errorf("got %d rows %s, want %d of the other file", len(got), got[0], short)
		}
	}
}

// ahead is a storage that does something before it inserts rows.
type ahead struct {
	storage.Storage

	do func()
}

func (a *ahead) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if len(txs[0].Inserts) > 0 && len(txs[0].Changes) > 0 {
		a.do()
	}
	return a.Storage.Apply(ctx, call, txs...)
}

// TestAMarkerThatSomebodyTouches is found, brought back, or missed.
func TestAMarkerThatSomebodyTouches(t *testing.T) {
	move := func(r *rig, m storage.Task) {
		r.apply(storage.Tx{Changes: []storage.Change{{Ref: m.Ref, Version: m.Version, Queue: "other"}}})
	}
	for name, c := range map[string]struct {
		touch func(r *rig, m storage.Task)
		is    string
		again bool // the same command goes on
	}{
		"deleted": {func(r *rig, m storage.Task) {
			r.apply(storage.Tx{Deletes: []storage.Delete{{Ref: m.Ref, Version: m.Version}}})
		}, "deleted", true}, // the rows that are there stay
		"moved": {move, "deleted", true},
		"cancelled": {func(r *rig, m storage.Task) {
			r.apply(storage.Tx{Changes: []storage.Change{{Ref: m.Ref, Cancel: true}}})
		}, "cancelled", true},
		"run now": {func(r *rig, m storage.Task) {
			r.apply(storage.Tx{Changes: []storage.Change{{Ref: m.Ref, Version: m.Version, Now: true}}})
		}, "", true},
		"edited": {func(r *rig, m storage.Task) {
			r.apply(storage.Tx{Changes: []storage.Change{{Ref: m.Ref, Version: m.Version, Encoding: "json", Payload: []byte("7")}}})
		}, "not readable", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			path := r.write("a.txt", strings.Repeat("a\n", 1000))
			l := r.loader(path)
			l.steps = 250
			steps := 0
			l.Session = storage.NewSession(&ahead{Storage: r.store, do: func() {
				if steps++; steps == 3 {
					c.touch(r, r.marker("a.txt"))
				}
			}}, -1)
			report, err := l.Run(t.Context())
			var mark *MarkerError
			if c.is == "" && err != nil || c.is != "" && (!errors.As(err, &mark) || mark.Is != c.is || report.Rows != 500) {
				t.Fatalf("got %+v, %v, want that the marker is %q", report, err, c.is)
			}
			if !c.again {
				return
			}
			report = r.ok(r.loader(path))
			if len(r.rows()) != 1000 || report.Rows != 1000 {
				t.Errorf("got %d rows, %+v, want 1000", len(r.rows()), report)
			}
			if m := r.marker("a.txt"); m.State != storage.Scheduled || payload.Reason(m) != "loaded a.txt" {
				t.Errorf("the marker is %s, %s", m.State, payload.Reason(m))
			}
		})
	}
}

// TestAMarkerIsNoOtherTask and no row replaces another task.
func TestAMarkerIsNoOtherTask(t *testing.T) {
	r := newRig(t)
	path := r.write("a.txt", "1\n2\n")
	task := storage.Insert{Ref: MarkerRef("q", "a.txt"), Kind: "k", Encoding: "json", Payload: []byte("1"), CrashLimit: 3}
	r.apply(storage.Tx{Inserts: []storage.Insert{task}})
	var mark *MarkerError
	if _, err := r.loader(path).Run(t.Context()); !errors.As(err, &mark) || mark.Is != "another task" {
		t.Errorf("got %v, want that the marker is another task", err)
	}
	task.Ref = storage.Ref{Queue: "q", ID: rowID("b", 2)}
	r.apply(storage.Tx{Inserts: []storage.Insert{task}})
	l := r.loader(path)
	l.Name = "b"
	var taken *TakenError
	if report, err := l.Run(t.Context()); !errors.As(err, &taken) || taken.Ref != task.Ref || report.Rows != 0 {
		t.Errorf("got %+v, %v, want that %s is taken", report, err, task.Ref)
	}
}

// TestAnotherKindOrFormatIsRefused under the same name.
func TestAnotherKindOrFormatIsRefused(t *testing.T) {
	r := newRig(t)
	path := r.write("a.txt", "1\n")
	r.ok(r.loader(path))
	for _, set := range []func(*Loader){
		func(l *Loader) { l.Rows.Task.Kind = "other" }, func(l *Loader) { l.Rows.Format = JSONL },
	} {
		l := r.loader(path)
		set(l)
		var invalid *storage.InvalidError
		if _, err := l.Run(t.Context()); !errors.As(err, &invalid) || !strings.Contains(invalid.Want, "the load a.txt was begun") {
			t.Errorf("got %v", err)
		}
	}
}

// TestALoaderWaitsForAFullQueue lets a runner take a task a second.
func TestALoaderWaitsForAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.loader(r.write("a.txt", strings.Repeat("a\n", 400)))
		l.steps, l.HighWater = 10, 50
		most, waited := 0, false
		l.Progress = func(report Report) { waited = waited || report.Waiting }
		done := make(chan struct{})
		go func() { // it ends with the load
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Second):
				}
				tasks := r.tasks()
				most = max(most, len(tasks))
				for _, task := range tasks[:min(len(tasks), 7)] {
					r.apply(storage.Tx{Deletes: []storage.Delete{{Ref: task.Ref, Version: task.Version}}})
				}
			}
		}()
		report := r.ok(l)
		close(done)
		synctest.Wait()
		if most > 60 || most < 50 || !waited || report.Loaded != 400 {
			t.Errorf("at most %d tasks waited, want about 50; %+v", most, report)
		}
	})
}

// TestTheFileOfWrongRowsIsTheSame in all runs, and keeps its contents.
func TestTheFileOfWrongRowsIsTheSame(t *testing.T) {
	r := newRig(t)
	r.write("wrong", "old\n")
	path := r.write("a.txt", "\xff1\n2\n\xff3\n")
	l := r.rejecting(r.loader(path))
	l.steps = 1
	ctx, stop := context.WithCancel(t.Context())
	l.Progress = func(report Report) {
		if report.Rows == 2 {
			stop()
		}
	}
	if _, err := l.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := os.Rename(r.dir+"/wrong", r.dir+"/kept"); err != nil {
		t.Fatal(err)
	}
	var invalid *storage.InvalidError
	if _, err := r.rejecting(r.loader(path)).Run(t.Context()); !errors.As(err, &invalid) || invalid.What != "--reject" {
		t.Errorf("got %v, want that the file is another one", err)
	}
	if err := os.Rename(r.dir+"/kept", r.dir+"/wrong"); err != nil {
		t.Fatal(err)
	}
	r.ok(r.rejecting(r.loader(path)))
	if got := r.rejected(); got != "old\n\xff1\n\xff3\n" {
		t.Errorf("got %q", got)
	}
}

// TestForget deletes a marker and no task.
func TestForget(t *testing.T) {
	r := newRig(t)
	path := r.write("a.txt", "1\n2\n")
	r.ok(r.loader(path))
	session := storage.NewSession(r.store, 0)
	if l, err := Forget(t.Context(), session, "q", "a.txt"); err != nil || l.Rows != 2 {
		t.Errorf("got %+v, %v", l, err)
	}
	if _, err := Forget(t.Context(), session, "q", "a.txt"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	r.loaded(`"1"`, `"2"`)
	if report := r.ok(r.loader(path)); report.Existing != 2 || report.Loaded != 0 {
		t.Errorf("got %+v, want that the rows are there", report)
	}
	r.loaded(`"1"`, `"2"`)
}
