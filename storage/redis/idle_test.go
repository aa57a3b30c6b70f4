package redis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// TestAnIdleClientHoldsTwoConnectionsAtMost: they have midge's name or the name in the URL, and none of
// them listens before a runner waits.
func TestAnIdleClientHoldsTwoConnectionsAtMost(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	for name, query := range map[string]string{"midge": "", "shop": "?client_name=shop"} {
		store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr() + query})
		if err != nil {
			t.Fatal(err)
		}
		session := storage.NewSession(store, testserver.Patience)
		for i := range 20 {
			in := storage.Insert{Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("%s-%d", name, i)}, Kind: "job", Encoding: "json", CrashLimit: 3}
			if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
				t.Fatal(err)
			}
		}
		held, listens := 0, 0
		list := do(t, server, "CLIENT", "LIST")
		for line := range strings.Lines(list) {
			if strings.Contains(line, " name="+name+" ") {
				held++
			}
			if strings.Contains(line, "subscribe") {
				listens++
			}
		}
		if held < 1 || held > 2 || listens > 0 {
			t.Errorf("%s: got %d connections, %d that listen; want one or two, and none:\n%s", name, held, listens, list)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}
