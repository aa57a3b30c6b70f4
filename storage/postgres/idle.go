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

// A client that is busy for a moment opens some connections, of which it needs few afterwards: each is a
// process of the server. The driver closes those that were idle for a minute, and idle those beyond
// idleMost after idleSoon.
const (
	idleMost = 2
	idleSoon = 2 * time.Second
)

// idle closes the connections of a pool that nobody has used for a while.
type idle struct {
	pool *pgxpool.Pool
	ctx  context.Context //nolint:containedctx // of what is closed; ended by Close
	last atomic.Int64    // when the storage used a connection last, in nanoseconds
	at   atomic.Bool     // there is a timer

	mu     sync.Mutex // guards closed
	closed bool
	round  sync.WaitGroup // one at a time
}

// used notes that the storage uses a connection.
func (i *idle) used() {
	i.last.Store(time.Now().UnixNano())
	if !i.at.Swap(true) {
		i.lookIn(idleSoon)
	}
}

// lookIn looks after a while whether the storage is used no more.
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
		i.at.Store(false) // who uses one from now on has another look follow
		i.round.Go(i.trim)
	})
}

// trim closes idle connections, but for those that were used last.
func (i *idle) trim() {
	all := i.pool.AcquireAllIdle(i.ctx)
	slices.SortFunc(all, func(a, b *pgxpool.Conn) int { return cmp.Compare(lastUse(b), lastUse(a)) })
	for n, conn := range all {
		if n < idleMost {
			conn.Release() // not release: it was not used
		} else {
			hangUp(i.ctx, conn.Hijack())
		}
	}
}

// lastUse is when a connection was given back, in nanoseconds.
func lastUse(conn *pgxpool.Conn) int64 {
	used, _ := conn.Conn().PgConn().CustomData()[lastUsed].(time.Time)
	return used.UnixNano()
}

// close waits for what is under way.
func (i *idle) close() {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	i.round.Wait()
}
