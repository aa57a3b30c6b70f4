// Command bench measures midge and its peers. It starts private servers, lets the systems
// take turns on them, and prints one table, or one JSON object a line.
//
//	go run . -quick -metrics 'drain_*,mixed'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/midgehq/midge/bench/internal/measure"
	"github.com/midgehq/midge/bench/internal/process"
	"github.com/midgehq/midge/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	served, err := process.Serve(ctx, os.Args, measure.Roles())
	if !served {
		err = run(ctx, os.Args[1:])
	}
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures what the arguments ask for and prints the results. If a round failed, it
// still prints the others.
func run(ctx context.Context, args []string) error {
	p, err := parse(args)
	if err != nil {
		return err
	}
	results, heading, err := p.measure(ctx)
	if p.json {
		return errors.Join(err, report.JSON(os.Stdout, results))
	}
	for _, line := range heading {
		fmt.Println(line)
	}
	fmt.Println()
	return errors.Join(err, report.Table(os.Stdout, results))
}
