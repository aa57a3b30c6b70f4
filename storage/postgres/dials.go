package postgres

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// dialTimeout bounds how long a server may take to answer at an address, and to begin a session.
	dialTimeout = 5 * time.Second
	// dialLimit is the most that a session may take to begin where none has begun for as long.
	dialLimit = 30 * time.Second
)

// dials bounds how long sessions may take to begin: dialTimeout, or as long as none has begun although
// connections were dialled, up to dialLimit. A busy server begins sessions in the order in which it was
// asked for them, also those that nobody waits for any more. If it has more to begin than it can within
// dialTimeout, and all clients gave up after that time and asked again, none would ever have one.
type dials struct {
	mu    sync.Mutex
	since time.Time // when the first dial began after the last session had; zero if none did
}

// bound makes d bound the dials of a pool, and reports whether it does: not if the application has chosen a
// time, nor with several hosts, where a host that hangs must not hold up the dial of the next.
func (d *dials) bound(cfg *pgxpool.Config) bool {
	conn := cfg.ConnConfig
	if conn.ConnectTimeout != 0 || hosts(conn) > 1 {
		return false
	}
	dial, before, after := conn.DialFunc, cfg.BeforeConnect, conn.AfterConnect
	conn.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return dial(ctx, network, addr)
	}
	cfg.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		conn.ConnectTimeout = d.begin()
		if before == nil {
			return nil
		}
		return before(ctx, conn)
	}
	conn.AfterConnect = func(ctx context.Context, made *pgconn.PgConn) error {
		d.made()
		if after == nil {
			return nil
		}
		return after(ctx, made)
	}
	return true
}

// hosts returns the number of hosts of a server. One host may have several addresses and ways to encrypt.
func hosts(conn *pgx.ConnConfig) int {
	names := map[string]bool{conn.Host: true}
	for _, f := range conn.Fallbacks {
		names[f.Host] = true
	}
	return len(names)
}

// begin notes that a dial begins, and returns how long it may take.
func (d *dials) begin() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		d.since = time.Now()
	}
	return min(max(dialTimeout, time.Since(d.since)), dialLimit)
}

// made notes that a session has begun.
func (d *dials) made() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since = time.Time{}
}
