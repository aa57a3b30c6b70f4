package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// mostDead bounds the dead tasks that are read to be grouped.
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

	kinds map[string]int64
}

// deadGroups are all dead tasks that were read, by cause.
type deadGroups struct {
	Groups  []*deadGroup // the largest first
	Read    int64
	counted string // with what the storage counted then
}

// readDead groups the dead tasks by cause, where any died or came back since they were read.
func (s *sampler) readDead(ctx context.Context, before, fresh *sample) error {
	var counted strings.Builder
	var dead int64
	for i := range fresh.queues {
		q := &fresh.queues[i]
		dead += q.Dead
		counted.WriteString(strconv.FormatInt(q.Dead, 36) + " " + strconv.FormatInt(q.Totals.Dead, 36) + ",")
	}
	if before != nil && before.dead != nil &&
		(before.dead.counted == counted.String() || fresh.at.Sub(s.deadAt) < deadFor) {
		fresh.dead = before.dead
		return nil
	}
	s.deadAt = fresh.at
	found := &deadGroups{counted: counted.String()}
	byCause := map[string]*deadGroup{}
	for i := range fresh.queues {
		if fresh.queues[i].Dead == 0 {
			continue
		}
		for t, err := range storage.Each(ctx, s.store, fresh.queues[i].Queue, storage.Dead) {
			if err != nil {
				return err
			}
			found.add(byCause, t)
			if found.Read >= mostDead {
				break
			}
		}
	}
	found.sort()
	fresh.dead = found
	return nil
}

// add joins a task to the group of its cause.
func (d *deadGroups) add(byCause map[string]*deadGroup, t storage.Task) {
	cause := fingerprint.Of(t)
	g := byCause[cause.ID]
	if g == nil {
		g = &deadGroup{
			ID: cause.ID, Error: cmp.Or(firstLine(t.LastError()), t.Reason), First: t.Ended, Last: t.Ended,
			Filter: "cause:" + cause.ID, kinds: map[string]int64{},
		}
		if cause.ID == "" { // neither an error nor a reason: no filter names such tasks
			g.Error, g.Filter = "no error", ""
		}
		byCause[cause.ID] = g
		d.Groups = append(d.Groups, g)
	}
	d.Read++
	g.Tasks++
	g.kinds[t.Kind]++
	if t.Ended.Before(g.First) {
		g.First = t.Ended
	}
	if t.Ended.After(g.Last) {
		g.Last = t.Ended
	}
	if !slices.Contains(g.Queues, t.Queue) {
		g.Queues = append(g.Queues, t.Queue)
	}
}

func (d *deadGroups) sort() {
	for _, g := range d.Groups {
		for kind, n := range g.kinds {
			g.Kinds = append(g.Kinds, storage.KindSize{Kind: kind, Tasks: n})
		}
		slices.SortFunc(g.Kinds, func(a, b storage.KindSize) int {
			return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Kind, b.Kind))
		})
	}
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
	More   int
	Calm   string // where nothing is dead
}

func (s *server) dead(r *http.Request, v *view) error {
	if cause := r.FormValue("cause"); cause != "" {
		return s.cause(r, v, cause)
	}
	v.Page, v.Nav, v.Title, v.Watch = "dead", "Dead", "Dead", "all.dead"
	v.Command = "midge task ls --by-cause"
	d := deadData{All: v.Sample.sum(func(q *queueNow) int64 { return q.Dead })}
	if v.Sample.dead != nil {
		d.Groups, d.Read = v.Sample.dead.Groups, v.Sample.dead.Read
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
