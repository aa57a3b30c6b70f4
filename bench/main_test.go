package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/midgehq/midge/bench/internal/measure"
	"github.com/midgehq/midge/bench/internal/process"
	"github.com/midgehq/midge/bench/internal/report"
	"github.com/midgehq/midge/internal/testserver"
)

// The harness starts this program again for its processes.
func TestMain(m *testing.M) {
	served, err := process.Serve(context.Background(), os.Args, measure.Roles())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case served:
		return
	}
	os.Exit(m.Run())
}

// measured executes a plan and returns the values by system and metric.
func measured(t *testing.T, args ...string) map[string]float64 {
	t.Helper()
	p, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	results, heading, err := p.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(heading) != 2+len(p.servers) {
		t.Errorf("the heading is %q, want the machine, the versions and each server", heading)
	}
	var table strings.Builder
	if err := report.Table(&table, results); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	found := make(map[string]float64)
	for _, r := range results {
		found[r.System+" "+r.Metric] = r.Value
	}
	return found
}

func positive(t *testing.T, found map[string]float64, names ...string) {
	t.Helper()
	for _, name := range names {
		if found[name] <= 0 {
			t.Errorf("%s is %v, want it measured", name, found[name])
		}
	}
}

func TestMemoryIsMeasured(t *testing.T) {
	t.Parallel()
	found := measured(t, "-quick", "-scale", "0.01", "-storages", "memory",
		"-metrics", "drain_c100,drain_q20,drain_limited,drain_rated,drain_partitions,drain_one_*,slot_*,rate_*,mixed,kinds_*")
	positive(t, found, "midge drain_limited", "midge drain_rated", "midge drain_one_each", "midge drain_one_wide", "midge slot_p99",
		"midge slot_other_p99", "midge rate_p99", "midge rate_worst")
	positive(t, found, "midge drain_c100", "midge drain_q20", "midge drain_partitions", "midge mixed",
		"midge kinds_drain", "midge kinds_p99", "midge kinds_worst")
}

func TestRedisIsMeasured(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	found := measured(t, "-quick", "-scale", "0.01", "-storages", "redis",
		"-metrics", "enqueue_*,drain_c100,drain_c100_net1ms")
	for _, system := range []string{"midge ", "asynq "} {
		positive(t, found, system+"enqueue_p1", system+"enqueue_p16", system+"enqueue_p1_cmds",
			system+"drain_c100", system+"drain_c100_srvcpu", system+"drain_c100_wrkcpu",
			system+"drain_c100_wrkmem", system+"drain_c100_net1ms", system+"drain_c100_cmds")
	}
	positive(t, found, "midge enqueue_bulk")
	found = measured(t, "-quick", "-scale", "0.01", "-storages", "redis", "-systems", "midge",
		"-metrics", "drain_q20,drain_partitions,mixed,depth,mem_*_partition,ping_p999")
	positive(t, found, "midge drain_q20", "midge drain_partitions", "midge mixed", "midge depth", "midge mem_per_job",
		"midge mem_in_partition", "midge ping_p999")
}

// The bare system is not a peer: it is measured only if named.
func TestTheLeastIsMeasured(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	testserver.RequirePostgres(t)
	for _, storage := range []string{"redis", "postgres"} {
		found := measured(t, "-quick", "-scale", "0.01", "-storages", storage, "-systems", "bare",
			"-metrics", "enqueue_p16,enqueue_bulk,drain_c100,mixed,burst_all,depth")
		positive(t, found, "bare enqueue_p16", "bare enqueue_bulk", "bare drain_c100", "bare mixed",
			"bare burst_all", "bare mem_per_job")
	}
}

func TestPostgresIsMeasured(t *testing.T) {
	t.Parallel()
	testserver.RequirePostgres(t)
	found := measured(t, "-quick", "-scale", "0.01", "-storages", "postgres",
		"-metrics", "enqueue_p16,enqueue_bulk,drain_c10,drain_c100,mixed,depth")
	for _, system := range []string{"midge ", "river ", "river-tuned "} {
		positive(t, found, system+"drain_c10", system+"drain_c100", system+"drain_c100_srvcpu", system+"mixed")
	}
	for _, system := range []string{"midge ", "river "} {
		positive(t, found, system+"enqueue_p16", system+"enqueue_bulk", system+"mem_per_job")
	}
	positive(t, found, "midge depth")
}

// A failed round has no results and makes the whole measurement return an error.
func TestFailedRoundIsAnError(t *testing.T) {
	p, err := parse([]string{"-quick", "-scale", "0.001", "-storages", "memory", "-metrics", "mixed"})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if results, _, err := p.measure(ended); err == nil || len(results) > 0 {
		t.Errorf("a measurement that could not be done gave %v and the error %v", results, err)
	}
}
