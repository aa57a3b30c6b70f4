package survey

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

const (
	// MostDead is the default of Config.Dead.
	MostDead = 2000
	// mostCauses limits the causes that are distinguished, because all errors may differ. Tasks of further
	// causes are read but not shown.
	mostCauses = 2000
)

// Cause is a cause of death. Its figures are of the dead tasks that were counted.
type Cause struct {
	ID          string
	Error       string // the first line of the newest error, of MostError bytes at most
	Filter      string // chooses the tasks; "" if no filter does
	Tasks       int64
	Discarded   int64              // tasks that their jobs discarded: see scan.Discarded
	Kinds       []storage.KindSize // of the tasks, the most frequent first
	Queues      []string           // the queues in which the tasks died, by name
	First, Last time.Time          // when the first and the last of them died

	kinds  map[string]int64
	varied bool // the errors of the tasks differ
}

// Title is the error of all tasks: if their errors differ, it has placeholders for the parts that vary.
func (g *Cause) Title() string {
	if g.varied {
		return fingerprint.Title(g.Error)
	}
	return g.Error
}

// Causes are the causes of death of all queues. Nobody changes them once they are made.
type Causes struct {
	Groups []*Cause // the cause with the most tasks first
	Read   int64    // dead tasks that were counted
	Whole  bool     // all dead tasks were counted
}

// deadCount counts the dead tasks of all queues by cause, the newest first: the newest of each queue at once,
// and then page by page, one queue after the other. When tasks have died, it reads the newest again, and adds
// the deaths to its count. When dead tasks have left a queue, it counts the queue anew.
type deadCount struct {
	queues map[string]*queueCauses
	all    *Causes // nil if it has to be made anew
	turn   int     // counts the pages, and chooses the queue of the next page
}

// queueCauses are the causes of death in a queue, as far as its dead tasks are counted.
type queueCauses struct {
	queue       string
	dead, total int64 // dead tasks, and deaths in all, by the storage's count at the time
	read        int64
	newest      storage.Ref // the newest task that was counted
	after       string      // where the next page begins
	whole       bool        // all dead tasks are counted
	groups      map[string]*Cause
	text        string            // the error of the task that was counted last
	print       fingerprint.Print // of text
}

// behind returns the queues whose dead tasks have changed since they were counted. It forgets queues that are
// gone.
func (c *deadCount) behind(s *Survey) (changed []*Queue) {
	for i := range s.Queues {
		q := &s.Queues[i]
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

// few returns how many tasks have to be read of a queue to count the tasks that died since it was counted, 0 if
// they are more than a page or if other dead tasks have changed, too.
func (c *deadCount) few(q *Queue) int {
	n := q.Dead
	if was := c.queues[q.Queue]; was != nil && was.dead > 0 {
		if n = q.Dead - was.dead; n != q.Totals.Dead-was.total {
			return 0
		}
		n++ // the newest task that was counted
	}
	if n > storage.MaxPage {
		return 0
	}
	return max(0, int(n))
}

// look reads the newest dead tasks of the queues that have changed: most of them together, or only the few that
// have died if most is 0.
func (c *deadCount) look(ctx context.Context, store storage.Storage, changed []*Queue, most int) error {
	pages := make([]storage.TasksPage, len(changed))
	err := Concurrently(len(changed), func(i int) (err error) {
		n := max(1, most/len(changed))
		if most == 0 {
			n = c.few(changed[i])
		}
		pages[i], err = newestDead(ctx, store, changed[i], n)
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
			if most == 0 && was != nil && was.dead > 0 { // the few do not reach what was counted: count anew later
				continue
			}
			was = &queueCauses{queue: q.Queue, groups: make(map[string]*Cause)}
			c.queues[q.Queue] = was
			was.addPage(pages[i])
			if len(pages[i].Tasks) > 0 {
				was.newest = pages[i].Tasks[0].Ref
			}
		}
		was.dead, was.total = q.Dead, q.Totals.Dead
	}
	return nil
}

// newestDead reads the newest dead tasks of a queue, at most as many as most.
func newestDead(
	ctx context.Context, store storage.Storage, q *Queue, most int,
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

// join counts the tasks of a page that died since the queue was counted. It returns false if the queue has to
// be counted anew: other dead tasks have changed, too, or the page does not reach the tasks that were
// counted.
func (q *queueCauses) join(now *Queue, tasks []storage.Task) bool {
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

// addPage counts the tasks of a page.
func (q *queueCauses) addPage(page storage.TasksPage) {
	for _, t := range page.Tasks {
		q.add(t)
	}
	q.after, q.whole = page.Next, page.Next == ""
}

// next counts a further page. It returns false if all dead tasks are counted.
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
	q.addPage(page)
	c.all = nil
	return true, nil
}

// add joins a task to the group of its cause.
func (q *queueCauses) add(t storage.Task) {
	q.read++
	// Neighboring tasks often died of the same error, and a fingerprint takes as long as all else here.
	if text := fingerprint.Error(t); text != q.text {
		q.text, q.print = text, fingerprint.OfText(text)
	}
	cause := q.print
	g := q.groups[cause.ID]
	if g == nil {
		if len(q.groups) >= mostCauses {
			return
		}
		g = &Cause{
			ID: cause.ID, Error: errorOf(t), Filter: "cause:" + cause.ID, First: t.Ended, Last: t.Ended,
			kinds: map[string]int64{},
		}
		if cause.ID == "" { // neither an error nor a reason: no filter names such tasks
			g.Filter = ""
		}
		q.groups[cause.ID] = g
	}
	g.Tasks++
	if scan.Discarded(t) {
		g.Discarded++
	}
	g.kinds[t.Kind]++
	g.died(t.Ended, t.Ended, errorOf(t))
}

// MostError bounds Cause.Error, in bytes.
const MostError = 240

// errorOf returns the first line of the error of which a task died, or else the reason, or "no error".
func errorOf(t storage.Task) string {
	line, _, _ := strings.Cut(strings.TrimSpace(fingerprint.Error(t)), "\n")
	return cmp.Or(storage.CleanText(line, MostError), "no error")
}

// died updates the times and the error of a cause by the first and the last death of further tasks, and the
// error of the last. Of several errors at the same moment it keeps the first in the order of texts, so that
// the order of counting does not matter.
func (g *Cause) died(first, last time.Time, text string) {
	g.varied = g.varied || text != g.Error
	if first.Before(g.First) {
		g.First = first
	}
	if last.After(g.Last) || last.Equal(g.Last) && text < g.Error {
		g.Last, g.Error = last, text
	}
}

// groups joins the causes of all queues.
func (c *deadCount) groups() *Causes {
	if c.all != nil {
		return c.all
	}
	all := &Causes{Whole: true}
	byCause := map[string]*Cause{}
	for _, q := range c.queues {
		all.Read, all.Whole = all.Read+q.read, all.Whole && q.whole
		for id, of := range q.groups {
			g := byCause[id]
			if g == nil {
				if len(byCause) >= mostCauses {
					continue
				}
				g = &Cause{
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
	slices.SortFunc(all.Groups, func(a, b *Cause) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), b.Last.Compare(a.Last), cmp.Compare(a.ID, b.ID))
	})
	c.all = all
	return all
}

// join adds the tasks that died of the cause in a queue.
func (g *Cause) join(queue string, of *Cause) {
	g.Tasks, g.Discarded = g.Tasks+of.Tasks, g.Discarded+of.Discarded
	g.Queues = append(g.Queues, queue)
	for kind, n := range of.kinds {
		g.kinds[kind] += n
	}
	g.varied = g.varied || of.varied
	g.died(of.First, of.Last, of.Error)
}

// mostFew limits the queues whose few deaths each reading reads.
const mostFew = 20

// readDead groups the dead tasks by cause. It reads a few deaths at once, so that the causes have the same number
// of tasks as the sizes. At most once in deadFor, or after Forget, it reads the dead tasks of all queues in which
// they have changed.
func (r *Reader) readDead(ctx context.Context, before, fresh *Survey) error {
	changed := r.causes.behind(fresh)
	most := r.cfg.Dead
	if before != nil && fresh.At.Sub(r.deadAt) < deadFor {
		changed = slices.DeleteFunc(changed, func(q *Queue) bool { return r.causes.few(q) == 0 })
		changed, most = changed[:min(len(changed), mostFew)], 0
	} else if len(changed) > 0 {
		r.deadAt = fresh.At
	}
	if len(changed) > 0 {
		if err := r.causes.look(ctx, r.store, changed, most); err != nil {
			return err
		}
	}
	fresh.Dead = r.causes.groups()
	return nil
}

// CountDead counts a further page of dead tasks by cause, and reports whether there was one. The next survey
// has the result, and so has Causes.
func (r *Reader) CountDead(ctx context.Context) (more bool, err error) {
	return r.causes.next(ctx, r.store)
}

// Causes returns the causes of death, as far as the dead tasks are counted.
func (r *Reader) Causes() *Causes { return r.causes.groups() }

// CauseOf returns the cause of tasks that all died of the same cause. There must be at least one task.
func CauseOf(tasks []storage.Task) *Cause {
	count := deadCount{queues: make(map[string]*queueCauses)}
	for _, t := range tasks {
		q := count.queues[t.Queue]
		if q == nil {
			q = &queueCauses{queue: t.Queue, groups: make(map[string]*Cause)}
			count.queues[t.Queue] = q
		}
		q.add(t)
	}
	return count.groups().Groups[0]
}
