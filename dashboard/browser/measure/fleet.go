package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/internal/scene"
)

const (
	fleetQueues, fleetRunners = 2000, 500
	// firstBudget bounds the first Overview of a process, and laterBudget all later ones.
	firstBudget, laterBudget = time.Second, 100 * time.Millisecond
)

// measureFleet times the Overview of many queues and runners, in twenty dashboards that have just started.
func measureFleet(ctx context.Context, name string, t *table) error {
	p, err := openPlace(ctx, name)
	if err != nil {
		return err
	}
	defer p.close()
	sc, err := scene.Fleet(ctx, p.store, fleetQueues, fleetRunners)
	if err != nil {
		return err
	}
	if err := errors.Join(sc.History(ctx, 3*time.Hour, time.Hour), p.settle(ctx)); err != nil {
		return err
	}
	r := &rig{settings: &settings{}, place: p, scene: sc, table: t}
	var first, later []time.Duration
	for range 20 {
		took, err := r.opened(ctx)
		if err != nil {
			return err
		}
		first, later = append(first, took[0]), append(later, took[1:]...)
	}
	of := fmt.Sprintf("Overview of %d queues and %d runners, ms: ", fleetQueues, fleetRunners)
	for _, row := range []struct {
		which  string
		took   []time.Duration
		budget time.Duration
	}{{"the first one", first, firstBudget}, {"later ones", later, laterBudget}} {
		p95 := quantile(row.took, 0.95)
		t.set(of+row.which, fmt.Sprintf("p95 %d", row.budget.Milliseconds()),
			millis(quantile(row.took, 0.5))+" · "+millis(p95), p95 <= row.budget)
	}
	return nil
}

// opened starts a dashboard, reads the Overview, and then opens a stream, as a browser does. Beside the
// stream it reads the Overview nine times more within two seconds. It returns how long each took.
func (r *rig) opened(ctx context.Context) (took []time.Duration, err error) {
	d, err := r.dashboard(ctx, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	watching, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	defer func() { cancel(); err = errors.Join(err, <-ended) }()
	overview := page{"Overview", "/"}
	for i := range 10 {
		t, _, err := d.get(ctx, overview.anew(i))
		if took = append(took, t); i == 0 {
			go func() { ended <- stream(watching, d.client, d.url, func() {}) }()
		}
		if err = errors.Join(err, within(ctx, 200*time.Millisecond)); err != nil {
			return nil, err
		}
	}
	return took, nil
}
