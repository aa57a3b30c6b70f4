package main

import (
	"flag"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/midgehq/midge/bench/internal/measure"
	"github.com/midgehq/midge/bench/internal/server"
	"github.com/midgehq/midge/bench/internal/system"
)

// plan is what one run of the program measures.
type plan struct {
	systems []system.System
	servers []string
	metrics []string // patterns
	rounds  int
	sizes   measure.Sizes
	peers   measure.Sizes // sizes for systems other than midge
	json    bool
}

// The usual plans.
const (
	usualRounds = 3
	quickRounds = 1
	// quickPeers is the share of jobs that peers get in a quick run, because they would
	// take most of its time. Jobs that are enqueued one by one are not reduced, because
	// peers are as fast there.
	quickPeers = 0.1
)

// parse makes a plan from the arguments.
func parse(args []string) (plan, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "smaller sizes, one round, no everysec: under three minutes")
	asJSON := flags.Bool("json", false, "print one JSON object a line instead of a table")
	systems := flags.String("systems", strings.Join(systemNames(), ","), "the systems, in their order")
	storages := flags.String("storages", "redis,memory", "where they keep their jobs: also postgres, sqlite")
	flags.StringVar(storages, "storage", *storages, "the same, for one")
	aof := flags.String("aof", "off,everysec", "how Redis keeps its append-only file; a quick run has off")
	metrics := flags.String("metrics", "*", "patterns of the metrics, such as drain_*,mixed")
	rounds := flags.Int("rounds", 0, fmt.Sprintf("rounds, of which medians are printed: default %d, quick %d",
		usualRounds, quickRounds))
	scale := flags.Float64("scale", 1, "multiplies the numbers of jobs")
	if err := flags.Parse(args); err != nil {
		return plan{}, err
	}
	p := plan{rounds: *rounds, json: *asJSON, metrics: strings.Split(*metrics, ",")}
	p.size(*quick, *scale)
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "aof" })
	if *quick && !given {
		*aof = "off"
	}
	err := p.choose(strings.Split(*systems, ","), strings.Split(*storages, ","), strings.Split(*aof, ","))
	if err != nil {
		return plan{}, err
	}
	return p, p.check()
}

// size sets sizes and rounds.
func (p *plan) size(quick bool, scale float64) {
	byDefault := usualRounds
	p.sizes = measure.Full().Scaled(scale)
	p.peers = p.sizes
	if quick {
		byDefault = quickRounds
		p.sizes = measure.Quick().Scaled(scale)
		p.peers = p.sizes.Scaled(quickPeers)
		p.peers.Singles = p.sizes.Singles
	}
	if p.rounds == 0 {
		p.rounds = byDefault
	}
}

// choose sets the systems and servers by their names.
func (p *plan) choose(systems, storages, files []string) error {
	for _, name := range systems {
		s, err := system.Named(name)
		if err != nil {
			return err
		}
		p.systems = append(p.systems, s)
	}
	for _, storage := range storages {
		if storage != system.Redis {
			p.servers = append(p.servers, storage)
			continue
		}
		for _, file := range files {
			name, ok := map[string]string{"off": system.Redis, "everysec": server.Everysec}[file]
			if !ok {
				return fmt.Errorf("-aof %s: want off, everysec or both", file)
			}
			p.servers = append(p.servers, name)
		}
	}
	return nil
}

// check returns an error if the plan would measure nothing.
func (p *plan) check() error {
	if p.rounds < 1 {
		return fmt.Errorf("-rounds %d: want 1 or more", p.rounds)
	}
	for _, name := range p.servers {
		if !slices.Contains(server.Names(), name) {
			return fmt.Errorf("-storages %s: want some of %q", name, server.Names())
		}
	}
	for _, pattern := range p.metrics {
		matching := func(m measure.Measurement) bool { return matches(pattern, m) }
		if !slices.ContainsFunc(measure.All(), matching) {
			return fmt.Errorf("-metrics %s: no metric is named so", pattern)
		}
	}
	return nil
}

// measurements returns the measurements that have a metric which was asked for.
func (p *plan) measurements() []measure.Measurement {
	return slices.DeleteFunc(measure.All(), func(m measure.Measurement) bool {
		return !slices.ContainsFunc(p.metrics, func(pattern string) bool { return matches(pattern, m) })
	})
}

func matches(pattern string, m measure.Measurement) bool {
	if m.Asked() && strings.HasPrefix(pattern, "*") {
		return false
	}
	return slices.ContainsFunc(m.Gives, func(metric string) bool {
		ok, err := path.Match(pattern, metric)
		return ok && err == nil
	})
}

func systemNames() []string {
	var names []string
	for _, s := range system.All() {
		if !s.Bare && !s.Asked {
			names = append(names, s.Name)
		}
	}
	return names
}
