package redis

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
)

// TestNoReplyGoesToAnother: no call reads the reply of another one, although calls are cancelled at any
// moment.
func TestNoReplyGoesToAnother(t *testing.T) {
	options := func(o goredis.Options) (*interrupts, *goredis.Options) {
		in, timeout := newInterrupts(ioTimeout)
		o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled, o.MaxRetries = timeout, timeout, true, retries
		o.PoolSize = 8
		o.Dialer = in.over(goredis.NewDialer(&o))
		return in, &o
	}
	t.Run("plain", func(t *testing.T) {
		testserver.Require(t)
		in, o := options(goredis.Options{Addr: testserver.Redis(t).Addr()})
		cancelAtRandom(t, in, goredis.NewClient(o))
	})
	t.Run("TLS", func(t *testing.T) {
		server, config := tlsMini(t)
		in, o := options(goredis.Options{Addr: server.Addr(), TLSConfig: config})
		cancelAtRandom(t, in, goredis.NewClient(o))
	})
	t.Run("Cluster", func(t *testing.T) {
		testserver.Require(t)
		cluster := testserver.Cluster(t)
		in, timeout, dial := dialing(nil, ioTimeout)
		cancelAtRandom(t, in, goredis.NewClusterClient(&goredis.ClusterOptions{
			Addrs: cluster.Addrs(), ReadTimeout: timeout, WriteTimeout: timeout, ContextTimeoutEnabled: true,
			MaxRetries: retries, PoolSize: 4, Dialer: dial,
		}))
	})
}

func tlsMini(t *testing.T) (*miniredis.Miniredis, *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	server := miniredis.NewMiniRedis()
	if err := server.StartTLS(&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server, &tls.Config{InsecureSkipVerify: true}
}

func cancelAtRandom(t *testing.T, in *interrupts, client goredis.UniversalClient) {
	t.Helper()
	defer func() { _ = client.Close() }()
	const script = "return ARGV[1]"
	var all sync.WaitGroup
	var good, cut, bad atomic.Int64
	see := func(cmd *goredis.Cmd, want string) {
		switch {
		case cmd.Err() == nil && cmd.Val() != want:
			bad.Add(1)
		case cmd.Err() == nil:
			good.Add(1)
		default:
			cut.Add(1)
		}
	}
	for g := range 16 {
		all.Go(func() {
			for n := range 400 {
				ctx, cancel := context.WithCancel(context.Background())
				timer := time.AfterFunc(time.Duration(rand.N(8000))*time.Microsecond, cancel)
				call, end := in.begin(ctx)
				want := fmt.Sprintf("%d-%d-%s", g, n, strings.Repeat("x", rand.N(3)*20000))
				key := "k" + strconv.Itoa(n%50)
				if n%2 == 0 {
					see(client.Eval(call, script, []string{key}, want), want)
				} else {
					pipe := client.Pipeline()
					var cmds []*goredis.Cmd
					for i := range 3 {
						cmds = append(cmds, pipe.Eval(call, script, []string{key + strconv.Itoa(i)}, want+strconv.Itoa(i)))
					}
					_, _ = pipe.Exec(call)
					for i, cmd := range cmds {
						see(cmd, want+strconv.Itoa(i))
					}
				}
				end()
				timer.Stop()
				cancel()
			}
		})
	}
	all.Wait()
	t.Logf("%d good, %d cut, %d bad", good.Load(), cut.Load(), bad.Load())
	if bad.Load() > 0 || len(in.calls) > 0 {
		t.Errorf("%d replies of others, %d names left", bad.Load(), len(in.calls))
	}
}
