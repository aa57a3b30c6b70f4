package dashboard

import (
	"cmp"
	"slices"

	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

// runnerNow is a runner with what it tells of itself.
type runnerNow struct {
	storage.RunnerInfo

	Memory, Goroutines int
	Kinds              []kindTotals // since the runner was started, those with the most runs first
	Omitted            int          // kinds for which a heartbeat has no room
	Runs, Failed       int64
	Told               bool // it tells anything: the first heartbeats do not
	Unreadable         bool // it tells what this program cannot read
}

// Share is the part of the runs that failed.
func (r *runnerNow) Share() float64 { return float64(r.Failed) / max(1, float64(r.Runs)) }

// runnerOf reads what a runner tells of itself.
func runnerOf(info storage.RunnerInfo) runnerNow {
	r := runnerNow{RunnerInfo: info, Told: len(info.Vitals) > 0}
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

// clamped is a count that a runner tells, which may be anything, as one that can be added up.
func clamped(n uint64) int64 { return int64(min(n, 1<<50)) }
