package redis

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

func TestURLOfOneRedis(t *testing.T) {
	cfg := Config{URL: "redis://user:p%40ss@host:7000/3?pool_size=7"}
	l, err := cfg.connect()
	if err != nil || !l.own {
		t.Fatalf("connect: own %v, error %v", l.own, err)
	}
	defer func() { _ = l.client.Close() }()
	o := l.client.(*goredis.Client).Options()
	got := [4]any{o.Addr, o.Username, o.Password, o.DB}
	if want := [4]any{"host:7000", "user", "p@ss", 3}; got != want {
		t.Errorf("options: got %v, want %v", got, want)
	}
	if o.PoolSize != 7 || o.ReadTimeout != ioTimeout+margin || o.MaxRetries != retries {
		t.Errorf("options: got pool %d, read timeout %v, retries %d", o.PoolSize, o.ReadTimeout, o.MaxRetries)
	}
}

func TestURLOfASocket(t *testing.T) {
	cfg := Config{URL: "unix://user:secret@/run/redis,1.sock?db=2"}
	l, err := cfg.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.client.Close() }()
	o := l.client.(*goredis.Client).Options()
	if o.Network != "unix" || o.Addr != "/run/redis,1.sock" || o.DB != 2 || o.Password != "secret" {
		t.Errorf("options: got %s %s, db %d", o.Network, o.Addr, o.DB)
	}
}

func TestURLOverTLS(t *testing.T) {
	own := &tls.Config{ServerName: "mine", MinVersion: tls.VersionTLS13}
	for _, cfg := range []Config{{URL: "rediss://host:1"}, {URL: "redis://host:1", TLS: own}} {
		l, err := cfg.connect()
		if err != nil {
			t.Fatal(err)
		}
		got := l.client.(*goredis.Client).Options().TLSConfig
		if got == nil || cfg.TLS != nil && got.ServerName != "mine" {
			t.Errorf("%s: got TLS %v", cfg.URL, got)
		}
		_ = l.client.Close()
	}
}

func TestURLOfSeveralHosts(t *testing.T) {
	cfg := Config{URL: "rediss+cluster://user:p%3Aw@a,b:7001,[::1]:7002"}
	m, err := cfg.parseMany("6379")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(m.addrs, " "), "a:6379 b:7001 [::1]:7002"; got != want {
		t.Errorf("hosts: got %s, want %s", got, want)
	}
	if m.user != "user" || m.password != "p:w" || m.tls == nil {
		t.Errorf("got user %q, password %q, TLS %v", m.user, m.password, m.tls != nil)
	}
	l, err := cfg.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.client.Close() }()
	if _, ok := l.client.(*goredis.ClusterClient); !ok {
		t.Errorf("client: got %T, want a ClusterClient", l.client)
	}
}

func TestURLOfSentinels(t *testing.T) {
	cfg := Config{URL: "redis+sentinel://:pw@a:1,b/main?db=2&sentinel_password=x"}
	l, err := cfg.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.client.Close() }()
	if o := l.client.(*goredis.Client).Options(); o.Password != "pw" || o.DB != 2 {
		t.Errorf("options: got db %d", o.DB)
	}
}

func TestEachURLTakesWaitReplicas(t *testing.T) {
	for url, want := range map[string]string{
		"redis://h?wait_replicas=2":                      "redis://h",
		"rediss://u:p?w@h/1?pool_size=3&wait_replicas=2": "rediss://u:p?w@h/1?pool_size=3",
		"unix:///a.sock?wait_replicas=2&db=1":            "unix:///a.sock?db=1",
		"redis+sentinel://h/main?db=1&wait_replicas=2":   "redis+sentinel://h/main?db=1",
		"redis+cluster://h?wait_replicas=2":              "redis+cluster://h",
	} {
		for own, replicas := range map[int]int{0: 2, 3: 3} {
			cfg := Config{URL: url, WaitReplicas: own}
			if err := cfg.check(); err != nil || cfg.URL != want || cfg.WaitReplicas != replicas {
				t.Errorf("%s: got %s with %d, %v, want %s with %d", url, cfg.URL, cfg.WaitReplicas, err, want, replicas)
			}
		}
	}
}

func TestBadConfigIsRefusedWithoutItsSecrets(t *testing.T) {
	const secret = "hunter2"
	bad := []Config{
		{},
		{URL: "redis://h", Client: goredis.NewClient(&goredis.Options{})},
		{URL: "redis://h", Prefix: "a{b}"},
		{URL: "redis://h", Limits: storage.Limits{MaxPayload: 1 << 30}},
		{Client: goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"a": "h:1"}})},
		{URL: "user:" + secret + "@host"},
		{URL: "http://user:" + secret + "@host"},
		{URL: "redis://user:" + secret + "@host:notaport"},
		{URL: "redis://user:" + secret + "@host/notadb"},
		{URL: "redis://user:" + secret + "@host?password=" + secret + "&nonsense=1"},
		{URL: "redis://us%zzer:" + secret + "@host"},
		{URL: "redis+sentinel://user:" + secret + "@host"},
		{URL: "redis+sentinel://user:" + secret + "@host/m?sentinel_password=" + secret + "&what=1"},
		{URL: "redis+cluster://user:" + secret + "@host/1"},
		{URL: "redis+cluster://user:" + secret + "%zz@host"},
		{URL: "redis+cluster://user:" + secret + "@"},
		{URL: "redis+cluster://user:" + secret + "@h?wait_replicas=x"},
		{URL: "redis://user:" + secret + "@h?wait_replicas=-1"},
		{URL: "redis://h", WaitReplicas: -1},
	}
	for _, cfg := range bad {
		s, err := Open(t.Context(), cfg)
		var invalid *storage.InvalidError
		if s != nil || !errors.As(err, &invalid) {
			t.Errorf("%+v: got error %v, want an *InvalidError", cfg.Prefix, err)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows the password: %v", err)
		}
		if cfg.Client != nil {
			_ = cfg.Client.Close()
		}
	}
}

// A parameter that stands twice, or a database beside another one, may not be the one that was meant. With the other
// values go-redis panics, dials for no time at all, or sends nothing.
func TestParametersThatCannotServeAreRefused(t *testing.T) {
	for _, url := range []string{
		"redis://h?db=1&db=2", "redis://h/1?db=2", "redis+sentinel://h/main?db=1&db=2", "rediss://h?client_name=a&client_name=a",
		"redis://h?pool_size=-1", "redis://h?dial_timeout=0", "redis://h?dial_timeout=-1s", "redis://h?max_retries=-2",
	} {
		s, err := Open(t.Context(), Config{URL: url})
		var invalid *storage.InvalidError
		if s != nil || !errors.As(err, &invalid) {
			t.Errorf("%s: got %v, %v; want an *InvalidError", url, s, err)
		}
	}
	for _, url := range []string{
		"redis://h/1", "redis://h/?db=1", "unix:///a.sock?db=1", "redis://h?pool_size=1&dial_timeout=1s&max_retries=-1",
	} {
		cfg := Config{URL: url}
		l, err := cfg.connect()
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		_ = l.client.Close()
	}
}

func TestNoPartOfAPasswordIsShown(t *testing.T) {
	for _, url := range []string{
		"redis://:hunt?er2@127.0.0.1:1", "redis://:hunt#er2@127.0.0.1:1", "redis://:hunt/er2@127.0.0.1:1",
		"redis://:pass@hunt#er2@127.0.0.1:1", "redis://:hunt er2", "redis+cluster://:hunt%er2@127.0.0.1:1",
		"redis+sentinel://127.0.0.1:1/main?db=x&sentinel_password=hunt@er2",
		"redis+sentinel://:pass@127.0.0.1:1/main?sentinel_password=hunt@er2&db=x",
	} {
		_, err := Open(t.Context(), Config{URL: url})
		var invalid *storage.InvalidError
		if !errors.As(err, &invalid) || strings.Contains(err.Error(), "hunt") || strings.Contains(err.Error(), "er2") {
			t.Errorf("%s: got %v; want an *InvalidError without the password", url, err)
		}
	}
}

func TestUnreachableServerIsUnavailableWithoutSecrets(t *testing.T) {
	_, err := Open(t.Context(), Config{URL: "redis://user:hunter2@127.0.0.1:1/0?max_retries=-1"})
	if !errors.Is(err, storage.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("open: got %v, want an ErrUnavailable without the password", err)
	}
}
