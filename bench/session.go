package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/bench/internal/measure"
	"github.com/midgehq/midge/bench/internal/report"
	"github.com/midgehq/midge/bench/internal/server"
	"github.com/midgehq/midge/bench/internal/system"
)

// roundLimit is the time after which a round that hangs is ended.
const roundLimit = 15 * time.Minute

// measure executes the plan, server by server. The error joins the errors of all failed
// rounds, whose results are left out.
func (p *plan) measure(ctx context.Context) (medians []report.Result, heading []string, err error) {
	heading = []string{machine(), versions()}
	var results report.Results
	var failed []error
	for _, name := range p.servers {
		s, err := server.Start(name)
		if err != nil {
			return results.Medians(), heading, fmt.Errorf("start %s: %w", name, err)
		}
		about, err := s.Describe(ctx)
		if err == nil {
			heading = append(heading, name+": "+about)
			err = p.measureOn(ctx, stand{name, s, &results})
		}
		failed = append(failed, err, s.Close())
	}
	return results.Medians(), heading, errors.Join(failed...)
}

// stand is a server on which rounds take place, and the results.
type stand struct {
	name    string
	server  server.Server
	results *report.Results
}

// measureOn measures everything on one server. Each measurement is done in rounds, in
// each of which the systems take turns.
func (p *plan) measureOn(ctx context.Context, at stand) error {
	var failed []error
	for _, m := range p.measurements() {
		for round := range p.rounds {
			for _, s := range p.systems {
				if !m.Takes(s, at.name, at.server.Place().Storage) || ctx.Err() != nil {
					continue
				}
				started := time.Now()
				values, err := p.once(ctx, m, s, at)
				if err != nil {
					err = fmt.Errorf("%s, %s on %s: %w", m.Gives[0], s.Name, at.name, err)
					failed = append(failed, err)
				}
				tell(fmt.Sprintf("%-14s %-11s %d/%d %5.1f s", at.name, s.Name, round+1, p.rounds,
					time.Since(started).Seconds()), values, err)
			}
		}
	}
	return errors.Join(append(failed, ctx.Err())...)
}

// once does one measurement of one system on an empty server.
func (p *plan) once(
	ctx context.Context, m measure.Measurement, s system.System, at stand,
) (measure.Values, error) {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	if err := at.server.Reset(ctx); err != nil {
		return nil, err
	}
	sizes := p.peers
	if s.Own {
		sizes = p.sizes
	}
	rig := &measure.Rig{System: s, Server: at.server, Sizes: sizes.On(at.server.Place().Storage)}
	rig.Known = func(metric string) (float64, bool) { return at.results.Median(s.Name, at.name, metric) }
	values, err := m.Run(ctx, rig)
	if err != nil {
		return nil, err
	}
	for _, metric := range m.Gives { // in the order of the measurement
		if value, ok := values[metric]; ok {
			at.results.Add(s.Name, at.name, metric, value)
		}
	}
	return values, nil
}

// tell writes the result of a round to standard error.
func tell(round string, values measure.Values, err error) {
	var line strings.Builder
	line.WriteString(round)
	for _, metric := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&line, "  %s %.4g", metric, values[metric])
	}
	if err != nil {
		fmt.Fprintf(&line, "  FAILED: %v", err)
	}
	fmt.Fprintln(os.Stderr, line.String())
}

// machine returns a description of the machine, and the date.
func machine() string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s: %d × %s, %s, %s", time.Now().Format(time.DateOnly), runtime.NumCPU(), model,
		runtime.GOOS, runtime.Version())
}

// versions returns the versions of the measured modules other than midge.
func versions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "versions unknown"
	}
	measured := map[string]string{
		"github.com/hibiken/asynq":     "asynq",
		"github.com/redis/go-redis/v9": "go-redis",
		"github.com/riverqueue/river":  "River",
		"github.com/jackc/pgx/v5":      "pgx",
		"modernc.org/sqlite":           "modernc.org/sqlite",
	}
	var names []string
	for _, module := range info.Deps {
		if name, ok := measured[module.Path]; ok {
			names = append(names, name+" "+module.Version)
		}
	}
	return strings.Join(names, ", ")
}
