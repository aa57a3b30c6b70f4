package dashboard

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/storage"
)

const (
	// mostDead bounds the dead tasks that a look reads to group them, the newest of all queues.
	mostDead = 2000
	// mostCauses bounds the causes that are told apart: errors may all differ. Tasks of further causes are
	// read and not shown.
	mostCauses = 2000
	// readSide is how many pages of tasks are read side by side.
	readSide = 8
	// countFor is for how long the watch counts on, at most, after each look. Where nobody watches, a look
	// counts on itself, for so many pages and so long that the page which waits for it is not late.
	countFor     = 200 * time.Millisecond
	countPages   = mostDead / storage.MaxPage
	countWaiting = 10 * time.Millisecond
)

// deadGroup is the dead tasks of one cause.
type deadGroup struct {
	ID          string
	Error       string // of the newest of them
	Filter      string // that chooses them
	Tasks       int64
	Kinds       []storage.KindSize // the most frequent first
	Queues      []string
	First, Last time.Time // when the first and the last of them died

	kinds map[string]int64
}

// deadGroups are all dead tasks that were read, by cause. They are not changed once they are made.
type deadGroups struct {
	Groups []*deadGroup // the largest first
	Read   int64
	Whole  bool // all that were dead then were read
}

// deadCount counts the dead tasks of all queues by cause, the newest first: of each queue a page at once, and
// then on, page by page. What it counted it keeps, and reads only those that died since.
type deadCount struct {
	queues map[string]*queueCauses
	all    *deadGroups // nil where it is to be made anew
	turn   int         // of the queues that are counted on
}

// queueCauses are the causes of a queue as far as they are counted.
type queueCauses struct {
	queue       string
	dead, total int64 // as the storage counted them then
	read        int64
	newest      storage.Ref // the first of the page that was read first
	after       string      // where the next page begins
	whole       bool        // all are read
	groups      map[string]*deadGroup
}

// behind gives the queues whose dead tasks are others than those that were counted.
func (c *deadCount) behind(s *sample) (changed []*queueNow) {
	for i := range s.queues {
		q := &s.queues[i]
		was := c.queues[q.Queue]
		if was == nil && q.Dead > 0 || was != nil && (was.dead != q.Dead || was.total != q.Totals.Dead) {
			changed = append(changed, q)
		}
	}
	for name := range c.queues {
		if s.byName[name] == nil {
			delete(c.queues, name)
			c.all = nil
		}
	}
	return changed
}

// look reads the newest dead tasks of the queues in which any died, or came back.
func (c *deadCount) look(ctx context.Context, store storage.Storage, changed []*queueNow) error {
	pages := make([]storage.TasksPage, len(changed))
	err := side(len(changed), func(i int) (err error) {
		pages[i], err = newestDead(ctx, store, changed[i], max(1, mostDead/len(changed)))
		return err
	})
	if err != nil {
		return err
	}
	if c.queues == nil {
		c.queues = make(map[string]*queueCauses)
	}
	c.all = nil
	for i, q := range changed {
		was := c.queues[q.Queue]
		if was == nil || !was.join(q, pages[i].Tasks) {
			was = &queueCauses{queue: q.Queue, groups: make(map[string]*deadGroup)}
			c.queues[q.Queue] = was
			was.take(pages[i])
			if len(pages[i].Tasks) > 0 {
				was.newest = pages[i].Tasks[0].Ref
			}
		}
		was.dead, was.total = q.Dead, q.Totals.Dead
	}
	return nil
}

// newestDead reads up to so many of the dead tasks of a queue.
func newestDead(
	ctx context.Context, store storage.Storage, q *queueNow, most int,
) (all storage.TasksPage, err error) {
	for left := min(int64(most), q.Dead); left > 0; left = int64(most - len(all.Tasks)) {
		page, err := store.Tasks(ctx, storage.TasksQuery{
			Queue: q.Queue, State: storage.Dead, Limit: int(min(left, storage.MaxPage)), Newest: true, After: all.Next,
		})
		if err != nil {
			return all, err
		}
		if all.Tasks, all.Next = append(all.Tasks, page.Tasks...), page.Next; page.Next == "" {
			break
		}
	}
	return all, nil
}

// join adds the tasks of a page that died since the queue was counted, and reports false where others than
// those have changed.
func (q *queueCauses) join(now *queueNow, tasks []storage.Task) bool {
	more := now.Dead - q.dead
	known := slices.IndexFunc(tasks, func(t storage.Task) bool { return t.Ref == q.newest })
	if known < 1 || more != now.Totals.Dead-q.total || int64(known) != more {
		return false
	}
	for _, t := range tasks[:known] {
		q.add(t)
	}
	q.newest = tasks[0].Ref
	return true
}

// take takes in a page.
func (q *queueCauses) take(page storage.TasksPage) {
	for _, t := range page.Tasks {
		q.add(t)
	}
	q.after, q.whole = page.Next, page.Next == ""
}

// next counts a page on, and reports false where all are counted.
func (c *deadCount) next(ctx context.Context, store storage.Storage) (bool, error) {
	var left []*queueCauses
	for _, q := range c.queues {
		if !q.whole {
			left = append(left, q)
		}
	}
	if len(left) == 0 {
		return false, nil
	}
	slices.SortFunc(left, func(a, b *queueCauses) int { return cmp.Compare(a.queue, b.queue) })
	c.turn++
	q := left[c.turn%len(left)]
	page, err := store.Tasks(ctx, storage.TasksQuery{
		Queue: q.queue, State: storage.Dead, Limit: storage.MaxPage, Newest: true, After: q.after,
	})
	if err != nil {
		return false, err
	}
	q.take(page)
	c.all = nil
	return true, nil
}

// add joins a task to the group of its cause.
func (q *queueCauses) add(t storage.Task) {
	q.read++
	cause := fingerprint.Of(t)
	g := q.groups[cause.ID]
	if g == nil {
		if len(q.groups) >= mostCauses {
			return
		}
		g = &deadGroup{ID: cause.ID, First: t.Ended, Filter: "cause:" + cause.ID, kinds: map[string]int64{}}
		if cause.ID == "" { // neither an error nor a reason: no filter names such tasks
			g.Filter = ""
		}
		q.groups[cause.ID] = g
	}
	if !t.Ended.Before(g.Last) {
		g.Error = cmp.Or(format.FirstLine(t.LastError()), t.Reason, "no error")
	}
	g.Tasks++
	g.kinds[t.Kind]++
	if t.Ended.Before(g.First) {
		g.First = t.Ended
	}
	if t.Ended.After(g.Last) {
		g.Last = t.Ended
	}
}

// groups joins the causes of all queues.
func (c *deadCount) groups() *deadGroups {
	if c.all != nil {
		return c.all
	}
	all := &deadGroups{Whole: true}
	byCause := map[string]*deadGroup{}
	for _, q := range c.queues {
		all.Read, all.Whole = all.Read+q.read, all.Whole && q.whole
		for id, of := range q.groups {
			g := byCause[id]
			if g == nil {
				if len(byCause) >= mostCauses {
					continue
				}
				g = &deadGroup{
					ID: id, Error: of.Error, Filter: of.Filter, First: of.First, Last: of.Last, kinds: map[string]int64{},
				}
				byCause[id] = g
				all.Groups = append(all.Groups, g)
			}
			g.join(q.queue, of)
		}
	}
	for _, g := range all.Groups {
		for kind, n := range g.kinds {
			g.Kinds = append(g.Kinds, storage.KindSize{Kind: kind, Tasks: n})
		}
		slices.SortFunc(g.Kinds, func(a, b storage.KindSize) int {
			return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Kind, b.Kind))
		})
		slices.Sort(g.Queues)
	}
	slices.SortFunc(all.Groups, func(a, b *deadGroup) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), b.Last.Compare(a.Last), cmp.Compare(a.ID, b.ID))
	})
	c.all = all
	return all
}

// join adds what died in a queue.
func (g *deadGroup) join(queue string, of *deadGroup) {
	g.Tasks += of.Tasks
	g.Queues = append(g.Queues, queue)
	for kind, n := range of.kinds {
		g.kinds[kind] += n
	}
	if of.First.Before(g.First) {
		g.First = of.First
	}
	if of.Last.After(g.Last) {
		g.Last, g.Error = of.Last, of.Error
	}
}

// readDead groups the dead tasks by cause, where any died or came back since they were read.
func (s *sampler) readDead(ctx context.Context, before, fresh *sample) error {
	changed := s.causes.behind(fresh)
	soon := before != nil && before.dead != nil && fresh.at.Sub(s.deadAt) < deadFor
	if len(changed) > 0 && !soon {
		s.deadAt = fresh.at
		if err := s.causes.look(ctx, s.store, changed); err != nil {
			return err
		}
	}
	if len(changed) == 0 && s.watchers.Load() == 0 {
		end := s.now().Add(countWaiting)
		for range countPages {
			more, err := s.causes.next(ctx, s.store)
			if err != nil {
				return err
			}
			if !more || s.now().After(end) {
				break
			}
		}
	}
	fresh.dead = s.causes.groups()
	return nil
}

// countDead counts the dead on, for a while, and lets looks go first. The next look tells.
func (s *sampler) countDead(ctx context.Context) {
	for end := s.now().Add(countFor); s.now().Before(end); {
		if mine, _ := s.take(ctx, false); !mine {
			return
		}
		more, err := s.nextDead(ctx)
		<-s.turn
		if !more || err != nil { // an error shows in the next look
			return
		}
	}
}

// nextDead counts a page on, for no longer than a look may take: those who want to look wait for the turn.
func (s *sampler) nextDead(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	return s.causes.next(ctx, s.store)
}

// side calls a function for each number below n, some of them side by side, until one fails.
func side(n int, do func(i int) error) error {
	errs := make([]error, min(n, readSide))
	var all sync.WaitGroup
	for first := range errs {
		all.Go(func() { // ends with its share of the numbers
			for i := first; i < n && errs[first] == nil; i += len(errs) {
				errs[first] = do(i)
			}
		})
	}
	all.Wait()
	return cmp.Or(errs...)
}
