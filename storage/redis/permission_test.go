package redis_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// restricted creates the user app with the permissions that doc.go lists on servers. It fails the test
// if a server has denied that user anything by the end of the test.
func restricted(t *testing.T, servers ...*testserver.Server) {
	t.Helper()
	rules := documented(t)
	for _, server := range servers {
		do(t, server, append([]string{"ACL", "SETUSER", "app", "reset", "on", ">secret"}, rules...)...)
		t.Cleanup(func() {
			if denied := do(t, server, "ACL", "LOG"); denied != "" {
				t.Errorf("denied:\n%s", denied)
			}
		})
	}
}

// documented returns the rules for a user from the package comment.
func documented(t *testing.T) (rules []string) {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "// # Permissions\n")
	section, _, _ = strings.Cut(section, "// # ")
	section = strings.Replace(section, "ACL SETUSER midge on >password ", "", 1)
	for line := range strings.Lines(section) {
		if list, is := strings.CutPrefix(line, "//\t"); is {
			rules = append(rules, strings.Fields(list)...)
		}
	}
	return rules
}

// TestTheDocumentedUserMayDoNoHarm: the user may run no command that reaches beyond midge's keys.
func TestTheDocumentedUserMayDoNoHarm(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	do(t, server, append([]string{"ACL", "SETUSER", "app", "reset", "on", ">secret"}, documented(t)...)...)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
	defer func() { _ = client.Close() }()
	for _, command := range []string{
		"FLUSHALL", "FLUSHDB", "KEYS *", "MIGRATE h 1 midge:k 0 1", "SCRIPT FLUSH", "CLIENT KILL ID 1", "CLIENT PAUSE 1",
		"CONFIG SET maxmemory 1", "SHUTDOWN", "REPLICAOF NO ONE", "ACL LIST", "SAVE", "MONITOR",
		"SORT midge:k", "SCAN 0", "RANDOMKEY", "SWAPDB 0 1", "GET other:k", "HGET other:k f", "PUBLISH other m",
	} {
		var args []any
		for word := range strings.FieldsSeq(command) {
			args = append(args, word)
		}
		if err := client.Do(t.Context(), args...).Err(); err == nil || !goredis.HasErrorPrefix(err, "NOPERM") {
			t.Errorf("%s gave %v, want NOPERM", command, err)
		}
	}
}

// TestOpenRefusesAUserWithOtherKeys opens with a user that may use all commands, or nearly all, but only on
// the keys of another prefix.
func TestOpenRefusesAUserWithOtherKeys(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	cfg := redis.Config{URL: "redis://app:secret@" + server.Addr()}
	for _, commands := range []string{"+@all -eval", "+@all"} {
		do(t, server, strings.Fields("ACL SETUSER app reset on >secret ~other:* &* "+commands)...)
		wantKeysRefused(t, cfg)
	}
	cfg.Prefix = "other"
	store, err := redis.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	_ = store.Close()
}

// wantKeysRefused checks that Open returns a *PermissionError that names the keys and no command.
func wantKeysRefused(t *testing.T, cfg redis.Config) {
	t.Helper()
	store, err := redis.Open(t.Context(), cfg)
	if err == nil {
		_ = store.Close()
	}
	var refused *redis.PermissionError
	if !errors.As(err, &refused) || !errors.Is(err, storage.ErrRefused) || refused.Keys != "midge:*" ||
		len(refused.Commands) > 0 || !strings.Contains(err.Error(), "the server refuses the keys midge:*") {
		t.Errorf("got %v, want a *PermissionError that names the keys", err)
	}
}
