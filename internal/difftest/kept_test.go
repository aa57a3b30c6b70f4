package difftest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// keptSteps is how many operations a walk over kept schedules makes at least.
const keptSteps = 80

// kept sets, changes, pauses, resumes and removes kept schedules of each storage in a random order, between the
// steps of three runners, late ticks of runners that have died, and jumps of the clock. Each tick is made once,
// and none after a change, a pause or a removal was acknowledged.
func kept(t *testing.T, open opener) {
	t.Helper()
	defer func(was storage.Limits) { limits = was }(limits)
	limits = storage.Limits{} // a declined task does not die
	sides, move := open(t)
	now := begin
	for i, s := range sides {
		w := newKeptWalk(t, s, uint64(i), &now, move)
		for made := 0; made < keptSteps || w.refused == 0 && made < 10*keptSteps; made++ { // until a late tick was refused
			w.step()
		}
		w.complete()
		if len(w.ran) < keptSteps || w.refused == 0 {
			t.Errorf("%s: %d ticks and %d refused late ones, want more", s.name, len(w.ran), w.refused)
		}
	}
}

// keptWalk is a walk over the kept schedules of a storage.
type keptWalk struct {
	*testing.T

	random  *rand.Rand
	name    string
	store   storage.Storage
	session *storage.Session
	clock   *time.Time
	move    func(time.Time)
	runners []*runner.Runner
	names   map[string]*keptName
	handed  []handed
	ran     map[string]bool // each tick, as the payload of its task and its moment
	refused int             // late ticks
	gen     int
}

// keptName is the knowledge of the walk of a schedule.
type keptName struct {
	spec    string // "" if there is none
	payload string // names the version of the schedule
	paused  bool
	open    bool                // it ticks
	from    time.Time           // the moments after it tick
	ticks   []time.Time         // that were made of the payload
	closed  map[string][]string // by payload: the ticks that were made before its end was acknowledged
	version int                 // grows with each change
}

// handed is a cursor that a runner was handed which then died.
type handed struct {
	cursor  storage.Task
	now     time.Time
	version int
}

// keptKind is the kind of the tasks.
const keptKind = "kept"

func newKeptWalk(t *testing.T, s *side, seed uint64, clock *time.Time, move func(time.Time)) *keptWalk {
	t.Helper()
	w := &keptWalk{
		T: t, random: rand.New(rand.NewPCG(seed, 32)), name: s.name, store: s.store,
		session: storage.NewSession(s.store, testserver.Patience), clock: clock, move: move,
		names: make(map[string]*keptName), ran: make(map[string]bool),
	}
	w.pass(0)
	for _, kinds := range [][]string{{keptKind}, {keptKind}, {"other"}} {
		r := runner.New(runner.Config{
			Store: s.store, Jobs: keptJobs{w, kinds}, Log: silent{}, Concurrency: 1, Lease: time.Hour,
		})
		r.SetQueues([]string{keptQueue}, nil)
		w.runners = append(w.runners, r)
		_, err := w.session.Extend(t.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{
			ID: r.ID(), Queues: []string{keptQueue}, Kinds: kinds, For: 1000 * time.Hour,
		}})
		w.must(err)
	}
	return w
}

const keptQueue = "kept"

func (w *keptWalk) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", w.name, err)
	}
}

// pass moves the clock.
func (w *keptWalk) pass(d time.Duration) {
	*w.clock = w.clock.Add(d)
	w.move(*w.clock)
}

// now is the storage's time.
func (w *keptWalk) now() time.Time {
	w.Helper()
	d, err := w.store.Describe(w.Context())
	w.must(err)
	return d.Now
}

func (w *keptWalk) step() {
	w.Helper()
	name := fmt.Sprint("s", w.random.IntN(4))
	n := w.names[name]
	if n == nil {
		n = &keptName{closed: make(map[string][]string)}
		w.names[name] = n
	}
	switch w.random.IntN(12) {
	case 0, 1:
		w.set(name, n)
	case 2:
		w.set(name, n)
		w.must(w.keep(name, n)) // the same again
	case 3:
		w.pause(name, n, true)
	case 4:
		w.pause(name, n, false)
	case 5:
		w.remove(name, n)
	case 6, 7:
		w.dies()
	case 8:
		w.late()
	case 9:
		w.pass(-time.Duration(w.random.IntN(60)) * time.Second)
	case 10:
		w.complete()
	default:
		w.works()
	}
	w.pass(time.Duration(w.random.IntN(9000)) * time.Millisecond)
	if w.random.IntN(10) == 0 {
		w.pass(storage.JumpAfter / 2)
		w.complete()
	}
}

func cursorOf(name string) storage.Ref {
	return storage.Ref{Queue: keptQueue, ID: storage.CursorPrefix + name}
}

// keep sets a schedule as the walk knows it.
func (w *keptWalk) keep(name string, n *keptName) error {
	in := storage.Insert{
		Ref: cursorOf(name), Kind: keptKind, Encoding: "e", Payload: []byte(n.payload), CrashLimit: 3,
	}
	schedule.Declare(&in, storage.Declaration{
		Spec: n.spec, CatchUp: schedule.AllMissed, CatchUpCap: schedule.MaxCatchUp, Kept: true,
	})
	return schedule.Set(w.Context(), w.session, in)
}

// set sets a schedule: a new version with other moments, another jitter, or only another task.
func (w *keptWalk) set(name string, n *keptName) {
	w.Helper()
	specs := []string{"every 10s", "every 15s", "every 10s jitter 8s", "every 1m0s jitter 50s", "every 20s jitter 5m0s"}
	before, was := w.of(name, n), *n
	if w.gen++; n.spec == "" || w.random.IntN(3) > 0 {
		n.spec = specs[w.random.IntN(len(specs))]
	}
	n.payload = fmt.Sprintf("%s %d", name, w.gen)
	cursor, err := w.store.Task(w.Context(), cursorOf(name))
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		w.must(err)
	}
	earliest := w.now()
	w.must(w.keep(name, n))
	w.ends(n, was.payload)
	n.version++
	if n.ticks, n.open = nil, !was.paused; !n.open {
		return
	}
	if cursor.Cursor == nil {
		w.begins(name, n, earliest)
		return
	}
	last := cursor.Cursor.Last
	moments := func(spec string) string { text, _, _ := strings.Cut(spec, " jitter "); return text }
	if moments(was.spec) == moments(n.spec) {
		// The moment for which the former version was due is the first one of the new version.
		shift := w.of(name, n).Next(time.Unix(0, -1)).Sub(before.Next(time.Unix(0, -1)))
		if first := cursor.Cursor.Next.Add(shift); first.After(last) {
			w.begins(name, n, first.Add(-time.Microsecond))
			return
		}
	}
	w.begins(name, n, later(earliest, last))
}

// begins notes from when on a version ticks: after a moment, or after now if that is later.
func (w *keptWalk) begins(name string, n *keptName, after time.Time) {
	w.Helper()
	c, err := w.store.Task(w.Context(), cursorOf(name))
	w.must(err)
	next, s := c.Cursor.Next, w.of(name, n)
	if !next.Equal(s.Next(after)) && !next.Equal(s.Next(later(after, w.now()))) {
		w.Errorf("%s: %s, %s, is due at %v, want the first tick after %v", w.name, n.payload, n.spec, next, after)
	}
	n.from = next.Add(-time.Microsecond)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// of returns the schedule of a name, the zero one if there is none.
func (w *keptWalk) of(name string, n *keptName) schedule.Schedule {
	w.Helper()
	if n.spec == "" {
		return schedule.Schedule{}
	}
	s, err := schedule.Of(cursorOf(name), &storage.Declaration{Spec: n.spec})
	w.must(err)
	return s
}

func (w *keptWalk) pause(name string, n *keptName, paused bool) {
	w.Helper()
	earliest := w.now()
	err := schedule.Pause(w.Context(), w.session, cursorOf(name), paused)
	if n.spec == "" {
		if !errors.Is(err, storage.ErrNotFound) {
			w.Errorf("%s: a pause of no schedule: %v", w.name, err)
		}
		return
	}
	w.must(err)
	if n.paused == paused {
		return
	}
	n.version++
	if n.paused = paused; paused {
		w.ends(n, n.payload)
		n.open = false
		return
	}
	c, err := w.store.Task(w.Context(), cursorOf(name))
	w.must(err)
	n.open, n.ticks = true, nil
	w.begins(name, n, later(earliest, c.Cursor.Last))
}

func (w *keptWalk) remove(name string, n *keptName) {
	w.Helper()
	err := w.session.DeleteTask(w.Context(), cursorOf(name))
	if n.spec == "" {
		if !errors.Is(err, storage.ErrNotFound) {
			w.Errorf("%s: a removal of no schedule: %v", w.name, err)
		}
		return
	}
	w.must(err)
	w.ends(n, n.payload)
	n.spec, n.paused, n.open = "", false, false
	n.version++
}

// ends notes the ticks of a version that has ended: the ticks that ran, and the ticks whose tasks wait.
func (w *keptWalk) ends(n *keptName, payload string) {
	w.Helper()
	if payload == "" {
		return
	}
	made := []string{}
	for tick := range w.ran {
		if strings.HasPrefix(tick, payload+" at ") {
			made = append(made, tick)
		}
	}
	for t, err := range storage.Each(w.Context(), w.store, keptQueue, storage.Waiting) {
		w.must(err)
		if string(t.Payload) == payload {
			made = append(made, tickOf(payload, t.Headers))
		}
	}
	n.closed[payload] = made
}

func tickOf(payload string, headers map[string]string) string {
	return payload + " at " + headers[schedule.TickHeader]
}

// ranTick checks a tick whose task runs.
func (w *keptWalk) ranTick(payload string, headers map[string]string) {
	w.Helper()
	tick := tickOf(payload, headers)
	if w.ran[tick] {
		w.Errorf("%s: %s was made twice", w.name, tick)
	}
	w.ran[tick] = true
	at, err := time.Parse(time.RFC3339Nano, headers[schedule.TickHeader])
	w.must(err)
	name, _, _ := strings.Cut(payload, " ")
	n := w.names[name]
	made, closed := n.closed[payload]
	switch {
	case slices.Contains(made, tick):
	case closed && (!n.open || n.payload != payload): // else it was paused and resumed
		w.Errorf("%s: %s was made after the end of its schedule was acknowledged", w.name, tick)
	default:
		n.ticks = append(n.ticks, at)
	}
}

// works makes steps of a random runner until it has nothing to do.
func (w *keptWalk) works() {
	w.Helper()
	r := w.runners[w.random.IntN(len(w.runners))]
	for range 200 {
		s, err := r.Step(w.Context(), storage.Ref{})
		w.must(err)
		if !s.Ran {
			return
		}
	}
	w.Fatalf("%s: a runner has always more to do", w.name)
}

// dies has a runner die that was handed the due cursors.
func (w *keptWalk) dies() {
	w.Helper()
	claimed, err := w.session.Claim(w.Context(), storage.ClaimRequest{
		Runner: "dead", Queues: []storage.ClaimQueue{{Name: keptQueue, Max: storage.MaxNone}},
	})
	w.must(err)
	for _, c := range claimed.Ticks {
		name := strings.TrimPrefix(c.ID, storage.CursorPrefix)
		w.handed = append(w.handed, handed{c, claimed.Now, w.names[name].version})
	}
}

// late makes a tick of a cursor that was handed out before: a runner that was slow.
func (w *keptWalk) late() {
	w.Helper()
	if len(w.handed) == 0 {
		return
	}
	i := w.random.IntN(len(w.handed))
	h := w.handed[i]
	w.handed = slices.Delete(w.handed, i, i+1)
	d, err := h.cursor.Cursor.Decode()
	w.must(err)
	due, next, err := schedule.Ticks(h.cursor.Ref, &d, h.cursor.Cursor.Next, h.now)
	w.must(err)
	moved := *h.cursor.Cursor
	moved.Next = next
	tx := storage.Tx{Changes: []storage.Change{{Ref: h.cursor.Ref, Version: h.cursor.Version, Cursor: &moved}}}
	for _, at := range due {
		moved.Last = at
		tx.Inserts = append(tx.Inserts, h.cursor.TickInsert(storage.NewID(), &d).AtTick(at))
	}
	_, err = w.session.ApplyOne(w.Context(), tx)
	var dep *storage.DependencyError
	switch n := w.names[strings.TrimPrefix(h.cursor.ID, storage.CursorPrefix)]; {
	case err == nil && n.version != h.version:
		w.Errorf("%s: a tick of %s was made that was handed out before a change", w.name, h.cursor.ID)
	case err != nil && !errors.As(err, &dep):
		w.must(err)
	case err != nil:
		w.refused++
	}
}

// complete lets all that is due tick and checks that each tick is there.
func (w *keptWalk) complete() {
	w.Helper()
	w.pass(storage.TickHide + time.Second)
	until := w.now()
	missing := ""
	defer func() {
		if w.Failed() {
			w.Logf("missing: %s", missing)
		}
	}()
	testserver.Await(w, w.name+": all due ticks are made", func() bool {
		w.works()
		for name, n := range w.names {
			if missing = w.missing(name, n, until); missing != "" {
				return false
			}
		}
		return true
	})
}

// missing returns a tick that was not made until a moment, "" for none. It fails the test if there is one too
// many.
func (w *keptWalk) missing(name string, n *keptName, until time.Time) string {
	w.Helper()
	if !n.open {
		return ""
	}
	s, ticks := w.of(name, n), slices.Clone(n.ticks)
	slices.SortFunc(ticks, time.Time.Compare)
	at := s.Next(n.from)
	for _, tick := range ticks {
		if !tick.Equal(at) {
			w.Fatalf("%s: %s ticked at %v, want %v", w.name, n.payload, tick, at)
		}
		at = s.Next(at)
	}
	if !at.After(until) {
		return n.payload + " at " + at.String()
	}
	return ""
}

// keptJobs are the jobs of the runners.
type keptJobs struct {
	walk  *keptWalk
	kinds []string
}

func (j keptJobs) Kinds() []string                { return j.kinds }
func (keptJobs) Name(kind string) string          { return kind }
func (keptJobs) DefaultBackoff(int) time.Duration { return time.Second }

func (j keptJobs) Run(_ context.Context, a *runner.Attempt) error {
	j.walk.ranTick(string(a.Payload), a.Headers)
	return nil
}

func (keptJobs) Enqueue(_ context.Context, inserts []storage.Insert) ([]storage.Insert, error) {
	return inserts, nil
}

func (keptJobs) Judge(err error) runner.Judgement { return runner.Judgement{Err: err} }

func (keptJobs) Backoff(*runner.Attempt) (time.Duration, error) { return time.Second, nil }

// silent is a log without readers.
type silent struct{}

func (silent) Enabled(slog.Level) bool                { return false }
func (silent) Write(slog.Level, string, ...slog.Attr) {}
