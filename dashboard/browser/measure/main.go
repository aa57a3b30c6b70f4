// Measure measures whether the dashboard keeps its budgets, and prints one table. It uses private servers
// with 1,000,000 tasks in 100 queues, all of whose names have 128 bytes:
//
//	make budgets                                             Redis and PostgreSQL: under eight minutes
//	make budgets BUDGETS_FLAGS="-storage redis -only pages"
//
// The dashboard, the worker and the command are processes of their own. Measure needs Linux, chromium,
// redis-server and PostgreSQL.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scene"
)

// parts are the names of the measurements, in their order.
var parts = []string{"history", "fleet", "pages", "paint", "viewers", "drain", "command", "weight"}

// settings are the values of the flags.
type settings struct {
	storages, only         []string
	tasks, requests, pairs int
	drain, window          time.Duration
}

func (s *settings) wants(part string) bool { return slices.Contains(s.only, part) }

func main() {
	if len(os.Args) == 4 && os.Args[1] == roleArgument {
		exit(play(os.Args[2], os.Args[3]))
	}
	var s settings
	storages := flag.String("storage", "redis,postgres", "redis, postgres, memory")
	only := flag.String("only", strings.Join(parts, ","), "what is measured")
	flag.IntVar(&s.tasks, "tasks", 1_000_000, "tasks in 100 queues")
	flag.IntVar(&s.requests, "requests", 200, "requests of each page")
	flag.IntVar(&s.pairs, "pairs", 9, "pairs of drains")
	flag.DurationVar(&s.drain, "drain", 4*time.Second, "how long a drain takes, about")
	flag.DurationVar(&s.window, "window", 10*time.Second, "how long viewers are watched")
	flag.Parse()
	s.storages, s.only = strings.Split(*storages, ","), strings.Split(*only, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := measure(ctx, &s)
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// sayf prints progress on the standard error.
func sayf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func measure(ctx context.Context, s *settings) error {
	var t table
	var failed error
	for _, name := range s.storages {
		t.columns = append(t.columns, name)
		if err := measureOn(ctx, s, name, &t); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	if s.wants("weight") {
		failed = errors.Join(failed, weigh(ctx, &t))
	}
	fmt.Println(t.text()) // also if some measurements failed
	return failed
}

func measureOn(ctx context.Context, s *settings, name string, t *table) error {
	if s.wants("history") && name != "memory" {
		sayf("%s: a day of history", name)
		if err := measureHistory(ctx, name, t); err != nil {
			return err
		}
	}
	if s.wants("fleet") {
		sayf("%s: %d queues and %d runners", name, fleetQueues, fleetRunners)
		if err := measureFleet(ctx, name, t); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc([]string{"pages", "paint", "viewers", "drain", "command"}, s.wants) {
		return nil
	}
	return measureMillion(ctx, s, name, t)
}

// measureMillion measures the parts for which a storage has a million tasks.
func measureMillion(ctx context.Context, s *settings, name string, t *table) error {
	p, err := openPlace(ctx, name)
	if err != nil {
		return err
	}
	defer p.close()
	began := time.Now()
	sc, err := scene.Million(ctx, p.store, s.tasks)
	if err != nil {
		return err
	}
	sayf("%s: filled in %v", name, time.Since(began).Round(time.Second))
	if err := sc.History(ctx, ledger.HoursKept, 24*time.Hour); err != nil {
		return err
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	sayf("%s: its history after %v", name, time.Since(began).Round(time.Second))
	var failed error
	r := &rig{settings: s, place: p, scene: sc, table: t}
	for _, step := range []struct {
		part string
		run  func(context.Context) error
	}{
		{"pages", r.pages}, {"paint", r.paint}, {"viewers", r.viewers}, {"drain", r.drains}, {"command", r.command},
	} {
		if !s.wants(step.part) || name == "memory" && (step.part == "drain" || step.part == "command") {
			continue
		}
		if err := step.run(ctx); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", step.part, err))
		}
		sayf("%s: %s after %v", name, step.part, time.Since(began).Round(time.Second))
	}
	return failed
}
