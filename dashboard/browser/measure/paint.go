package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

const paintBudget = 300

// painted evaluates to the moment of the first paint with content, in ms since the navigation began, and to
// -1 before that paint.
const painted = `performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1`

// paintedAt waits for the first paint of the page that the browser shows, and returns its moment in ms.
func paintedAt(ctx context.Context) (at float64, err error) {
	for range 500 {
		if at, err = chromedp.Run(ctx, chromedp.Evaluate[float64](painted)); err != nil || at >= 0 {
			return at, err
		}
		if err := within(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("nothing is painted")
}

// paint times the first paint of each page several times, in a browser without a cache.
func (r *rig) paint(ctx context.Context) (err error) {
	d, err := r.dashboard(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	pages, err := r.list(ctx)
	if err != nil {
		return err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)
	browser, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	browser, stop = chromedp.NewContext(browser)
	defer stop()
	fresh := chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.Enable, network.EnableParams{})
		_, err2 := cdp.Call(ctx, t, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
		return errors.Join(err, err2)
	})
	if err := chromedp.Do(browser, fresh, chromedp.Navigate(d.url+"/")); err != nil {
		return err
	}
	var all []float64
	slowest, worst := "", 0.0
	for _, p := range pages {
		if p.name == suggestions {
			continue
		}
		var took []float64
		for range 5 {
			if err := chromedp.Do(browser, chromedp.Navigate(d.url+p.path)); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			at, err := paintedAt(browser)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			took = append(took, at)
		}
		all = append(all, took...)
		if at := quantile(took, 0.5); at > worst {
			slowest, worst = p.name, at
		}
	}
	p95 := quantile(all, 0.95)
	r.table.set("first paint of all pages, ms", "300",
		fmt.Sprintf("%.0f · %.0f", quantile(all, 0.5), p95), p95 <= paintBudget)
	r.table.set("first paint of the slowest page, ms", "300",
		fmt.Sprintf("%.0f (%s)", worst, slowest), worst <= paintBudget)
	return nil
}

// within waits for d. If ctx ends before, it returns the error of ctx.
func within(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
