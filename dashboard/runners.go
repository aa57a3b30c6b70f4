package dashboard

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

// runnersData is the data of the page of the runners.
type runnersData struct {
	Runners []runnerView
	Order   *columnOrder
	Page    pager
	Info    storage.Description
}

func (s *server) runners(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title, v.Watch = "runners", "Runners", "Runners", "all.mark all.tick"
	v.Command = "midge runner ls"
	query := r.URL.Query()
	d := runnersData{Info: v.Sample.Info, Order: &columnOrder{By: query.Get("sort"), path: "/runners"}}
	for _, info := range v.Sample.Runners {
		d.Runners = append(d.Runners, runnerOf(info))
	}
	err := sortColumn(d.Runners, d.Order, runnerColumns)
	if err != nil {
		return err
	}
	if d.Page, err = d.Order.page(v, query.Get("page"), len(d.Runners)); err != nil {
		return err
	}
	d.Runners = d.Runners[max(0, d.Page.From-1):d.Page.To]
	v.Data = &d
	return nil
}

// runnerColumns has the comparison of runners for the order by each column.
var runnerColumns = map[string]func(a, b runnerView) int{
	"name":    func(a, b runnerView) int { return cmp.Compare(a.ID, b.ID) },
	"queues":  func(a, b runnerView) int { return cmp.Compare(len(b.Queues), len(a.Queues)) },
	"running": func(a, b runnerView) int { return cmp.Compare(b.InUse(), a.InUse()) },
	"failed":  func(a, b runnerView) int { return cmp.Compare(b.Share(), a.Share()) },
	"memory":  func(a, b runnerView) int { return cmp.Compare(b.Memory, a.Memory) },
	"started": func(a, b runnerView) int { return b.Started.Compare(a.Started) },
	"seen":    func(a, b runnerView) int { return b.Seen.Compare(a.Seen) },
}

// runnerData is the data of the page of a runner.
type runnerData struct {
	runnerView

	Longest []runningTask
}

func (s *server) runner(r *http.Request, v *view) error {
	id := r.PathValue("runner")
	i := slices.IndexFunc(v.Sample.Runners, func(info storage.RunnerInfo) bool { return info.ID == id })
	if i < 0 {
		return &statusError{http.StatusNotFound, "Runner not found. It may have stopped."}
	}
	v.Page, v.Nav, v.Kind, v.Title, v.Watch = "runner", "Runners", "Runner", id, "all.tick"
	v.Command = commandLine("midge", "runner", "show", id)
	v.Data = &runnerData{runnerOf(v.Sample.Runners[i]), longest(v.Sample.Runners[i:i+1], "", storage.MaxRunning)}
	return nil
}

// runnerView is a runner with the vitals that it reports.
type runnerView struct {
	storage.RunnerInfo

	Memory, Goroutines int
	Kinds              []kindTotals // since the runner was started, the kind with the most runs first
	Omitted            int          // kinds for which a heartbeat had no room
	Runs, Failed       int64
	Told               bool // the runner has reported vitals
	Unreadable         bool // this program cannot decode the vitals of the runner
}

// Elsewhere returns the host of the runner, "" if the id of the runner begins with it.
func (r *runnerView) Elsewhere() string {
	if host, _ := storage.RunnerHost(r.ID); host == r.Host {
		return ""
	}
	return r.Host
}

// Share returns the part of the runs that failed.
func (r *runnerView) Share() float64 { return float64(r.Failed) / max(1, float64(r.Runs)) }

// runnerOf decodes the vitals of a runner.
func runnerOf(info storage.RunnerInfo) runnerView {
	r := runnerView{RunnerInfo: info, Told: len(info.Vitals) > 0}
	told, err := vitals.Decode(info.Vitals)
	if err != nil {
		r.Unreadable = true
		return r
	}
	r.Memory, r.Goroutines, r.Omitted = int(told.Memory), told.Goroutines, told.Omitted
	for i := range told.Kinds {
		k := &told.Kinds[i]
		t := kindTotals{
			Kind: k.Name, Runs: clamped(k.Runs.Count()), Failed: clamped(k.Failed),
			P50: k.Runs.Quantile(0.5), P95: k.Runs.Quantile(0.95), P99: k.Runs.Quantile(0.99),
		}
		r.Runs, r.Failed = r.Runs+t.Runs, r.Failed+t.Failed
		r.Kinds = append(r.Kinds, t)
	}
	slices.SortStableFunc(r.Kinds, func(a, b kindTotals) int {
		return cmp.Or(cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Kind, b.Kind))
	})
	return r
}

// clamped limits a count that a runner reports, which may be any number, so that sums of counts do not
// overflow.
func clamped(n uint64) int64 { return int64(min(n, 1<<50)) }

// runningTask is a task that a runner runs.
type runningTask struct {
	storage.Running

	Runner string
}

// longest returns the tasks of a queue that have run the longest, at most as many as most. Without a queue
// these are tasks of all queues but midge's own.
func longest(runners []storage.RunnerInfo, queue string, most int) []runningTask {
	var all []runningTask
	for i := range runners {
		for _, t := range runners[i].Running {
			if t.Ref.Queue == queue || queue == "" && !storage.Reserved(t.Ref.Queue) {
				all = append(all, runningTask{t, runners[i].ID})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b runningTask) int { return a.Since.Compare(b.Since) })
	return all[:min(most, len(all))]
}
