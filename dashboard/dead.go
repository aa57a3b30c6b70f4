package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/ledger"
)

// Of says of which kinds the tasks are.
func (g *deadGroup) Of() string {
	names := make([]string, 0, 3)
	for _, k := range g.Kinds[:min(3, len(g.Kinds))] {
		names = append(names, k.Kind+" ("+format.Number(k.Tasks)+")")
	}
	text := strings.Join(names, ", ")
	if more := len(g.Kinds) - 3; more > 0 {
		text += " and " + format.Count(more, "more kind")
	}
	return text
}

// Died says how many tasks died, and of which kinds.
func (g *deadGroup) Died() string { return format.Count(g.Tasks, "task") + " died: " + g.Of() }

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

// unscathed says for how long nothing has died: since the last death, the last hour without a record, or the
// beginning of the history. An hour that is averaged, or known in part, counts where an hour before it is
// whole.
func (s *server) unscathed(ctx context.Context, now time.Time) string {
	const step = time.Hour
	end := now.Truncate(step).Add(step)
	past, err := s.sampler.past.read(ctx, pastSpan{end: end, length: ledger.HoursKept, step: step})
	if err != nil || len(past.Damaged) > 0 { // a history that cannot be read takes no page from anybody
		return "No task is dead."
	}
	since := now
	for i, p := range slices.Backward(past.All) {
		if p.Dead > 0 {
			since = p.At.Add(step)
			break
		}
		if !p.Known && i < len(past.All)-1 { // nothing is known yet of an hour that has just begun
			break
		}
		if p.Known && !p.Gap {
			since = p.At
		}
	}
	if now.Sub(since) < step {
		return "No task is dead."
	}
	return "Nothing has died for " + format.Age(now.Sub(since)) + "."
}
