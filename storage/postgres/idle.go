package postgres

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A client that is busy for a moment opens more connections than it needs afterwards, and each of them
// is a process of the server. The driver closes connections that were idle for a minute; the type idle
// closes those beyond idleMost after idleSoon.
const (
	idleMost = 2
	idleSoon = 2 * time.Second
)

// idle closes connections of a pool that has not been used for a while.
type idle struct {
	pool *pgxpool.Pool
	ctx  context.Context //nolint:containedctx // of what is closed; ended by Close
	last atomic.Int64    // when the storage used a connection last, in nanoseconds
	at   atomic.Bool     // a timer is running

	mu     sync.Mutex // guards closed
	closed bool
	round  sync.WaitGroup // the trim under way, one at a time
}

// used notes that the storage uses a connection.
func (i *idle) used() {
	i.last.Store(time.Now().UnixNano())
	if !i.at.Swap(true) {
		i.lookIn(idleSoon)
	}
}

// lookIn checks after a while whether the storage has used no connection lately.
func (i *idle) lookIn(after time.Duration) {
	time.AfterFunc(after, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.closed {
			return
		}
		if left := idleSoon - time.Since(time.Unix(0, i.last.Load())); left > 0 {
			i.lookIn(left)
			return
		}
		i.at.Store(false) // the next use starts a new timer
		i.round.Go(i.trim)
	})
}

// trim closes idle connections, except for the ones used last.
func (i *idle) trim() {
	all := i.pool.AcquireAllIdle(i.ctx)
	slices.SortFunc(all, func(a, b *pgxpool.Conn) int { return cmp.Compare(lastUse(b), lastUse(a)) })
	for n, conn := range all {
		if n < idleMost {
			conn.Release() // not release, which would count as a use
		} else {
			hangUp(i.ctx, conn.Hijack())
		}
	}
}

// lastUse returns when a connection went back to its pool, in nanoseconds.
func lastUse(conn *pgxpool.Conn) int64 {
	used, _ := conn.Conn().PgConn().CustomData()[lastUsed].(time.Time)
	return used.UnixNano()
}

// close waits for the trim under way.
func (i *idle) close() {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	i.round.Wait()
}
