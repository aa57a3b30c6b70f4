package main

import (
	"path"
	"slices"
	"strings"

	"github.com/midgehq/midge/bench/internal/report"
	"github.com/midgehq/midge/bench/internal/system"
)

// bound is the part of its reference's speed that each row must keep.
const bound = 0.9

// The reference commits. README.md describes how they were chosen.
const (
	first  = "a45efab" // midge before its first command and dashboard; it has no SQLite
	second = "2173b82" // the first commit with all storages
)

// comparison is one measurement on one storage, beside a reference commit.
type comparison struct {
	storage   string
	reference string
	metrics   []string // that one measurement returns together
	full      bool     // with the sizes of a published run instead of those of a quick one
}

// measured are the measurements, each with the storages on which it is compared.
var measured = []struct {
	metrics  []string
	full     bool
	storages []string
}{
	{[]string{"enqueue_p1"}, false, servers},
	{[]string{"enqueue_p16", "enqueue_p16_srvcpu", "enqueue_p16_clicpu"}, false, servers},
	{[]string{"enqueue_bulk"}, false, servers},
	{[]string{"enqueue_later_p16"}, false, servers},
	{[]string{"drain_c10"}, false, all},
	{[]string{"drain_c100", "drain_c100_srvcpu", "drain_c100_wrkcpu"}, false, all},
	{[]string{"drain_c1000"}, false, all},
	{[]string{"drain_q20"}, false, []string{system.Redis, system.Memory}},
	{[]string{"mixed"}, false, all},
	{[]string{"mixed_p64"}, false, all},
	{[]string{"latency_idle_p50", "latency_idle_p99"}, false, all},
	{[]string{"burst_all"}, true, servers},
	{[]string{"idle_cmds"}, false, []string{system.Redis}},
	{[]string{"mem_per_job"}, false, servers},
}

// The storages.
var (
	servers = []string{system.Redis, system.Postgres, system.SQLite}
	all     = append(slices.Clone(servers), system.Memory)
)

// moved are the references of rows that cannot reach the first one, because a promise that it broke
// costs the time. README.md names the promise and its price.
var moved = map[string]string{}

// comparisons are all comparisons, storage by storage.
var comparisons = listed()

func listed() []comparison {
	var list []comparison
	for _, storage := range all {
		for _, m := range measured {
			if !slices.Contains(m.storages, storage) {
				continue
			}
			c := comparison{storage, first, m.metrics, m.full}
			if storage == system.SQLite {
				c.reference = second
			}
			if later, ok := moved[storage+" "+m.metrics[0]]; ok {
				c.reference = later
			}
			list = append(list, c)
		}
	}
	return list
}

// matches reports whether a pattern of the plan names the metric.
func (p plan) matches(metric string) bool {
	return slices.ContainsFunc(p.metrics, func(pattern string) bool {
		ok, err := path.Match(pattern, metric)
		return ok && err == nil
	})
}

// higherIsBetter reports whether a metric is a rate. The others are costs.
func higherIsBetter(metric string) bool { return report.Unit(metric) == "jobs/s" }

// shownOnly are the endings of metrics that swing too much to be judged.
var shownOnly = []string{"_p99"}

// judged reports whether the row may end the run with an error.
func (r row) judged() bool {
	swings := func(ending string) bool { return strings.HasSuffix(r.metric, ending) }
	return !slices.ContainsFunc(shownOnly, swings)
}
