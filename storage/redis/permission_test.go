package redis_test

import (
	"os"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
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
