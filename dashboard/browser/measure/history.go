package main

import (
	"context"
	"fmt"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

const historyBudget = 100.0 // MB a day

// measureHistory measures how many bytes the history of 100 busy queues writes. It writes the minutes of four
// hours, with a checkpoint each five minutes, which is PostgreSQL's default.
func measureHistory(ctx context.Context, name string, t *table) error {
	p, err := openPlace(ctx, name, "appendonly yes", "auto-aof-rewrite-percentage 0")
	if err != nil {
		return err
	}
	defer p.close()
	session := storage.NewSession(p.store, 0)
	for i := range 100 {
		queue := fmt.Sprintf("a_queue_of_tenant_%03d", i)
		if err := session.Configure(ctx, queue, storage.Settings{Create: true}); err != nil {
			return err
		}
	}
	described, err := p.store.Describe(ctx)
	if err != nil {
		return err
	}
	const hours = 4
	invented, err := scene.Invent(ctx, p.store, described.Now.Truncate(time.Hour).Add(-hours*time.Hour))
	if err != nil {
		return err
	}
	history := ledger.New(invented)
	before, err := p.written(ctx)
	if err != nil {
		return err
	}
	var after int64
	for minute := range hours * 60 {
		invented.Pass(time.Minute)
		if _, err := history.Write(ctx); err != nil {
			return err
		}
		if minute%5 == 4 {
			if after, err = p.written(ctx); err != nil { // on PostgreSQL, this makes a checkpoint
				return err
			}
		}
	}
	day := float64(after-before) * 24 / hours / 1e6
	t.set("history of 100 queues, MB written a day", "100", fmt.Sprintf("%.0f", day), day <= historyBudget)
	return nil
}
