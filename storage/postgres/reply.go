package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A connection may be dead without a sign of it: its server vanished, or a NAT has forgotten it.
// Nothing arrives on it any more, not even an error, and a caller could wait for hours. So each call
// has a time limit, whatever its caller's context is.
const (
	// replyTime bounds how long a call waits for answers.
	replyTime = 5 * time.Second
	// allowanceLimit is the most that a claim may take, and allowanceFor is how long a slow claim
	// counts.
	allowanceLimit = time.Minute
	allowanceFor   = time.Minute
	// quietLimit is how long a connection may be idle before it is tested, and pingTime bounds the
	// test.
	quietLimit = time.Second
	pingTime   = time.Second
)

// allowance bounds claims. If an old transaction holds vacuum back, a claim may need more than
// replyTime, and would never finish. So a claim that took too long, or was abandoned, lets the claims
// of the next minute take twice its time.
type allowance struct {
	mu    sync.Mutex // guards the fields below
	most  time.Duration
	until time.Time
}

// with carries out a claim in bounded time.
func (a *allowance) with(ctx context.Context, claim func(context.Context) error) error {
	most := a.now()
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	begun := time.Now()
	err := claim(bounded)
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded):
		a.learn(2 * most)
	case err == nil && time.Since(begun) > replyTime:
		a.learn(2 * time.Since(begun))
	}
	return err
}

func (a *allowance) now() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().After(a.until) {
		a.most = replyTime
	}
	return a.most
}

func (a *allowance) learn(most time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most, a.until = min(max(a.most, most), allowanceLimit), time.Now().Add(allowanceFor)
}

// lastUsed is the key of the moment when a connection went back to its pool, in its custom data.
const lastUsed = "midge: last used"

// acquire takes a live connection of a pool. The pool could test connections too, but a dead one
// would keep its place there for a quarter of a minute.
func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	for {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUnsent, err)
		}
		used, some := conn.Conn().PgConn().CustomData()[lastUsed].(time.Time)
		if !some || time.Since(used) < quietLimit {
			return conn, nil
		}
		lives, err := answers(ctx, conn)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUnsent, err)
		}
		if lives {
			return conn, nil
		}
	}
}

// answers tests whether a connection lives, and closes a dead one. A caller whose context ends
// neither waits for the test nor ends a live connection: answers returns the context's error, and the
// connection goes back to its pool.
func answers(ctx context.Context, conn *pgxpool.Conn) (bool, error) {
	told := make(chan bool)
	go func() { // ends within pingTime, plus a second to hang up
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTime)
		defer cancel()
		lives := conn.Conn().Ping(asked) == nil
		select {
		case told <- lives:
		case <-ctx.Done():
			if lives {
				release(conn)
			}
		}
		if !lives {
			hangUp(ctx, conn.Hijack())
		}
	}()
	select {
	case lives := <-told:
		return lives, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// release returns a connection to its pool. It takes a closed one out of the pool: the driver would
// keep it for a while, and its place is needed.
func release(conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() {
		conn.Hijack()
		return
	}
	conn.Conn().PgConn().CustomData()[lastUsed] = time.Now()
	conn.Release()
}

// hangUp closes a connection that belongs to no pool.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
