package dashboard

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

type runnersData struct {
	Runners []runnerNow
	Page    pager
	Info    storage.Description
}

func (s *server) runners(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title, v.Watch = "runners", "Runners", "Runners", "all.mark all.tick"
	v.Command = "midge runner ls"
	page, err := pageOf(v, r.URL.Query().Get("page"), len(v.Sample.runners), "/runners")
	if err != nil {
		return err
	}
	d := runnersData{Page: page, Info: v.Sample.info}
	for _, info := range v.Sample.runners[max(0, page.From-1):page.To] {
		d.Runners = append(d.Runners, runnerOf(info))
	}
	v.Data = d
	return nil
}

// runnerData is what the page of a runner shows.
type runnerData struct {
	runnerNow

	Longest []runningTask
}

func (s *server) runner(r *http.Request, v *view) error {
	id := r.PathValue("runner")
	i := slices.IndexFunc(v.Sample.runners, func(info storage.RunnerInfo) bool { return info.ID == id })
	if i < 0 {
		return &statusError{http.StatusNotFound, "No live runner has this id. It may have stopped since."}
	}
	v.Page, v.Nav, v.Kind, v.Title, v.Watch = "runner", "Runners", "Runner", id, "all.tick"
	v.Command = commandLine("midge", "runner", "show", id)
	v.Data = runnerData{runnerOf(v.Sample.runners[i]), longest(v.Sample.runners[i:i+1], storage.MaxRunning)}
	return nil
}

type schedulesData struct {
	Schedules []scheduleNow
	Page      pager
}

func (s *server) schedules(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title, v.Watch = "schedules", "Schedules", "Schedules", "all.mark all.tick"
	v.Command = "midge schedule ls"
	page, err := pageOf(v, r.URL.Query().Get("page"), len(v.Sample.schedules), "/schedules")
	if err != nil {
		return err
	}
	v.Data = schedulesData{v.Sample.schedules[max(0, page.From-1):page.To], page}
	return nil
}

// tick is a moment at which a schedule is due.
type tick struct {
	At     time.Time
	Local  string // in its zone
	Change string // of the offset of its zone since the tick before, "" for none
}

// Ticks gives the next ten moments of the schedule.
func (c *scheduleNow) Ticks() []tick {
	moments, err := schedule.Parse(c.declaration.Spec, c.declaration.Zone)
	if err != nil || c.Cursor.Next.IsZero() {
		return nil
	}
	zone, err := time.LoadLocation(c.declaration.Zone)
	if err != nil {
		return nil
	}
	var ticks []tick
	_, offset := c.Cursor.Next.In(zone).Zone()
	for at := c.Cursor.Next; len(ticks) < 10 && !at.IsZero(); at = moments.Next(at) {
		t := tick{At: at, Local: at.In(zone).Format("Mon 2006-01-02 15:04:05 MST")}
		if _, now := at.In(zone).Zone(); now != offset {
			t.Change = "the clock there changed by " + format.Duration(time.Duration(now-offset)*time.Second)
			offset = now
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// Zone is the zone in which the schedule is read.
func (c *scheduleNow) Zone() string {
	if c.declaration.Zone == "" {
		return "UTC"
	}
	return c.declaration.Zone
}

// Spec is the schedule as text.
func (c *scheduleNow) Spec() string { return c.declaration.Spec }

// Anchor is the schedule's place on its page.
func (c *scheduleNow) Anchor() string { return anchor(c.Ref) }

// Orphaned reports whether no live runner declares the schedule.
func (c *scheduleNow) Orphaned() bool { return c.orphaned }

// Damaged reports whether the declaration cannot be read.
func (c *scheduleNow) Damaged() bool { return c.damaged }

// pageOf gives the page of a list of n rows. The pairs are what its addresses keep.
func pageOf(v *view, number string, n int, path string, pairs ...string) (pager, error) {
	page := 1
	if number != "" {
		var err error
		if page, err = strconv.Atoi(number); err != nil || page < 1 || page > 1<<20 {
			return pager{}, storage.Invalid("page", number, "the number of a page, from 1")
		}
	}
	p := pager{From: min((page-1)*pageSize+1, n), To: min(page*pageSize, n), Of: n}
	if (page-1)*pageSize >= n && page > 1 {
		p.From, p.To = n+1, n
	}
	at := func(page int) string { return v.URL(path, append(pairs, "page", strconv.Itoa(page))...) }
	if page > 1 {
		p.Prev = at(page - 1)
	}
	if page*pageSize < n {
		p.Next = at(page + 1)
	}
	return p, nil
}
