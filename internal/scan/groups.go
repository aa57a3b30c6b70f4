package scan

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/storage"
)

// Group is the tasks of one cause.
type Group struct {
	fingerprint.Print

	Tasks       int64
	Sample      storage.Task     // the last of them to end
	Kinds       map[string]int64 // tasks of each kind
	Queues      map[string]int64 // tasks of each queue
	First, Last time.Time        // when the first and the last of them ended
}

// Filter chooses the tasks of the group among the dead.
func (g *Group) Filter() string {
	if g.ID == "" {
		return `state:dead cause:""`
	}
	return "state:dead cause:" + g.ID
}

// maxGroups bounds the groups that a Grouping keeps: errors may all differ. The tasks of other causes are
// counted in Others.
const maxGroups = 1000

// Grouping counts tasks by their cause, step by step. It is for one goroutine.
type Grouping struct {
	store  Source
	req    Request
	groups map[string]*Group
	done   bool

	// Searched of Total tasks were read.
	Searched, Total int64
	// Others are the tasks of causes beyond the first thousand.
	Others int64
}

// NewGrouping groups what a request asks for: the dead, where neither it nor its filter names states. Its
// Limit and Cursor are not heeded.
func NewGrouping(store Source, req Request) *Grouping {
	if req.States == nil {
		req.States = []storage.State{storage.Dead}
	}
	req.Limit, req.Count, req.Cursor = 10*storage.MaxPage, false, ""
	return &Grouping{store: store, req: req, groups: make(map[string]*Group)}
}

// Read reads on, for about as many tasks or as long as the request allows for a step, and reports whether
// all are read.
func (g *Grouping) Read(ctx context.Context) (done bool, err error) {
	begun, from := time.Now(), g.Searched
	req := g.req
	if req.Tasks == 0 {
		req.Tasks = DefaultTasks
	}
	if req.Time == 0 {
		req.Time = DefaultTime
	}
	for !g.done {
		page, err := Next(ctx, g.store, req)
		if err != nil {
			return false, err
		}
		for _, t := range page.Tasks {
			g.add(t)
		}
		g.Searched, g.Total = page.Searched, max(page.Total, g.Total)
		g.req.Cursor, g.done = page.Cursor, page.Done()
		req.Cursor = page.Cursor
		spent := req.Tasks > 0 && g.Searched-from >= int64(req.Tasks) || req.Time > 0 && time.Since(begun) >= req.Time
		if spent {
			break
		}
	}
	return g.done, nil
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
	of.Kinds[t.Kind]++
	of.Queues[t.Queue]++
	if t.Ended.Before(of.First) {
		of.First = t.Ended
	}
	if !t.Ended.Before(of.Last) {
		of.Last, of.Sample = t.Ended, t
	}
}

// Groups gives what was counted so far, the largest first.
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
