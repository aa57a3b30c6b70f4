// Package measure holds the measurements, each a function that measures once on one
// system. The files are divided by theme. Each holds the harness's part and, if the work
// is done in a process of its own, that process's role.
package measure

import (
	"context"
	"slices"
	"strings"

	"github.com/midgehq/midge/bench/internal/process"
	"github.com/midgehq/midge/bench/internal/server"
	"github.com/midgehq/midge/bench/internal/system"
)

// Values are the results of a measurement, by metric.
type Values map[string]float64

// Measurement measures one activity, in one or more metrics.
type Measurement struct {
	Gives []string // the metrics
	Run   func(ctx context.Context, r *Rig) (Values, error)
	// Servers are the names of the servers on which it is of interest.
	Servers []string
	takes   func(system.System) bool
}

// Takes reports whether the measurement makes sense for a system on a server.
func (m Measurement) Takes(s system.System, on string, storage string) bool {
	return slices.Contains(m.Servers, on) && slices.Contains(s.Storages, storage) && m.takes(s)
}

// Asked reports whether the measurement takes minutes, so that it is done only if a pattern names it that
// does not begin with a star.
func (m Measurement) Asked() bool {
	return strings.HasPrefix(m.Gives[0], "fleet_") || strings.HasPrefix(m.Gives[0], "grow_")
}

// The systems that take part in a measurement.
var (
	byDefault = func(s system.System) bool { return s.Tuned == system.Untuned }
	framework = func(s system.System) bool { return s.Tuned == system.Untuned && !s.Bare }
	inBulk    = func(s system.System) bool { return s.Tuned == system.Untuned && s.Bulk }
	working   = func(s system.System) bool { return s.Tuned != system.ForPickUp }
	tunedToo  = func(system.System) bool { return true }
	midgeOnly = func(s system.System) bool { return s.Own }
)

// The servers on which a measurement is done.
var (
	onRedis   = []string{system.Redis}
	onQuick   = []string{system.Redis, system.Memory}
	onEvery   = []string{system.Redis, system.Memory, system.Postgres, system.SQLite}
	onServers = []string{system.Redis, server.Everysec, system.Postgres, system.SQLite}
	onFile    = []string{system.SQLite}
	onBoth    = []string{system.Redis, system.Postgres, system.SQLite}
	onBig     = []string{system.Redis, system.Postgres}
	anywhere  = []string{system.Redis, server.Everysec, system.Memory, system.Postgres, system.SQLite}
)

// All returns the measurements in their order: enqueueing, draining, both at once, due
// jobs, costs, the effect of a million tasks, that of many idle runners, and the growth.
func All() []Measurement {
	all := []Measurement{
		{[]string{"enqueue_p1"}, enqueueBy("enqueue_p1", 1, false), onServers, byDefault},
		{
			[]string{"enqueue_p16", "enqueue_p16_srvcpu", "enqueue_p16_clicpu"},
			enqueueBy("enqueue_p16", fillers, false), onServers, byDefault,
		},
		{[]string{"enqueue_bulk"}, enqueueBy("enqueue_bulk", 1, true), onServers, inBulk},
		{[]string{"enqueue_later_p16"}, enqueueLater, onServers, framework},
		{[]string{"drain_c1"}, drainAt("drain_c1", 1), onQuick, byDefault},
		{[]string{"drain_c10"}, drainAt("drain_c10", 10), onEvery, working},
		{
			[]string{"drain_c100", "drain_c100_srvcpu", "drain_c100_wrkcpu", "drain_c100_wrkmem"},
			drainWithCosts, anywhere, working,
		},
		{[]string{"drain_c1000"}, drainAt("drain_c1000", 1000), onEvery, working},
		{[]string{"drain_q20"}, drainQueues, onQuick, framework},
		{[]string{"drain_littered"}, drainLittered, onEvery, midgeOnly},
		{[]string{"kinds_drain"}, drainDeclined, onEvery, midgeOnly},
		{[]string{"drain_limited"}, drainLimited, onEvery, midgeOnly},
		{[]string{"drain_rated"}, drainRated, onEvery, midgeOnly},
		{[]string{"drain_partitions"}, drainPartitions, onEvery, midgeOnly},
		{[]string{"drain_one_each"}, drainOneEach("drain_one_each", perPartition), onEvery, midgeOnly},
		{[]string{"drain_one_wide"}, drainOneEach("drain_one_wide", 1), onEvery, midgeOnly},
		{[]string{"drain_c100_net1ms"}, drainFarAway, onRedis, byDefault},
		{[]string{"mixed"}, mixedBy("mixed", 8), anywhere, working},
		{[]string{"mixed_p64"}, mixedBy("mixed_p64", 64), anywhere, working},
		{[]string{"latency_idle_p50", "latency_idle_p99"}, latencyIdle("latency_idle", false), onEvery, tunedToo},
		{[]string{"latency_own_p50", "latency_own_p99"}, latencyIdle("latency_own", true), onFile, midgeOnly},
		{[]string{"latency_half_p99"}, latencyHalf, onRedis, tunedToo},
		{[]string{"kinds_p99", "kinds_worst"}, latencyOfKinds, onEvery, midgeOnly},
		{[]string{"slot_p99"}, slotSame, onEvery, midgeOnly},
		{[]string{"slot_other_p99"}, slotOther, onEvery, midgeOnly},
		{[]string{"rate_p99", "rate_worst"}, rateNext, onEvery, midgeOnly},
		{[]string{"sched_p99", "sched_early"}, schedule, onBoth, tunedToo},
		{[]string{"burst_all"}, burst, onBoth, working},
		{
			[]string{"enqueue_p1_cmds", "enqueue_p1_trips", "drain_c100_cmds", "drain_c100_trips"},
			traffic, onRedis, framework,
		},
		{[]string{"idle_cmds", "idle_cpu"}, idle, onRedis, framework},
		{[]string{"depth", "mem_per_job"}, depth, onBoth, byDefault},
		{[]string{"mem_in_partition", "mem_per_partition"}, partitionMemory, onRedis, midgeOnly},
		{
			[]string{
				"slowlog", "slowlog_waiting", "slowlog_due", "slowlog_dead", "slowlog_max", "ping_p999",
			},
			million, onRedis, midgeOnly,
		},
	}
	for _, runners := range fleets {
		all = append(all, Measurement{fleetMetrics(runners), fleet(runners), onBig, midgeOnly})
	}
	return append(all, growth()...)
}

// Roles returns the roles of the harness's own processes by name.
func Roles() map[string]process.Role {
	return map[string]process.Role{
		"enqueue": enqueueRole, "drain": drainRole, "mixed": mixedRole,
		"pickup": pickupRole, "due": dueRole, "idle": idleRole, "fleet": fleetRole,
		"slot":       limitRole((*limited).slots, (*limited).freed),
		"slot-other": limitRole((*limited).otherSlots, (*limited).freed),
		"rate":       limitRole((*limited).rate, (*limited).next),
	}
}
