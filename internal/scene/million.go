package scene

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// millionQueues is the number of queues of the scene "million".
const millionQueues = 100

// Million fills an empty storage, whose clock must be this machine's, with the scene "million" of
// the given number of tasks.
func Million(ctx context.Context, store storage.Storage, tasks int) (*Scene, error) {
	s := newScene(store, time.Now, new(time.Duration))
	return s, errors.Join(s.million(ctx, tasks), s.Beat(ctx))
}

// long returns a name of the greatest length that a name may have.
func long(begin string) string {
	const rest = "_very_long"
	return (begin + strings.Repeat(rest, storage.MaxName/len(rest)+1))[:storage.MaxName]
}

// crowd is the scene "million" while it is filled.
type crowd struct {
	*Scene

	queues, kinds []string

	mu sync.Mutex // guards the Running of the runners
}

// million adds many tasks in a hundred queues: waiting, scheduled, retried, pending, declined,
// dead of many causes, completed and cancelled. All names have the greatest allowed length. Two
// queues are paused. Each queue has a schedule, and three of the schedules are orphaned.
func (s *Scene) million(ctx context.Context, tasks int) error {
	c := crowd{Scene: s, kinds: []string{long("kind.import"), long("kind.export")}}
	for i := range millionQueues {
		c.queues = append(c.queues, long(fmt.Sprintf("tenant-%02d.queue", i)))
	}
	s.hire(60, c.queues, c.kinds)
	for i := range s.Runners {
		s.Runners[i].ID = long(fmt.Sprintf("runner-%02d", i))
	}
	if err := s.Beat(ctx); err != nil {
		return err
	}
	const side = 4 // queues that are filled at the same time
	var errs [side]error
	var all sync.WaitGroup
	for first := range side {
		all.Go(func() {
			for i := first; i < len(c.queues) && errs[first] == nil; i += side {
				errs[first] = c.fill(ctx, i, tasks/millionQueues)
			}
		})
	}
	all.Wait()
	err := errors.Join(append(errs[:], s.pause(ctx, c.queues[11]), s.pause(ctx, c.queues[42]))...)
	for i, queue := range c.queues {
		name := long(fmt.Sprintf("schedule-%02d", i))[:storage.MaxName-len(storage.CursorPrefix)]
		next := time.Duration(i+1) * time.Minute
		err = errors.Join(err, s.Schedule(ctx, queue, name, "every 1h0m0s", "", next, i%40 == 5))
	}
	return err
}

// fill adds the tasks of a queue. A tenth of them have run.
func (c *crowd) fill(ctx context.Context, i, tasks int) error {
	queue := c.queues[i]
	named := func(what string) func(int, *storage.Insert) {
		return func(j int, in *storage.Insert) {
			in.Ref.ID = long(fmt.Sprintf("%s-%02d-%06d", what, i, j))
			in.Payload = []byte(`{"n":1}`)
		}
	}
	ran := func(j int, in *storage.Insert) {
		named("ran")(j, in)
		in.Keep.For = 24 * time.Hour
		if j%5 == 2 {
			in.MaxRetries = 0
		}
	}
	waiting := func(j int, in *storage.Insert) {
		named("task")(j, in)
		if j%10 == 3 {
			in.Delay = time.Hour + time.Duration(j)*time.Second
		}
	}
	ended := func(j int, t storage.Task, st *storage.Settle) {
		switch {
		case t.MaxRetries == 0:
			st.Outcome, st.Error = storage.Fail, cause(i, j)
		case j%10 == 4:
			st.Outcome, st.Error, st.Delay = storage.Fail, cause(i, j), 2*time.Hour
		case j%10 == 9:
			st.Outcome = storage.Cancel
		}
	}
	const declined = 20
	kind := c.kinds[i%len(c.kinds)]
	err := errors.Join(c.Add(ctx, queue, kind, tasks/10, ran), c.End(ctx, queue, tasks/10, ended))
	if i%25 == 3 {
		err = errors.Join(err, c.Add(ctx, queue, long("kind.legacy"), declined, named("legacy")),
			c.End(ctx, queue, declined, func(_ int, _ storage.Task, st *storage.Settle) { st.Outcome = storage.Decline }))
	}
	return errors.Join(err, c.Add(ctx, queue, kind, tasks-tasks/10, waiting), c.start(ctx, i))
}

// cause returns the error of a failed task: one of five causes that all queues share, and
// sometimes one of its own.
func cause(queue, task int) string {
	if task%40 == 2 {
		word := []byte("aaaa")
		for i, n := 0, queue*97+task; n > 0 && i < len(word); i, n = i+1, n/26 {
			word[i] += byte(n % 26)
		}
		return fmt.Sprintf("the template %s of tenant %d has no part %q", word, queue, word)
	}
	shared := []string{
		"dial tcp 10.0.%d.%d:5432: connect: connection refused",
		"tenant %d: request %d: context deadline exceeded",
		"write /var/exports/%d/%d.csv: no space left on device",
		"tenant %d answers 503 Service Unavailable to request %d",
		"quota of tenant %d is used up at request %d: " + strings.Repeat("long text ", 20),
	}
	return fmt.Sprintf(shared[(queue+task)%len(shared)], queue, task)
}

// start lets a runner run some tasks of a queue.
func (c *crowd) start(ctx context.Context, i int) error {
	runner := &c.Runners[i%len(c.Runners)]
	claimed, err := c.Session.Claim(ctx, storage.ClaimRequest{
		Runner: runner.ID, Queues: []storage.ClaimQueue{{Name: c.queues[i]}}, Start: 12, Lease: 24 * time.Hour,
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for j, t := range claimed.Tasks {
		runner.Running = append(runner.Running, storage.Running{
			Ref: t.Ref, Kind: t.Kind, Since: claimed.Now.Add(-time.Duration(i+j*j) * 7 * time.Second),
		})
	}
	return err
}

// History writes a history of the last hours and minutes to the storage, as if a dashboard had run beside busy
// queues all that time. It has a point for each minute of the time minutes, and for each hour of the time hours,
// which is longer, before that. The history is built in a memory storage first, because that is fast.
func (s *Scene) History(ctx context.Context, hours, minutes time.Duration) error {
	described, err := s.Store.Describe(ctx)
	if err != nil {
		return err
	}
	kept, err := memory.Open(memory.Config{})
	if err != nil {
		return err
	}
	p, err := Invent(ctx, s.Store, described.Now.Add(-hours+time.Hour))
	if err != nil {
		return errors.Join(err, kept.Close())
	}
	p.Storage, p.session = kept, storage.NewSession(kept, 0)
	for history := ledger.New(p); p.Now.Before(described.Now) && err == nil; {
		_, err = history.Write(ctx)
		if p.Pass(time.Minute); described.Now.Sub(p.Now) > minutes {
			p.Pass(time.Hour - time.Minute)
		}
	}
	return errors.Join(err, s.copyHistory(ctx, kept), kept.Close())
}

// copyHistory copies the pages of a history into the scene's storage.
func (s *Scene) copyHistory(ctx context.Context, from storage.Storage) error {
	for t, err := range storage.Each(ctx, from, ledger.Queue, storage.Scheduled) {
		if err != nil {
			return err
		}
		_, err := s.Session.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{{
			Ref: t.Ref, Kind: t.Kind, Encoding: t.Encoding, Payload: t.Payload, CrashLimit: t.CrashLimit, At: t.Due,
		}}})
		if err != nil {
			return err
		}
	}
	return nil
}
