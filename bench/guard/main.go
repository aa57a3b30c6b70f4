// Command guard compares the speed of the working tree with that of reference commits. It builds the
// benchmark of the working tree once for each side, runs the sides in turns, and prints one table of
// medians. It ends with the status 1 if a row fell below nine tenths of its reference.
//
//	go run ./guard -quick -metrics 'drain_*' -storages redis
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(1)
	}
}

// plan is what one run compares.
type plan struct {
	against  string // a commit that replaces every reference, "" for none
	storages []string
	metrics  []string // patterns
	times    int      // how often a round is taken: the reference, twice the tree, the reference
}

// The usual numbers of turns.
const (
	usualTimes = 4
	quickTimes = 1
)

func parse(args []string) (plan, error) {
	flags := flag.NewFlagSet("guard", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "take one round: ten minutes")
	against := flags.String("against", "", "another reference, whose interface is today's")
	storages := flags.String("storages", "redis,postgres,sqlite,memory", "the storages")
	metrics := flags.String("metrics", "*", "patterns of the metrics, such as drain_*,mixed")
	times := flags.Int("times", usualTimes, "the number of rounds")
	if err := flags.Parse(args); err != nil {
		return plan{}, err
	}
	p := plan{*against, strings.Split(*storages, ","), strings.Split(*metrics, ","), *times}
	if *quick {
		p.times = quickTimes
	}
	if p.times < 1 {
		return plan{}, fmt.Errorf("-times %d: want 1 or more", p.times)
	}
	return p, nil
}

// run compares what the arguments ask for.
func run(ctx context.Context, args []string) error {
	p, err := parse(args)
	if err != nil {
		return err
	}
	wanted := p.comparisons()
	if len(wanted) == 0 {
		return fmt.Errorf("no row of %q is measured on %q", p.metrics, p.storages)
	}
	folder, err := os.MkdirTemp("", "midge-guard")
	if err != nil {
		return err
	}
	started := time.Now()
	rows, failed := compare(ctx, folder, p, wanted)
	err = errors.Join(table(os.Stdout, rows), failed, os.RemoveAll(folder))
	fmt.Printf("\n%d rounds of the reference, twice the tree, the reference; %v\n",
		p.times, time.Since(started).Round(time.Second))
	for _, r := range rows {
		if r.ratio() < bound && r.judged() {
			err = errors.Join(err, fmt.Errorf("%s on %s is %.2f of %s, want %v or more",
				r.metric, r.storage, r.ratio(), r.reference, bound))
		}
	}
	return err
}

// comparisons returns the comparisons that the plan asks for.
func (p plan) comparisons() []comparison {
	var wanted []comparison
	for _, c := range comparisons {
		if !slices.Contains(p.storages, c.storage) {
			continue
		}
		c.metrics = slices.DeleteFunc(slices.Clone(c.metrics), func(m string) bool { return !p.matches(m) })
		if p.against != "" {
			c.reference = p.against
		}
		if len(c.metrics) > 0 {
			wanted = append(wanted, c)
		}
	}
	return wanted
}
