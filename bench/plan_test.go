package main

import (
	"slices"
	"testing"

	"github.com/midgehq/midge/bench/internal/measure"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args    []string
		servers []string
		systems int
		rounds  int
		gives   int // measurements
	}{
		{nil, []string{"redis", "redis-everysec", "memory"}, 5, 3, len(byDefault())},
		{[]string{"-quick"}, []string{"redis", "memory"}, 5, 1, len(byDefault())},
		{[]string{"-quick", "-aof", "everysec"}, []string{"redis-everysec", "memory"}, 5, 1, len(byDefault())},
		{[]string{"-storages", "memory", "-metrics", "drain_c1*,depth", "-rounds", "5"}, []string{"memory"}, 5, 5, 7},
		{[]string{"-storages", "postgres", "-metrics", "mixed*"}, []string{"postgres"}, 5, 3, 2},
		{[]string{"-storage", "postgres", "-metrics", "mixed*"}, []string{"postgres"}, 5, 3, 2},
		{[]string{"-systems", "asynq", "-aof", "off", "-metrics", "ping_p999"}, []string{"redis", "memory"}, 1, 3, 1},
	} {
		p, err := parse(c.args)
		if err != nil {
			t.Errorf("parse %q: %v", c.args, err)
			continue
		}
		if !slices.Equal(p.servers, c.servers) || len(p.systems) != c.systems || p.rounds != c.rounds ||
			len(p.measurements()) != c.gives {
			t.Errorf("parse %q: servers %q, %d systems, %d rounds, %d measurements, want %+v",
				c.args, p.servers, len(p.systems), p.rounds, len(p.measurements()), c)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"-systems", "celery"},
		{"-storages", "floppy"},
		{"-aof", "always"},
		{"-metrics", "speed"},
		{"-metrics", ""},
		{"-rounds", "-1"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse %q is no error", args)
		}
	}
}

func TestPeersGetLessInAQuickRun(t *testing.T) {
	p, err := parse([]string{"-quick", "-scale", "0.5"})
	if err != nil {
		t.Fatal(err)
	}
	if p.sizes.Tasks != 50_000 || p.peers.Tasks != 5000 {
		t.Errorf("%d jobs for midge and %d for its peers, want 50000 and 5000", p.sizes.Tasks, p.peers.Tasks)
	}
}

// byDefault returns the measurements that a run does if none is named.
func byDefault() []measure.Measurement {
	return slices.DeleteFunc(measure.All(), measure.Measurement.Asked)
}
