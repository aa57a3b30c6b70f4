package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

const (
	manyViewers  = 200
	viewerBudget = 5.0 // % of a core
)

// viewers measures the cost of one viewer and of many viewers, while each queue changes each second.
func (r *rig) viewers(ctx context.Context) (err error) {
	d, err := r.dashboard(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changing := make(chan error, 1)
	go func() { changing <- r.change(ctx) }()
	if err := r.quiet(ctx, d); err != nil {
		return err
	}
	one, err := r.watched(ctx, d, 1, false)
	if err != nil {
		return err
	}
	many, err := r.watched(ctx, d, manyViewers, false)
	if err != nil {
		return err
	}
	reading, err := r.watched(ctx, d, manyViewers, true)
	if err != nil {
		return err
	}
	cancel()
	if err := <-changing; err != nil {
		return err
	}
	r.table.set("storage calls a second, 1 · 200 viewers", "the same",
		fmt.Sprintf("%.1f · %.1f", one.calls, many.calls), many.calls <= one.calls*1.2+0.5)
	r.table.set("% of a core, 1 · 200 viewers", "5",
		fmt.Sprintf("%.1f · %.1f", one.cpu, many.cpu), many.cpu <= viewerBudget)
	r.table.set("the same where each reads the Overview each second", "",
		fmt.Sprintf("%.1f calls, %.0f %%", reading.calls, reading.cpu), true)
	return nil
}

// quiet is one viewer until the dashboard has counted all dead tasks, and so calls the storage less often.
func (r *rig) quiet(ctx context.Context, d *dashboardAt) error {
	watching, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- stream(watching, d.client, d.url, func() {}) }()
	err := within(ctx, 2*time.Second)
	for range 20 {
		if err != nil {
			break
		}
		var c cost
		if c, err = d.spent(ctx, 3*time.Second); c.calls < 4 {
			break
		}
	}
	cancel()
	return errors.Join(err, <-ended)
}

// change enqueues a task in each queue each second, until ctx ends.
func (r *rig) change(ctx context.Context) error {
	var names []string
	for name, err := range storage.EachQueue(ctx, r.place.store, "tenant") {
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var txs []storage.Tx
		for _, name := range names {
			txs = append(txs, storage.Tx{Inserts: []storage.Insert{{
				Ref: storage.Ref{Queue: name, ID: storage.NewID()}, Kind: "late", Encoding: "json",
				Payload: []byte("{}"), CrashLimit: 3,
			}}})
		}
		if _, err := r.scene.Session.Apply(ctx, txs...); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// cost is the cost of viewers: calls to the storage a second, and per cent of a core.
type cost struct{ calls, cpu float64 }

// watch stands in for one browser until ctx ends. It reads a stream, and the Overview each second. It returns
// how often it read the Overview.
func (r *rig) watch(ctx context.Context, d *dashboardAt) (pages int, err error) {
	streamed := make(chan error, 1)
	go func() { streamed <- stream(ctx, d.client, d.url, func() {}) }()
	for within(ctx, time.Second) == nil {
		if _, _, gone := d.get(ctx, "/"); gone != nil && ctx.Err() == nil {
			err = errors.Join(err, gone)
		}
		pages++
	}
	return pages, errors.Join(err, <-streamed)
}

// watched returns the cost of n viewers. Each reads a stream, and if reads is set also the Overview each
// second.
func (r *rig) watched(ctx context.Context, d *dashboardAt, n int, reads bool) (c cost, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all, joined sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 2 * n}}
	errs := make([]error, n, n+1)
	for i := range n {
		joined.Add(1)
		all.Go(func() { errs[i] = stream(ctx, client, d.url, joined.Done) })
	}
	joined.Wait()
	if reads {
		for i := range n {
			all.Go(func() {
				reader := *d
				reader.client = client
				_ = within(ctx, time.Duration(i)*time.Second/time.Duration(n))
				for within(ctx, time.Second) == nil {
					if _, _, err := reader.get(ctx, "/"); err != nil && ctx.Err() == nil {
						errs[i] = errors.Join(errs[i], err)
					}
				}
			})
		}
	}
	if err := within(ctx, 2*time.Second); err != nil {
		return c, err
	}
	c, err = d.spent(ctx, r.window)
	cancel()
	all.Wait()
	client.CloseIdleConnections()
	return c, errors.Join(append(errs, err)...)
}

// spent measures the cost of the dashboard during the window.
func (d *dashboardAt) spent(ctx context.Context, window time.Duration) (c cost, err error) {
	calls, err := d.calls(ctx)
	if err != nil {
		return c, err
	}
	began, err := used(d.pid)
	if err != nil {
		return c, err
	}
	if err := within(ctx, window); err != nil {
		return c, err
	}
	ended, err := used(d.pid)
	if err != nil {
		return c, err
	}
	after, err := d.calls(ctx)
	seconds := window.Seconds()
	return cost{float64(after-calls) / seconds, 100 * (ended - began).Seconds() / seconds}, err
}

// stream reads the live stream until ctx ends. It calls heard once: at the first bytes, or at its end.
func stream(ctx context.Context, client *http.Client, at string, heard func()) error {
	once := sync.OnceFunc(heard)
	defer once()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/events", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the stream: %s", answer.Status)
	}
	var some [64 << 10]byte
	for {
		_, err := answer.Body.Read(some[:])
		once()
		if err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err != nil {
			return nil
		}
	}
}
