package scan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/internal/shell"
	"github.com/midgehq/midge/storage"
)

// Group counts the tasks of one cause.
type Group struct {
	fingerprint.Print

	Tasks       int64
	Discarded   int64            // of these, the tasks that their jobs discarded: see Discarded
	Sample      storage.Task     // the task that ended last
	Kinds       map[string]int64 // tasks of each kind
	Queues      map[string]int64 // tasks of each queue
	First, Last time.Time        // when the first and the last task ended
}

// Filter returns the filter that chooses the tasks of the group among the dead.
func (g *Group) Filter() string {
	if g.ID == "" {
		return `state:dead cause:""`
	}
	return "state:dead cause:" + g.ID
}

// LastError returns the first line of the error of the task that ended last.
func (g *Group) LastError() string {
	line, _, _ := strings.Cut(strings.TrimSpace(fingerprint.Error(g.Sample)), "\n")
	return line
}

// Discarded reports whether the job of a dead task has discarded the task, for example because the task asks
// for something that does not exist. A requeue fails again unless the cause is mended.
func Discarded(t storage.Task) bool {
	return t.State == storage.Dead && t.Reason == storage.AttemptDiscarded
}

// Proposal returns the command that repairs the tasks of a cause, of which their jobs discarded some. filter
// chooses the tasks among the dead. The command never requeues tasks that their jobs discarded, and only lists
// the tasks if there are no others. Several tasks begin with a canary, because nobody knows whether the cause is
// mended: tasks of a crash loop would end runners again.
func Proposal(filter string, tasks, discarded int64) string {
	switch {
	case discarded >= tasks:
		return shell.Line("midge", "task", "ls", "state:dead "+filter)
	case discarded > 0:
		filter += " -reason:" + storage.AttemptDiscarded
	}
	words := []string{"midge", "task", "requeue", filter}
	if tasks-discarded > 1 {
		words = append(words, "--canary")
	}
	return shell.Line(append(words, "--rate", "50")...)
}

// maxGroups bounds the groups that a Grouping keeps, because all errors may differ. Others counts the tasks of
// further causes.
const maxGroups = 1000

// atOnce is about how many tasks a Grouping reads in all queues together, before it goes on in the order of
// time.
const atOnce = 2000

// Grouping counts tasks by their cause, step by step, beginning with the newest tasks of all queues. It is not
// safe for concurrent use.
type Grouping struct {
	store  Source
	req    Request
	groups map[string]*Group
	walker *walker // nil before the first step
	fronts []front // the queues and states that are not read to their end

	// Searched of Total tasks were read.
	Searched, Total int64
	// Others counts the tasks of causes beyond the first thousand.
	Others int64
}

// front is how far the tasks of a queue and state are read.
type front struct {
	place

	begun   bool
	reached time.Time // when the last task that was read ended
}

// NewGrouping groups the tasks that a request asks for: the dead tasks, if neither the request nor its filter
// names states. Limit, Newest and Cursor of the request are ignored.
func NewGrouping(store Source, req Request) *Grouping {
	if req.States == nil {
		req.States = []storage.State{storage.Dead}
	}
	req.Limit, req.Count, req.Cursor, req.Newest = 10*storage.MaxPage, false, "", true
	return &Grouping{store: store, req: req, groups: make(map[string]*Group)}
}

// Read reads more tasks, about as many or for as long as the request allows for a step, and reports whether
// all are read. After an error it can be called again and goes on.
func (g *Grouping) Read(ctx context.Context) (done bool, err error) {
	begun := time.Now()
	if err := g.begin(ctx); err != nil {
		return false, err
	}
	w, from := g.walker, g.Searched
	for len(g.fronts) > 0 {
		i := g.newest()
		f := &g.fronts[i]
		if w.page.Tasks, w.most = nil, storage.MaxPage; !f.begun { // a little of each queue
			w.most = min(max(atOnce/len(g.fronts), 20), storage.MaxPage)
		}
		next, err := w.step(ctx, f.place)
		if err != nil {
			return false, fmt.Errorf("scan: list %s tasks of %s: %w", f.state, f.queue, err)
		}
		for _, t := range w.page.Tasks {
			g.add(t)
		}
		g.Searched = w.page.Searched
		g.Total = max(g.Total, g.Searched)
		f.after, f.begun, f.reached = next, true, w.reached
		if next == "" {
			g.fronts = slices.Delete(g.fronts, i, i+1)
		}
		if w.req.Tasks > 0 && g.Searched-from >= int64(w.req.Tasks) || w.req.Time > 0 && time.Since(begun) >= w.req.Time {
			break
		}
	}
	return len(g.fronts) == 0, nil
}

// begin finds the queues and states that have tasks.
func (g *Grouping) begin(ctx context.Context) error {
	if g.walker != nil {
		return nil
	}
	w, err := begin(ctx, g.store, g.req)
	if err != nil {
		return err
	}
	g.walker, g.Total = w, w.page.Total
	for _, p := range w.places {
		g.fronts = append(g.fronts, front{place: p})
	}
	return nil
}

// newest returns the front to read next: one that has not begun, or else the one that has reached the latest
// moment.
func (g *Grouping) newest() (best int) {
	for i := range g.fronts {
		switch f := &g.fronts[i]; {
		case !f.begun:
			return i
		case f.reached.After(g.fronts[best].reached):
			best = i
		}
	}
	return best
}

func (g *Grouping) add(t storage.Task) {
	p := fingerprint.Of(t)
	of := g.groups[p.ID]
	if of == nil {
		if len(g.groups) == maxGroups {
			g.Others++
			return
		}
		of = &Group{Print: p, Kinds: make(map[string]int64), Queues: make(map[string]int64), First: t.Ended}
		g.groups[p.ID] = of
	}
	of.Tasks++
	if Discarded(t) {
		of.Discarded++
	}
	of.Kinds[t.Kind]++
	of.Queues[t.Queue]++
	if t.Ended.Before(of.First) {
		of.First = t.Ended
	}
	if of.Tasks == 1 || t.Ended.After(of.Last) { // a task that has not ended has no moment
		of.Last, of.Sample = t.Ended, t
	}
}

// Groups returns the groups that were counted so far, the largest first.
func (g *Grouping) Groups() []Group {
	groups := make([]Group, 0, len(g.groups))
	for _, one := range g.groups {
		groups = append(groups, *one)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Text, b.Text))
	})
	return groups
}
