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

// A connection may be dead without a sign of it: its server vanished, or a NAT has forgotten
// it. Nothing comes on it any more, no error either, and who waits for that waits for hours.
// So each call has its time, whatever its caller's context says.
const (
	// replyTime is how long a call waits for answers.
	replyTime = 5 * time.Second
	// allowanceLimit is the most for a claim, and allowanceFor how long one counts that took
	// more than replyTime.
	allowanceLimit = time.Minute
	allowanceFor   = time.Minute
	// quietLimit is how long a connection may be idle before it is asked whether it lives,
	// and pingTime how long that takes at most.
	quietLimit = time.Second
	pingTime   = time.Second
)

// allowance bounds claims. Where an old transaction holds vacuum back one may need more than
// replyTime, and would never go through: one that was given up gives those of the next
// minute twice its time.
type allowance struct {
	mu    sync.Mutex // guards what follows
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

// lastUsed is when a connection was given back, among what the driver keeps for others.
const lastUsed = "midge: last used"

// acquire takes a connection of a pool, one that lives. The pool could ask for that too, but
// what it finds dead keeps its place for a quarter of a minute.
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

// answers asks a connection whether it lives, and hangs up where it does not. A caller whose
// context ends neither waits for that nor ends a connection that lives: it has the error of
// the context, and the connection goes back to its pool.
func answers(ctx context.Context, conn *pgxpool.Conn) (bool, error) {
	told := make(chan bool)
	go func() { // ends within pingTime, and a second to hang up
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

// release gives a connection back to its pool. One that is closed leaves it: the driver
// looks after it for a while, and its place is needed.
func release(conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() {
		conn.Hijack()
		return
	}
	conn.Conn().PgConn().CustomData()[lastUsed] = time.Now()
	conn.Release()
}

// hangUp closes a connection that is of no pool.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
