package postgres

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// dialTimeout bounds how long a host may take to answer. With several hosts it also bounds how long each of
	// them may take to begin a session, so that a host that hangs does not hold up a failover.
	dialTimeout = 5 * time.Second
	// sessionTimeout bounds how long a single host may take to begin a session. A busy server begins the
	// sessions in the order of the dials, and begins a session even if its client has given up. If all clients
	// gave up sooner than the server can begin a session for each, and dialled again, no client would ever have
	// a session.
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
