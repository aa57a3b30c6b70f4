package redis_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

const secret = "hunter2"

// refused opens a storage with a Config that must be refused, and checks the error.
func refused(t *testing.T, cfg redis.Config, kind error, words ...string) {
	t.Helper()
	store, err := redis.Open(t.Context(), cfg)
	if err == nil {
		_ = store.Close()
	}
	if cfg.Client != nil && !errors.As(err, new(*storage.InvalidError)) {
		_ = cfg.Client.Close()
	}
	if !errors.Is(err, kind) {
		t.Errorf("got %v, want it to be %v", err, kind)
		return
	}
	invalid(t, err, words...)
}

// invalid checks the words of an error.
func invalid(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("got %v, want %q in it", err, word)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("%v shows the password", err)
	}
}

func TestAConfigThatNamesNoServerSaysWhatIsWanted(t *testing.T) {
	own := func(addr string) *goredis.Client { return goredis.NewClient(&goredis.Options{Addr: addr}) }
	var none *goredis.Client
	for _, c := range []struct {
		cfg   redis.Config
		words string
	}{
		{redis.Config{URL: "redis://h", Client: own("h:1")}, `redis.Config "with URL and Client": want one of them`},
		{redis.Config{}, `redis.Config "without URL and Client": want one of them`},
		{redis.Config{Client: own("h:1"), TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, `"with Client and TLS": want TLS in the Client's`},
		{redis.Config{Client: none}, `Config.Client "nil of type *redis.Client"`},
		{redis.Config{Client: own("u:" + secret + "@h:1")}, "want host:port, and user and password in options"},
		{redis.Config{Client: own("redis://:" + secret)}, "want host:port, and user and password in options"},
		{redis.Config{Client: own("a:1,b:2")}, `address a:1,b:2": want one host:port, or a *redis.ClusterClient`},
		{redis.Config{URL: "redis://u:" + secret + "@a:7000,b:7001"}, `"redis://***@a:7000,b:7001": want one host; redis+cluster://`},
		{redis.Config{URL: "redis://a,b:7001"}, "want one host; redis+cluster://"},
		{redis.Config{URL: "redis://a:7000?addr=b:7001"}, "want one host; redis+cluster://"},
		{redis.Config{URL: "redis://h/-1"}, "want a database number of 0 or more"},
		{redis.Config{URL: "redis+sentinel://h/main?db=-1"}, "want a number of 0 or more for db"},
	} {
		_, err := redis.Open(t.Context(), c.cfg)
		if !errors.As(err, new(*storage.InvalidError)) {
			t.Errorf("%s: got %v, want an *InvalidError", c.words, err)
			continue
		}
		invalid(t, err, c.words)
		if c.cfg.Client != nil && c.cfg.Client != none {
			_ = c.cfg.Client.Close()
		}
	}
}

func TestARefusedPasswordSaysWhatWasGiven(t *testing.T) {
	server := miniredis.RunT(t)
	server.RequireAuth("right")
	refused(t, redis.Config{URL: "redis://" + server.Addr()}, storage.ErrRefused,
		"open redis://"+server.Addr(), "no password was given, want one", "NOAUTH")
	refused(t, redis.Config{URL: "redis://:" + secret + "@" + server.Addr()}, storage.ErrRefused,
		"open redis://***@"+server.Addr(), "want the user and password that the server knows", "WRONGPASS")
	own := goredis.NewClient(&goredis.Options{Addr: server.Addr(), Password: secret})
	refused(t, redis.Config{Client: own}, storage.ErrRefused, "open "+server.Addr(), "WRONGPASS")
}

func TestTLSOnOneSideAloneIsNamed(t *testing.T) {
	plain := miniredis.RunT(t)
	refused(t, redis.Config{URL: "rediss://:" + secret + "@" + plain.Addr()}, storage.ErrUnknown,
		"no answer over TLS (want redis:// if it speaks none there)")
	own := goredis.NewClient(&goredis.Options{Addr: plain.Addr(), MaxRetries: -1, DialerRetries: 1, TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS12,
	}})
	refused(t, redis.Config{Client: own}, storage.ErrUnknown, "open "+plain.Addr()+": no answer over TLS")

	web := httptest.NewTLSServer(nil) // for its certificate
	defer web.Close()
	encrypted, err := miniredis.RunTLS(&tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer encrypted.Close()
	refused(t, redis.Config{URL: "redis://" + encrypted.Addr()}, storage.ErrUnknown,
		"no answer without TLS (want rediss:// if it wants that)")
	refused(t, redis.Config{URL: "rediss://" + encrypted.Addr()}, storage.ErrUnknown,
		": no answer: ", "failed to verify certificate")
}

// TestTLSThatVerifiesNothingIsWarnedOf: an option of the URL is easily overlooked.
func TestTLSThatVerifiesNothingIsWarnedOf(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate
	defer web.Close()
	server, err := miniredis.RunTLS(&tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	for url, warned := range map[string]bool{
		"rediss://" + server.Addr() + "?skip_verify=true": true,
		"rediss://" + server.Addr():                       false,
	} {
		cfg := redis.Config{URL: url}
		if !warned {
			cfg.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: "example.com"}
		}
		store, err := redis.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		d, err := store.Describe(t.Context())
		got := slices.ContainsFunc(d.Warnings, func(w string) bool { return strings.Contains(w, "TLS does not verify") })
		if err != nil || got != warned {
			t.Errorf("%s: got %q, %v, want a warning: %v", url, d.Warnings, err, warned)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAnOwnClientWithoutAnswerIsNamed(t *testing.T) {
	one := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", Password: secret, MaxRetries: -1, DialerRetries: 1})
	refused(t, redis.Config{Client: one}, storage.ErrUnavailable, "open 127.0.0.1:1: no answer: ", "connection refused")
	socket := goredis.NewClient(&goredis.Options{Addr: filepath.Join(t.TempDir(), "no.sock"), MaxRetries: -1, DialerRetries: 1})
	refused(t, redis.Config{Client: socket}, storage.ErrUnavailable, "open the Client's server: no answer: ", "no.sock")
	many := goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}, Password: secret, MaxRetries: -1, DialerRetries: 1,
	})
	refused(t, redis.Config{Client: many}, storage.ErrUnavailable, "open 127.0.0.1:1,127.0.0.1:2: no answer: ")
}

func TestWhatAServerHasNotIsNamed(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	refused(t, redis.Config{URL: server.URL() + "/99"}, storage.ErrRefused,
		"database 99 was given, want one that the server has", "DB index is out of range")
	own := goredis.NewClient(&goredis.Options{Addr: server.Addr(), DB: 99})
	refused(t, redis.Config{Client: own}, storage.ErrRefused, "open "+server.Addr()+": database 99 was given")
	refused(t, redis.Config{URL: "redis+cluster://" + server.Addr()}, storage.ErrRefused,
		"want redis:// or a *redis.Client where it is no Cluster")
	refused(t, redis.Config{URL: "redis+sentinel://" + server.Addr() + "/main"}, storage.ErrRefused,
		"want the addresses of sentinels")
	refused(t, redis.Config{URL: "redis://nobody:" + secret + "@" + server.Addr()}, storage.ErrRefused,
		"want the user and password that the server knows")
}
