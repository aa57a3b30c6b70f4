package postgres

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// dialTimeout bounds how long a host may take to answer, and one of several hosts to begin a session.
	dialTimeout = 5 * time.Second
	// sessionTimeout bounds how long a single host may take to begin a session. A busy server begins sessions
	// in the order in which it was asked for them, also those that nobody waits for any more. If all clients
	// gave up sooner than it can begin one for each, and asked again, none would ever have one. Of several
	// hosts, one that hangs must not hold up a failover.
	sessionTimeout = 30 * time.Second
)

// boundDials bounds the time in which connections are made, unless the application has chosen one.
func boundDials(cfg *pgx.ConnConfig) {
	if cfg.ConnectTimeout != 0 {
		return
	}
	cfg.ConnectTimeout = sessionTimeout
	for _, f := range cfg.Fallbacks { // other hosts, or other ways to encrypt
		if f.Host != cfg.Host {
			cfg.ConnectTimeout = dialTimeout
		}
	}
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return dial(ctx, network, addr)
	}
}
