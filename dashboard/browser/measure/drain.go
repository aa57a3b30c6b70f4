package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge"
)

const drainBudget = 0.97

// drains measures the rate of drains beside an open dashboard and without one, in turns.
func (r *rig) drains(ctx context.Context) error {
	rate, err := r.drainOnce(ctx, false, 40_000)
	if err == nil { // the rate of a longer drain is more exact
		rate, err = r.drainOnce(ctx, false, int(rate*r.drain.Seconds()/4))
	}
	if err != nil {
		return err
	}
	tasks := int(rate * r.drain.Seconds())
	var beside, alone, ratios []float64
	for pair := range r.pairs {
		var rates [2]float64
		for i := range rates {
			open := (i == 0) == (pair%2 == 0)
			rate, err := r.drainOnce(ctx, open, tasks)
			if err != nil {
				return err
			}
			if open {
				rates[0] = rate
			} else {
				rates[1] = rate
			}
		}
		beside, alone = append(beside, rates[0]), append(alone, rates[1])
		ratios = append(ratios, rates[0]/rates[1])
	}
	ratio := quantile(ratios, 0.5)
	var each []string
	for _, one := range ratios {
		each = append(each, fmt.Sprintf("%.2f", one))
	}
	r.table.set("drain, tasks a second, alone · beside a dashboard", "",
		fmt.Sprintf("%.0f · %.0f", quantile(alone, 0.5), quantile(beside, 0.5)), true)
	r.table.set("beside ÷ alone, median of the pairs", "0.97",
		fmt.Sprintf("%.2f (%s)", ratio, strings.Join(each, ", ")), ratio >= drainBudget)
	return nil
}

// openFor is how long a dashboard has been open when a drain begins. By then it has counted the dead tasks.
const openFor = 8 * time.Second

// drainOnce drains tasks, and returns how many a second were drained. If open is set, a dashboard runs in a
// process of its own meanwhile. A stream, and a reader of its Overview each second, stand in for a browser.
func (r *rig) drainOnce(ctx context.Context, open bool, tasks int) (rate float64, err error) {
	client, err := midge.NewClient(r.place.store, midge.ClientConfig{})
	if err != nil {
		return 0, err
	}
	for done := 0; done < tasks; {
		items := make([]midge.Item, min(5000, tasks-done))
		for i := range items {
			items[i] = midge.New(nothing{N: done + i}, midge.To(drainQueue))
		}
		if _, err := client.EnqueueMany(ctx, items); err != nil {
			return 0, err
		}
		done += len(items)
	}
	if err := r.place.settle(ctx); err != nil {
		return 0, err
	}
	if open {
		d, err := r.dashboard(ctx, true)
		if err != nil {
			return 0, err
		}
		watching, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := r.watch(watching, d)
			ended <- err
		}()
		defer func() {
			cancel()
			err = errors.Join(err, <-ended, d.stop())
		}()
		if err := within(ctx, openFor); err != nil {
			return 0, err
		}
	}
	c, err := start(ctx, "drain", spec{URL: r.place.url, Tasks: tasks})
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(c.answer, 10, 64)
	return float64(tasks) / (float64(ns) / 1e9), errors.Join(err, c.stop())
}
