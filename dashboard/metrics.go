package dashboard

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/midgehq/midge/dashboard/internal/chart"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// metricsData is the data of the page of the history.
type metricsData struct {
	Span, Queue string
	Spans       []string
	Chart       *chart.Chart
	Queues      []ledger.Totals
	Kinds       []kindTotals
	More        int // queues that are not shown
	MoreKinds   int
	Damaged     []string
	Totals      ledger.Totals
}

// Word returns a span in words.
func (metricsData) Word(span string) string {
	n, unit := span[:len(span)-1], map[byte]string{'h': "hour", 'd': "day"}[span[len(span)-1]]
	if n != "1" {
		unit += "s"
	}
	return n + format.NBSP + unit
}

// kindTotals sums up the runs of a kind.
type kindTotals struct {
	Kind          string
	Runs, Failed  int64
	P50, P95, P99 time.Duration
}

// Share returns the part of the runs that failed.
func (k kindTotals) Share() float64 { return float64(k.Failed) / max(1, float64(k.Runs)) }

func (s *server) metrics(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title = "metrics", "Metrics", "Metrics"
	query := r.URL.Query() // FormValue would also read a multipart form in the body of a GET
	d := metricsData{Span: cmp.Or(query.Get("span"), "1h"), Queue: query.Get("queue")}
	if d.Queue != "" {
		if err := storage.CheckName("queue", d.Queue); err != nil {
			return err
		}
		v.Kind = "Queue " + d.Queue
	}
	for _, span := range ledger.Spans {
		d.Spans = append(d.Spans, span.Name)
	}
	of, err := ledger.SpanOf(d.Span)
	if err != nil {
		return err
	}
	step, end := of.Step, of.End(v.Now)
	series, err := s.sampler.Series(r.Context(), sampler.Range{
		End: end, Length: of.Length, Step: step, Queue: d.Queue,
	})
	if err != nil {
		return err
	}
	words := []string{"midge", "history", "--span", d.Span}
	if d.Queue != "" {
		words = append(words, d.Queue)
	}
	v.Command = commandLine(words...)
	d.Damaged = series.Damaged
	d.Chart = &chart.Chart{
		From: series.From.In(v.Zone()), Step: step, Which: d.Span, Part: 1 - float64(end.Sub(v.Now))/float64(step),
	}
	d.Chart.Versions = series.Deploys
	for _, p := range series.All {
		d.Chart.Points = append(d.Chart.Points, sampler.Point{
			Done: float64(p.Done), Failed: float64(p.Failed), Seen: p.Known, Gap: p.Gap,
		})
	}
	d.Totals, d.Queues = ledger.TotalsOf("", series.All), series.Totals()
	if len(d.Queues) > pageSize {
		d.More = len(d.Queues) - pageSize
		d.Queues = d.Queues[:pageSize]
	}
	for _, kind := range slices.Sorted(maps.Keys(series.Kinds)) {
		d.Kinds = append(d.Kinds, kindOf(kind, series.Kinds[kind]))
	}
	slices.SortStableFunc(d.Kinds, func(a, b kindTotals) int { return cmp.Compare(b.Runs, a.Runs) })
	if len(d.Kinds) > pageSize {
		d.MoreKinds = len(d.Kinds) - pageSize
		d.Kinds = d.Kinds[:pageSize]
	}
	v.Data = d
	return nil
}

// kindOf sums up the steps of a kind. Its durations are those of the slowest minute.
func kindOf(kind string, steps []ledger.KindPoint) kindTotals {
	var sum ledger.KindPoint
	for i := range steps {
		sum.Add(&steps[i])
	}
	return kindTotals{kind, sum.Runs, sum.Failed, sum.P50, sum.P95, sum.P99}
}
