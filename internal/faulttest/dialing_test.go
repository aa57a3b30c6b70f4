//go:build unix

package faulttest

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// dialing says how a process reaches the storage.
type dialing struct {
	Addrs   []string
	Cluster bool
	Prefix  string
	// Through maps a node's address to that of the proxy in front of it.
	Through map[string]string
}

// client makes a go-redis client with go-redis's own defaults.
func (d dialing) client() goredis.UniversalClient {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if proxy, ok := d.Through[addr]; ok {
			addr = proxy
		}
		dialer := net.Dialer{Timeout: 5 * time.Second}
		return dialer.DialContext(ctx, network, addr)
	}
	if d.Cluster {
		return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: d.Addrs, Dialer: dial})
	}
	return goredis.NewClient(&goredis.Options{Addr: d.Addrs[0], Dialer: dial})
}

// ownClient is a storage that closes its client with it.
type ownClient struct {
	*redis.Storage
	client goredis.UniversalClient
}

func (o *ownClient) Close() error { return errors.Join(o.Storage.Close(), o.client.Close()) }

// url is the address without proxies.
func (d dialing) url() string {
	if d.Cluster {
		return "redis+cluster://" + strings.Join(d.Addrs, ",")
	}
	return "redis://" + d.Addrs[0]
}

// open opens the storage: by its URL, or through proxies by a client of its own.
func (d dialing) open(ctx context.Context) (storage.Storage, error) {
	if len(d.Through) == 0 {
		return redis.Open(ctx, redis.Config{URL: d.url(), Prefix: d.Prefix})
	}
	client := d.client()
	store, err := redis.Open(ctx, redis.Config{Client: client, Prefix: d.Prefix})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &ownClient{store, client}, nil
}
