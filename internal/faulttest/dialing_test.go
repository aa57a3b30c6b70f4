//go:build unix

package faulttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// dialing describes how a process connects to the storage.
type dialing struct {
	Kind  kind
	Addrs []string
	Place string // key prefix, or schema
	// Through maps a node's address to the address of the proxy in front of it.
	Through map[string]string
}

// placeOf returns the name of a place for one run of a test.
func placeOf(t *testing.T, k kind) string {
	t.Helper()
	if k == onePostgres {
		return "t_" + storage.NewID()
	}
	clean := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}
	prefix := strings.Map(clean, t.Name())
	return prefix[:min(len(prefix), 36)] + "-" + storage.NewID()
}

// through puts a proxy in front of each node, and returns the dialing through them and
// the proxies.
func (d dialing) through(t *testing.T) (dialing, []*testserver.Proxy) {
	t.Helper()
	if d.Kind == oneFile {
		return d, nil
	}
	d.Through = make(map[string]string)
	var proxies []*testserver.Proxy
	for _, addr := range d.Addrs {
		p := testserver.NewProxy(t, addr)
		d.Through[addr] = p.Addr()
		proxies = append(proxies, p)
	}
	return d, proxies
}

// keepAll keeps all dead tasks: a long storm makes more than a queue keeps by default.
var keepAll = storage.Limits{DeadMax: storage.NoLimit}

// open opens the storage.
func (d dialing) open(ctx context.Context) (storage.Storage, error) {
	switch {
	case d.Kind == oneFile:
		return modernc.Open(ctx, d.Addrs[0])
	case d.Kind == onePostgres:
		return postgres.Open(ctx, d.postgres())
	case len(d.Through) == 0:
		return redis.Open(ctx, redis.Config{URL: d.redisURL(), Prefix: d.Place, Limits: keepAll})
	}
	client := d.client()
	store, err := redis.Open(ctx, redis.Config{Client: client, Prefix: d.Place, Limits: keepAll})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &ownClient{store, client}, nil
}

// redisURL returns the URL without proxies.
func (d dialing) redisURL() string {
	switch d.Kind {
	case aCluster:
		return "redis+cluster://" + strings.Join(d.Addrs, ",")
	case sentinels:
		return "redis+sentinel://" + d.Addrs[0] + "/" + testserver.MasterName
	default:
		return "redis://" + d.Addrs[0]
	}
}

// client returns a go-redis client that dials through the proxies and has go-redis's
// default options.
func (d dialing) client() goredis.UniversalClient {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if proxy, ok := d.Through[addr]; ok {
			addr = proxy
		}
		dialer := net.Dialer{Timeout: 5 * time.Second}
		return dialer.DialContext(ctx, network, addr)
	}
	if d.Kind == aCluster {
		return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: d.Addrs, Dialer: dial})
	}
	return goredis.NewClient(&goredis.Options{Addr: d.Addrs[0], Dialer: dial})
}

// ownClient is a storage that closes its client when it is closed.
type ownClient struct {
	*redis.Storage
	client goredis.UniversalClient
}

func (o *ownClient) Close() error { return errors.Join(o.Storage.Close(), o.client.Close()) }

// postgres returns the configuration of the storage: it connects to the node that takes writes. The
// application_name of each connection is the process id, so that a test can find its own connections.
func (d dialing) postgres() postgres.Config {
	var hosts, ports []string
	for _, addr := range d.Addrs {
		host, port := filepath.Dir(addr), "5432"
		if proxy, ok := d.Through[addr]; ok {
			host, port, _ = net.SplitHostPort(proxy)
		}
		hosts, ports = append(hosts, host), append(ports, port)
	}
	url := fmt.Sprintf("host=%s port=%s user=midge dbname=postgres sslmode=disable "+
		"target_session_attrs=read-write application_name=%d",
		strings.Join(hosts, ","), strings.Join(ports, ","), os.Getpid())
	return postgres.Config{URL: url, Schema: d.Place, Limits: keepAll}
}

// isStep matches the requests by which the methods of a storage change something.
func (k kind) isStep(request []byte) bool {
	if k == onePostgres {
		return commits(request) || calls(request, postgresSteps)
	}
	return redisScript(request)
}

// begins matches the first request of each such change.
func (k kind) begins(request []byte) bool {
	return k.isStep(request) || k == onePostgres && calls(request, postgresBegins)
}

var (
	redisScript = testserver.Command("EVALSHA", "EVAL")
	// The functions of steps of one round trip, without the version at the ends of their names. A
	// regular expression would take more time than all else that a proxy does.
	postgresSteps = [][]byte{[]byte(".claim_"), []byte(".enqueue_"), []byte(".add_"), []byte(".finish_")}
	// The functions that the first round trip of a step of several round trips calls.
	postgresBegins = [][]byte{[]byte(".enter_"), []byte(".opened_")}
)

// commits reports whether a line of a request is the statement that ends a step of several round
// trips.
func commits(request []byte) bool {
	for line := range bytes.Lines(request) {
		if string(bytes.TrimRight(line, "\n")) == "COMMIT" {
			return true
		}
	}
	return false
}

// calls reports whether a request calls one of the functions.
func calls(request []byte, functions [][]byte) bool {
	return slices.ContainsFunc(functions, func(name []byte) bool { return bytes.Contains(request, name) })
}
