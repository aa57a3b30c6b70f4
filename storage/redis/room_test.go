package redis_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// TestAFullRedisIsDescribed: Describe reports since when Redis is full, by INFO or by the last refused write,
// and for handles that write nothing by INFO alone. It ends with the first insert, or when INFO shows that.
func TestAFullRedisIsDescribed(t *testing.T) {
	testserver.Require(t)
	for _, may := range []string{"+info", "-info"} {
		t.Run(may, func(t *testing.T) {
			server := testserver.Redis(t, "maxmemory-policy noeviction")
			do(t, server, "ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "&*", "+@all", may)
			open := func() *redis.Storage {
				s, err := redis.Open(t.Context(), redis.Config{URL: "redis://app:secret@" + server.Addr()})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
			store, other := open(), open()
			session := storage.NewSession(store, testserver.Patience)
			insert := func(id string) error {
				_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{insertOf(id)}})
				return err
			}
			if err := insert("first"); err != nil {
				t.Fatal(err)
			}
			wantFull(t, store, "")
			do(t, server, "CONFIG", "SET", "maxmemory", "1")
			if err := insert("refused"); !errors.Is(err, storage.ErrFull) {
				t.Fatalf("got %v, want an ErrFull", err)
			}
			wantFull(t, store, "full")
			if may == "+info" {
				wantFull(t, other, "maxmemory")
			}
			do(t, server, "CONFIG", "SET", "maxmemory", "0")
			if may == "-info" { // else INFO shows it
				if err := insert("accepted"); err != nil {
					t.Fatal(err)
				}
			}
			wantFull(t, store, "")
			wantFull(t, other, "")
		})
	}
}

func TestAFullMasterOfAClusterIsDescribed(t *testing.T) {
	testserver.Require(t)
	cluster := testserver.Cluster(t)
	store, err := redis.Open(t.Context(), redis.Config{URL: "redis+cluster://" + strings.Join(cluster.Addrs(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	wantFull(t, store, "")
	do(t, cluster.Nodes()[1], "CONFIG", "SET", "maxmemory", "1")
	wantFull(t, store, "maxmemory")
	do(t, cluster.Nodes()[1], "CONFIG", "SET", "maxmemory", "0")
	wantFull(t, store, "")
}

// wantFull checks that Description.Full has a text, or that it is empty.
func wantFull(t *testing.T, store *redis.Storage, text string) {
	t.Helper()
	d, err := store.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text == "" && (d.Full != "" || !d.FullSince.IsZero()) || text != "" &&
		(!strings.Contains(d.Full, text) || d.FullSince.IsZero() || d.FullSince.After(d.Now)) {
		t.Errorf("got %q since %v at %v, want %q", d.Full, d.FullSince, d.Now, text)
	}
}
