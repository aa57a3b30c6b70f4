package report

import (
	"fmt"
	"strings"
)

// units are the units of metrics that are not rates. The longest matching ending of the
// name decides.
var units = []struct{ ending, unit string }{
	{"_srvcpu", "µs/job"},
	{"_wrkcpu", "µs/job"},
	{"_clicpu", "µs/job"},
	{"_wrkmem", "MiB"},
	{"_cmds", "per job"},
	{"_trips", "per job"},
	{"_p50", "ms"},
	{"_p99", "ms"},
	{"_p999", "ms"},
	{"_worst", "ms"},
	{"slowlog_max", "ms"},
	{"slowlog", "scripts"},
	{"slowlog_waiting", "scripts"},
	{"slowlog_due", "scripts"},
	{"slowlog_dead", "scripts"},
	{"sched_early", "jobs"},
	{"burst_all", "s"},
	{"mem_per_job", "B"},
	{"mem_in_partition", "B"},
	{"mem_per_partition", "B"},
	{"idle_cmds", "per s"},
	{"idle_cpu", "%"},
	{"depth", "ratio"},
	{"_up", "s"},
	{"_idle", "%"},
	{"_lone", "µs/job"},
}

// Unit returns the unit of a metric.
func Unit(metric string) string {
	unit, length := "jobs/s", 0
	for _, u := range units {
		if strings.HasSuffix(metric, u.ending) && len(u.ending) > length {
			unit, length = u.unit, len(u.ending)
		}
	}
	return unit
}

// The systems that midge is compared with.
const (
	asynq      = "asynq"
	river      = "river"
	riverTuned = "river-tuned"
)

// peerOn returns the system that midge is compared with on a storage, unless a target
// names another.
func peerOn(storage string) string {
	if storage == "postgres" || storage == "sqlite" {
		return river
	}
	return asynq
}

// self is the system that the targets are for.
const self = "midge"

// target is the value that midge must reach: bound times the value of another system or
// metric, or bound itself.
type target struct {
	bound  float64
	most   bool   // it is an upper bound
	system string // system whose value bound is multiplied by, "" for none
	metric string // metric of that value, "" for the same metric
}

// targets are the targets on Redis, by metric.
var targets = map[string]target{
	"enqueue_p1":        {bound: 1, system: asynq},
	"enqueue_p16":       {bound: 1.5, system: asynq},
	"enqueue_bulk":      {bound: 400_000},
	"drain_c1":          {bound: 5, system: asynq},
	"drain_c10":         {bound: 12, system: asynq},
	"drain_c100":        {bound: 20, system: asynq},
	"drain_c1000":       {bound: 20, system: asynq},
	"drain_c100_srvcpu": {bound: 3.5, most: true},
	"drain_c100_wrkcpu": {bound: 5.5, most: true},
	"drain_q20":         {bound: 0.8, system: self, metric: "drain_c100"},
	"drain_littered":    {bound: 0.8, system: self, metric: "drain_c100"},
	"kinds_drain":       {bound: 0.95, system: self, metric: "drain_c100"},
	"drain_limited":     {bound: 0.5, system: self, metric: "drain_c100"},
	"drain_rated":       {bound: 0.5, system: self, metric: "drain_c100"},
	"drain_partitions":  {bound: 15_000},
	"drain_one_each":    {bound: 15_000},
	"drain_one_wide":    {bound: 0.7, system: self, metric: "drain_one_each"},
	"kinds_p99":         {bound: 50, most: true},
	"kinds_worst":       {bound: 1000, most: true},
	"slot_p99":          {bound: 5, most: true},
	"slot_other_p99":    {bound: 1200, most: true},
	"rate_worst":        {bound: 30, most: true},
	"drain_c100_net1ms": {bound: 60_000},
	"mixed":             {bound: 3.5, system: asynq},
	"mixed_p64":         {bound: 10, system: asynq},
	"latency_idle_p50":  {bound: 0.4, most: true},
	"latency_idle_p99":  {bound: 1, most: true},
	"latency_half_p99":  {bound: 2.5, most: true},
	"sched_p99":         {bound: 3, most: true},
	"sched_early":       {bound: 0, most: true},
	"burst_all":         {bound: 0.7, most: true},
	"idle_cmds":         {bound: 2, most: true},
	"idle_cpu":          {bound: 0.1, most: true},
	"depth":             {bound: 0.85},
	"mem_per_job":       {bound: 0.6, most: true, system: asynq},
	"mem_per_partition": {bound: 150, most: true},
	"slowlog":           {bound: 0, most: true},
	"ping_p999":         {bound: 15, most: true},
}

// memoryTargets are the targets on the memory storage.
var memoryTargets = map[string]target{
	"drain_c100":       {bound: 800_000},
	"drain_littered":   {bound: 0.8, system: self, metric: "drain_c100"},
	"kinds_drain":      {bound: 0.95, system: self, metric: "drain_c100"},
	"drain_limited":    {bound: 0.6, system: self, metric: "drain_c100"},
	"drain_rated":      {bound: 0.6, system: self, metric: "drain_c100"},
	"drain_partitions": {bound: 150_000},
	"drain_one_each":   {bound: 150_000},
	"drain_one_wide":   {bound: 0.7, system: self, metric: "drain_one_each"},
	"kinds_p99":        {bound: 50, most: true},
	"kinds_worst":      {bound: 1000, most: true},
	"slot_other_p99":   {bound: 1200, most: true},
	"rate_worst":       {bound: 30, most: true},
}

// postgresTargets are the targets on PostgreSQL.
var postgresTargets = map[string]target{
	"enqueue_p1":        {bound: 1.6, system: river},
	"enqueue_p16":       {bound: 4, system: river},
	"enqueue_bulk":      {bound: 2, system: river},
	"drain_c10":         {bound: 15, system: riverTuned},
	"drain_c100":        {bound: 4, system: riverTuned},
	"drain_c1000":       {bound: 3, system: riverTuned},
	"drain_littered":    {bound: 0.8, system: self, metric: "drain_c100"},
	"kinds_drain":       {bound: 0.95, system: self, metric: "drain_c100"},
	"drain_limited":     {bound: 0.35, system: self, metric: "drain_c100"},
	"drain_rated":       {bound: 0.35, system: self, metric: "drain_c100"},
	"drain_partitions":  {bound: 4000},
	"drain_one_each":    {bound: 4000},
	"drain_one_wide":    {bound: 0.7, system: self, metric: "drain_one_each"},
	"kinds_p99":         {bound: 50, most: true},
	"kinds_worst":       {bound: 1000, most: true},
	"slot_p99":          {bound: 15, most: true},
	"slot_other_p99":    {bound: 1200, most: true},
	"rate_worst":        {bound: 30, most: true},
	"drain_c100_srvcpu": {bound: 18, most: true},
	"mixed":             {bound: 1.8, system: riverTuned},
	"mixed_p64":         {bound: 8, system: riverTuned},
	"latency_idle_p50":  {bound: 1.4, most: true},
	"latency_idle_p99":  {bound: 3.5, most: true},
	"sched_p99":         {bound: 4, most: true},
	"sched_early":       {bound: 0, most: true},
	"burst_all":         {bound: 2.5, most: true},
	"depth":             {bound: 0.95},
	"mem_per_job":       {bound: 0.8, most: true, system: river},
}

// sqliteTargets are the targets on SQLite.
var sqliteTargets = map[string]target{
	"enqueue_p1":       {bound: 1, system: river},
	"enqueue_p16":      {bound: 4, system: river},
	"enqueue_bulk":     {bound: 1.5, system: river},
	"drain_c10":        {bound: 4, system: riverTuned},
	"drain_c100":       {bound: 20_000},
	"drain_littered":   {bound: 0.8, system: self, metric: "drain_c100"},
	"kinds_drain":      {bound: 0.95, system: self, metric: "drain_c100"},
	"drain_limited":    {bound: 0.6, system: self, metric: "drain_c100"},
	"drain_rated":      {bound: 0.6, system: self, metric: "drain_c100"},
	"drain_one_wide":   {bound: 0.7, system: self, metric: "drain_one_each"},
	"kinds_p99":        {bound: 50, most: true},
	"kinds_worst":      {bound: 1000, most: true},
	"slot_other_p99":   {bound: 1200, most: true},
	"rate_worst":       {bound: 30, most: true},
	"mixed":            {bound: 4, system: riverTuned},
	"mixed_p64":        {bound: 4, system: riverTuned},
	"latency_idle_p50": {bound: 6, most: true},
	"latency_idle_p99": {bound: 15, most: true},
	"latency_own_p50":  {bound: 0.8, most: true},
	"latency_own_p99":  {bound: 3, most: true},
	"sched_p99":        {bound: 4, most: true},
	"sched_early":      {bound: 0, most: true},
	"depth":            {bound: 0.9},
	"mem_per_job":      {bound: 260, most: true},
}

// targetOf returns the target of a metric on a server, if there is one.
func targetOf(storage, metric string) (target, bool) {
	switch storage {
	case "redis":
		t, ok := targets[metric]
		return t, ok
	case "memory":
		t, ok := memoryTargets[metric]
		return t, ok
	case "postgres":
		t, ok := postgresTargets[metric]
		return t, ok
	case "sqlite":
		t, ok := sqliteTargets[metric]
		return t, ok
	}
	return target{}, false
}

// String returns the target as the table shows it.
func (t target) String() string {
	sign := "≥"
	if t.most {
		sign = "≤"
	}
	text := sign + " " + Number(t.bound)
	switch {
	case t.metric != "":
		text += " × " + t.metric
	case t.system != "":
		text += " × " + t.system
	}
	return text
}

// met reports whether the value reaches the target. known is false if the value that it
// is compared with was not measured.
func (t target) met(
	metric string, value float64, find func(system, metric string) (float64, bool),
) (met, known bool) {
	bound := t.bound
	if t.system != "" {
		if t.metric != "" {
			metric = t.metric
		}
		other, ok := find(t.system, metric)
		if !ok {
			return false, false
		}
		bound *= other
	}
	if t.most {
		return value <= bound, true
	}
	return value >= bound, true
}

// Number formats a value with about three significant digits and a comma between
// thousands.
func Number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return strings.TrimSuffix(strings.TrimSuffix(fmt.Sprintf("%.2f", v), "0"), ".0")
	case v < 1000:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
