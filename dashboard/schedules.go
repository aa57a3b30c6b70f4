package dashboard

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// schedulesData is the data of the page of the schedules.
type schedulesData struct {
	Schedules []scheduleView
	Order     *columnOrder
	Page      pager
}

func (s *server) schedules(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title, v.Watch = "schedules", "Schedules", "Schedules", "all.mark all.tick"
	v.Command = "midge schedule ls"
	query := r.URL.Query()
	d := schedulesData{
		Schedules: scheduleViews(v.Sample), Order: &columnOrder{By: query.Get("sort"), path: "/schedules"},
	}
	err := sortColumn(d.Schedules, d.Order, scheduleColumns)
	if err != nil {
		return err
	}
	if d.Page, err = d.Order.page(v, query.Get("page"), len(d.Schedules)); err != nil {
		return err
	}
	d.Schedules = d.Schedules[max(0, d.Page.From-1):d.Page.To]
	v.Data = &d
	return nil
}

// scheduleColumns has the comparison of schedules for the order by each column.
var scheduleColumns = map[string]func(a, b scheduleView) int{
	"name":  func(a, b scheduleView) int { return cmp.Compare(a.Name(), b.Name()) },
	"queue": func(a, b scheduleView) int { return cmp.Compare(a.Queue, b.Queue) },
	"last":  func(a, b scheduleView) int { return b.Cursor.Last.Compare(a.Cursor.Last) },
	"next":  func(a, b scheduleView) int { return a.Cursor.Next.Compare(b.Cursor.Next) },
}

// scheduleView is a schedule as pages show it.
type scheduleView struct {
	*survey.Schedule
}

// scheduleViews returns the schedules, the next to tick first.
func scheduleViews(s *sampler.Sample) []scheduleView {
	schedules := make([]scheduleView, len(s.Schedules))
	for i := range s.Schedules {
		schedules[i] = scheduleView{&s.Schedules[i]}
	}
	return schedules
}

// tick is a moment at which a schedule is due.
type tick struct {
	At     time.Time
	Local  string // in the zone of the schedule
	Change string // how the offset of the zone changed since the tick before, "" if it did not
}

// Ticks returns the next ten ticks of the schedule, or none if it does not tick.
func (c scheduleView) Ticks() []tick {
	moments, err := schedule.Of(c.Ref, &c.Declaration)
	if err != nil || c.Cursor.Next.IsZero() {
		return nil
	}
	zone, err := time.LoadLocation(c.Declaration.Zone)
	if err != nil {
		return nil
	}
	var ticks []tick
	_, offset := c.Cursor.Next.In(zone).Zone()
	for at := c.Cursor.Next; len(ticks) < 10 && !at.IsZero(); at = moments.Next(at) {
		t := tick{At: at, Local: at.In(zone).Format("Mon 2006-01-02 15:04:05 MST")}
		if _, now := at.In(zone).Zone(); now != offset {
			t.Change = "the offset of the zone changes by " + format.Duration(time.Duration(now-offset)*time.Second)
			offset = now
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// Zone returns the time zone of the schedule, "" if its ticks do not depend on one.
func (c scheduleView) Zone() string {
	if strings.HasPrefix(c.Spec(), "every ") {
		return ""
	}
	return cmp.Or(c.Declaration.Zone, "UTC")
}

// apart puts spaces around the units of a duration.
var apart = strings.NewReplacer(
	"h", format.NBSP+"h"+format.NBSP, "m", format.NBSP+"m"+format.NBSP, "s", format.NBSP+"s"+format.NBSP,
)

// Spec returns the schedule as text, such as "every 5 m".
func (c scheduleView) Spec() string {
	spec := schedule.Short(c.Declaration.Spec)
	if every, ok := strings.CutPrefix(spec, "every "); ok {
		every, jitter, _ := strings.Cut(every, " jitter ")
		spec = "every " + strings.TrimSuffix(apart.Replace(every), format.NBSP)
		if jitter != "" {
			spec += " jitter " + strings.TrimSuffix(apart.Replace(jitter), format.NBSP)
		}
	}
	return spec
}

// Anchor returns the id of the schedule on its page.
func (c scheduleView) Anchor() string { return anchor(c.Ref) }

// anchor returns the id of a schedule on the page of the schedules.
func anchor(ref storage.Ref) string { return "s." + ref.Queue + "." + ref.ID }
