package dashboard

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// mostDead is about how many dead tasks a look reads.
const mostDead = 2000

// deadGroup is the dead tasks of one cause.
type deadGroup struct {
	ID          string
	Error       string // of the newest of them
	Filter      string // that chooses them
	Tasks       int64
	Kinds       []storage.KindSize // the most frequent first
	Queues      []string
	First, Last time.Time // when the first and the last of them died
}

// deadGroups are all dead tasks that were read, by cause.
type deadGroups struct {
	Groups []*deadGroup // the largest first
	Read   int64
	Whole  bool   // all that were dead then were read
	marks  string // what the storage counted then
}

// standFor is how long a count that took many looks stands at least.
const standFor = 10 * time.Minute

// deadCount is how far the dead tasks are counted: the newest at once, and anew when any died or came back; those behind
// them go on with each look. The turn of the sampler guards it.
type deadCount struct {
	head    *deadGroups // of the newest
	headAt  time.Time
	going   *scan.Grouping // counts on behind the newest, nil where nothing is left to count
	counted *deadGroups    // of all, as the last count that ended found them
	endedAt time.Time
	shown   *deadGroups
}

// readDead groups the dead tasks by cause.
func (s *sampler) readDead(ctx context.Context, fresh *sample) error {
	var marks strings.Builder
	var dead int64
	queues := []string{} // nil would be all
	for i := range fresh.queues {
		q := &fresh.queues[i]
		if dead += q.Dead; q.Dead > 0 {
			queues = append(queues, q.Queue)
		}
		marks.WriteString(strconv.FormatInt(q.Dead, 36) + " " + strconv.FormatInt(q.Totals.Dead, 36) + ",")
	}
	c := &s.deadCount
	if c.counted != nil && dead < c.counted.Read { // some came back, or were deleted
		c.counted = nil
	}
	var err error
	switch {
	case c.head == nil, c.head.marks != marks.String() && fresh.at.Sub(c.headAt) >= deadFor:
		g := scan.NewGrouping(s.store, scan.Request{Queues: queues, Tasks: mostDead, Time: -1})
		err = c.begin(ctx, g, fresh.at, marks.String())
	case c.going != nil:
		err = c.goOn(ctx, fresh.at)
	}
	fresh.dead = c.shown
	return err
}

// begin reads the newest.
func (c *deadCount) begin(ctx context.Context, g *scan.Grouping, now time.Time, marks string) error {
	done, err := g.Read(ctx)
	if err != nil {
		return err
	}
	c.headAt, c.head = now, groupsOf(g, done)
	c.head.marks = marks
	switch {
	case done:
		c.going, c.counted = nil, nil
	case c.going == nil && (c.counted == nil || now.Sub(c.endedAt) >= standFor):
		c.going = g
	}
	c.show()
	return nil
}

// goOn reads those behind the newest.
func (c *deadCount) goOn(ctx context.Context, now time.Time) error {
	done, err := c.going.Read(ctx)
	if err != nil {
		return err
	}
	if done {
		c.counted, c.endedAt, c.going = groupsOf(c.going, true), now, nil
	}
	c.show()
	return nil
}

// show joins what is counted with the newest.
func (c *deadCount) show() {
	all := c.counted
	if all == nil && c.going != nil {
		all = groupsOf(c.going, false)
	}
	if all == nil {
		c.shown = c.head
		return
	}
	c.shown = &deadGroups{Read: max(all.Read, c.head.Read), Whole: all.Whole}
	byCause := make(map[string]int, len(all.Groups))
	for i, g := range all.Groups {
		byCause[g.ID] = i
		c.shown.Groups = append(c.shown.Groups, g)
	}
	for _, g := range c.head.Groups {
		i, known := byCause[g.ID]
		if !known {
			c.shown.Groups = append(c.shown.Groups, g)
			continue
		}
		both := *c.shown.Groups[i]
		if both.Tasks < g.Tasks {
			both = *g
		}
		both.First, both.Last, both.Error = c.shown.Groups[i].First, g.Last, g.Error
		c.shown.Groups[i] = &both
	}
	c.shown.sort()
}

// groupsOf gives the groups of a count.
func groupsOf(g *scan.Grouping, done bool) *deadGroups {
	d := &deadGroups{Read: g.Searched, Whole: done}
	for _, of := range g.Groups() {
		group := &deadGroup{
			ID: of.ID, Error: cmp.Or(firstLine(of.Sample.LastError()), of.Sample.Reason), Filter: "cause:" + of.ID,
			Tasks: of.Tasks, Queues: slices.Sorted(maps.Keys(of.Queues)), First: of.First, Last: of.Last,
		}
		if of.ID == "" { // neither an error nor a reason: no filter names such tasks
			group.Error, group.Filter = "no error", ""
		}
		for kind, n := range of.Kinds {
			group.Kinds = append(group.Kinds, storage.KindSize{Kind: kind, Tasks: n})
		}
		slices.SortFunc(group.Kinds, func(a, b storage.KindSize) int {
			return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Kind, b.Kind))
		})
		d.Groups = append(d.Groups, group)
	}
	return d
}

func (d *deadGroups) sort() {
	slices.SortStableFunc(d.Groups, func(a, b *deadGroup) int { return cmp.Compare(b.Tasks, a.Tasks) })
}

// Of says of which kinds the tasks are.
func (g *deadGroup) Of() string {
	names := make([]string, 0, 3)
	for _, k := range g.Kinds[:min(3, len(g.Kinds))] {
		names = append(names, k.Kind+" ("+number(k.Tasks)+")")
	}
	text := strings.Join(names, ", ")
	if more := len(g.Kinds) - 3; more > 0 {
		text += " and " + count(more, "more kind")
	}
	return text
}

// Died says how many tasks died, and of which kinds.
func (g *deadGroup) Died() string { return count(g.Tasks, "task") + " died: " + g.Of() }

// deadData is what the page of the dead shows.
type deadData struct {
	Groups []*deadGroup
	Read   int64
	All    int64
	Whole  bool // all are counted, so that the first of each cause is known
	More   int
	Calm   string // where nothing is dead
}

func (s *server) dead(r *http.Request, v *view) error {
	if cause := r.FormValue("cause"); cause != "" {
		return s.cause(r, v, cause)
	}
	v.Page, v.Nav, v.Title, v.Watch = "dead", "Dead", "Dead", "all.dead all.counted"
	v.Command = "midge task ls --by-cause"
	d := deadData{All: v.Sample.sum(func(q *queueNow) int64 { return q.Dead })}
	if v.Sample.dead != nil {
		d.Groups, d.Read, d.Whole = v.Sample.dead.Groups, v.Sample.dead.Read, v.Sample.dead.Whole
	}
	if len(d.Groups) > pageSize {
		d.More = len(d.Groups) - pageSize
		d.Groups = d.Groups[:pageSize]
	}
	if len(d.Groups) == 0 {
		d.Calm = "The dead tasks are being read."
	}
	if d.All == 0 {
		d.Calm = s.unscathed(r.Context(), v.Now)
	}
	v.Data = d
	return nil
}

// unscathed says for how long nothing has died, as far as the history tells.
func (s *server) unscathed(ctx context.Context, now time.Time) string {
	const step = time.Hour
	end := now.Truncate(step).Add(step)
	past, err := s.sampler.ledger.Series(ctx, end.Add(-ledger.HoursKept), end, step)
	if err != nil { // a history that cannot be read takes no page from anybody
		return "No task is dead."
	}
	var known time.Time
	for _, p := range slices.Backward(past.All) {
		if p.Dead > 0 {
			known = p.At.Add(step)
			break
		}
		if p.Known {
			known = p.At
		}
	}
	if known.IsZero() || now.Sub(known) < step {
		return "No task is dead."
	}
	return "Nothing has died for " + age(now.Sub(known)) + "."
}
