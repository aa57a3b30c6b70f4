package dashboard

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// metricSpans are the times over which the history is shown, in at most 60 points.
var metricSpans = []struct {
	Name       string
	Step, Span time.Duration
}{
	{"1h", time.Minute, time.Hour},
	{"6h", 6 * time.Minute, 6 * time.Hour},
	{"24h", 24 * time.Minute, 24 * time.Hour},
	{"7d", 3 * time.Hour, 7 * 24 * time.Hour},
	{"30d", 12 * time.Hour, 30 * 24 * time.Hour},
	{"90d", 36 * time.Hour, 90 * 24 * time.Hour},
}

// metricsData is what the page of the history shows.
type metricsData struct {
	Span, Queue string
	Spans       []string
	Chart       *chart
	Queues      []queueTotals
	Kinds       []kindTotals
	More        int // queues that are not shown
	Damaged     []string
	Totals      queueTotals
}

// Word is a span in words.
func (metricsData) Word(span string) string {
	n, unit := span[:len(span)-1], map[byte]string{'h': "hour", 'd': "day"}[span[len(span)-1]]
	if n != "1" {
		unit += "s"
	}
	return n + nbsp + unit
}

// queueTotals are the sums of a queue over the span.
type queueTotals struct {
	Queue                        string
	Enqueued, Done, Failed, Dead int64
	Waiting                      int64
	Oldest                       time.Duration
}

// kindTotals are those of a kind.
type kindTotals struct {
	Kind          string
	Runs, Failed  int64
	P50, P95, P99 time.Duration
}

// Share is the part of the attempts that failed.
func (q queueTotals) Share() float64 { return float64(q.Failed) / max(1, float64(q.Done+q.Failed)) }

// Share is the part of the runs that failed.
func (k kindTotals) Share() float64 { return float64(k.Failed) / max(1, float64(k.Runs)) }

func (s *server) metrics(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title = "metrics", "Metrics", "Metrics"
	d := metricsData{Span: cmp.Or(r.FormValue("span"), "1h"), Queue: r.FormValue("queue")}
	if d.Queue != "" {
		if err := storage.CheckName("queue", d.Queue); err != nil {
			return err
		}
		v.Kind = "Queue " + d.Queue
	}
	at := -1
	for i, span := range metricSpans {
		d.Spans = append(d.Spans, span.Name)
		if span.Name == d.Span {
			at = i
		}
	}
	if at < 0 {
		return storage.Invalid("span", d.Span, "one of %v", d.Spans)
	}
	step, span := metricSpans[at].Step, metricSpans[at].Span
	epoch := time.Unix(0, 0)
	end := epoch.Add(v.Now.Sub(epoch).Truncate(step) + step)
	series, err := s.sampler.past.read(r.Context(), pastSpan{end, span, step, d.Queue})
	if err != nil {
		return err
	}
	v.Command = "midge stats"
	d.Damaged = series.Damaged
	d.Chart = &chart{From: series.From, Step: step, Which: d.Span, Part: 1 - float64(end.Sub(v.Now))/float64(step)}
	d.Chart.deploys = series.Deploys
	for _, p := range series.All {
		d.Chart.Points = append(d.Chart.Points, point{float64(p.Done), float64(p.Failed), p.Known, p.Gap})
	}
	d.Chart.Max = d.Chart.most()
	d.Totals = totalsOf("", series.All)
	for _, queue := range slices.Sorted(maps.Keys(series.Queues)) {
		d.Queues = append(d.Queues, totalsOf(queue, series.Queues[queue]))
	}
	slices.SortStableFunc(d.Queues, func(a, b queueTotals) int {
		return cmp.Compare(b.Done+b.Failed, a.Done+a.Failed)
	})
	if len(d.Queues) > pageSize {
		d.More = len(d.Queues) - pageSize
		d.Queues = d.Queues[:pageSize]
	}
	for _, kind := range slices.Sorted(maps.Keys(series.Kinds)) {
		d.Kinds = append(d.Kinds, kindOf(kind, series.Kinds[kind]))
	}
	slices.SortStableFunc(d.Kinds, func(a, b kindTotals) int { return cmp.Compare(b.Runs, a.Runs) })
	d.Kinds = d.Kinds[:min(pageSize, len(d.Kinds))]
	v.Data = d
	return nil
}

func totalsOf(queue string, steps []ledger.Point) queueTotals {
	t := queueTotals{Queue: queue}
	for _, p := range steps {
		t.Enqueued, t.Done = t.Enqueued+p.Enqueued, t.Done+p.Done
		t.Failed, t.Dead = t.Failed+p.Failed, t.Dead+p.Dead
		t.Waiting, t.Oldest = max(t.Waiting, p.Waiting), max(t.Oldest, p.Oldest)
	}
	return t
}

// kindOf sums up a kind. Its durations are means of those of the steps, weighted by runs.
func kindOf(kind string, steps []ledger.KindPoint) kindTotals {
	t := kindTotals{Kind: kind}
	var p50, p95, p99 float64
	for _, p := range steps {
		t.Runs, t.Failed = t.Runs+p.Runs, t.Failed+p.Failed
		runs := float64(p.Runs)
		p50, p95, p99 = p50+runs*float64(p.P50), p95+runs*float64(p.P95), p99+runs*float64(p.P99)
	}
	runs := max(1, float64(t.Runs))
	t.P50, t.P95, t.P99 = time.Duration(p50/runs), time.Duration(p95/runs), time.Duration(p99/runs)
	return t
}

// auditData is what the page of the audit shows.
type auditData struct {
	Acts        []ledger.Entry
	First, Next string
}

func (s *server) audits(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title = "audit", "Audit", "Audit"
	after := r.FormValue("after")
	words := []string{"midge", "audit"}
	if after != "" {
		words = append(words, "--after="+after)
	}
	v.Command = commandLine(words...)
	acts, next, err := s.audit.List(r.Context(), after, pageSize)
	if err != nil {
		return err
	}
	d := auditData{Acts: acts}
	if after != "" {
		d.First = v.URL("/audit")
	}
	if next != "" {
		d.Next = v.URL("/audit", "after", next)
	}
	v.Data = d
	return nil
}
