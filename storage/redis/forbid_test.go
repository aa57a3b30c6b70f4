package redis_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// The commands that midge uses.
var (
	readCommands = strings.Fields("TIME TYPE EXISTS HGET HMGET HLEN HSCAN ZCARD ZCOUNT ZRANGE " +
		"ZRANGEBYSCORE ZREVRANGEBYSCORE ZRANGEBYLEX ZLEXCOUNT ZSCORE ZMSCORE LLEN LRANGE")
	writeCommands  = strings.Fields("HDEL HSET DEL ZADD ZREM ZREMRANGEBYRANK RPUSH LTRIM UNLINK")
	scriptCommands = strings.Fields("EVAL EVALSHA")
	otherCommands  = strings.Fields("PUBLISH SUBSCRIBE UNSUBSCRIBE INFO CONFIG CLIENT PING HELLO")
)

// wantOpened opens a storage on a server that refuses some commands, and checks which calls work there.
func wantOpened(t *testing.T, cfg redis.Config, refused ...string) {
	t.Helper()
	store, err := redis.Open(t.Context(), cfg)
	all := func(commands []string) bool {
		return !slices.ContainsFunc(refused, func(c string) bool { return !slices.Contains(commands, c) })
	}
	whole := all(writeCommands) && len(refused) == len(writeCommands)
	if all(slices.Concat(readCommands, writeCommands)) && !whole {
		wantRefused(t, "open", err, refused)
		return
	}
	if err != nil {
		t.Fatalf("open without %v: %v", refused, err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, testserver.Patience)
	_, enqueued := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{plain("mail", "a")}})
	_, claimed := session.Claim(t.Context(), claimOf(1))
	_, extended := session.Extend(t.Context(), storage.ExtendRequest{
		Runner: storage.RunnerInfo{ID: "r", For: storage.MinLease},
	})
	configured := session.Configure(t.Context(), "mail", storage.Settings{Create: true})
	_, read := store.Stats(t.Context(), "mail")
	for what, err := range map[string]error{
		"enqueue": enqueued, "claim": claimed, "extend": extended, "configure": configured,
	} {
		if all(otherCommands) {
			if err != nil {
				t.Errorf("%s without %v: %v", what, refused, err)
			}
			continue
		}
		wantRefused(t, what, err, refused)
		d, err := store.Describe(t.Context())
		if err != nil || !strings.Contains(strings.Join(d.Warnings, "\n"), refused[0]) {
			t.Errorf("without %v: got warnings %q, %v, want them named", refused, d.Warnings, err)
		}
		if (d.ReadOnly != "") != whole || whole && !slices.Contains(d.Warnings, d.ReadOnly) {
			t.Errorf("without %v: got ReadOnly %q and the warnings %q", refused, d.ReadOnly, d.Warnings)
		}
	}
	if whole || all(otherCommands) {
		if read != nil {
			t.Errorf("read without %v: %v", refused, read)
		}
	} else {
		wantRefused(t, "read", read, refused)
	}
}

// wantRefused checks that an error is an ErrRefused that names exactly the refused commands.
func wantRefused(t *testing.T, what string, err error, refused []string) {
	t.Helper()
	var denied *redis.PermissionError
	if !errors.As(err, &denied) || !errors.Is(err, storage.ErrRefused) {
		t.Errorf("%s without %v: got %v, want a *PermissionError", what, refused, err)
		return
	}
	got := slices.Sorted(slices.Values(denied.Commands))
	want := slices.Sorted(slices.Values(refused))
	if !slices.Equal(got, want) || !strings.Contains(err.Error(), want[0]) {
		t.Errorf("%s without %v: %v names %v", what, want, err, got)
	}
}

// forbidding has each server refuse commands to the user app, and permit all others.
func forbidding(t *testing.T, commands []string, servers ...*testserver.Server) {
	t.Helper()
	rules := []string{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "&*", "+@all"}
	for _, c := range commands {
		rules = append(rules, "-"+strings.ToLower(c))
	}
	for _, server := range servers {
		do(t, server, rules...)
	}
}

// alone lists the sets of commands that the tests refuse: each command alone, all writes, and more than one.
func alone() (sets [][]string) {
	for _, c := range slices.Concat(readCommands, writeCommands, scriptCommands, otherCommands) {
		sets = append(sets, []string{c})
	}
	return append(sets, writeCommands, scriptCommands, []string{"HGET", "HSET"}, []string{"INFO", "CONFIG", "CLIENT"})
}

func TestAUserWithoutACommand(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	for _, refused := range alone() {
		forbidding(t, refused, server)
		wantOpened(t, redis.Config{URL: "redis://app:secret@" + server.Addr()}, refused...)
		do(t, server, "FLUSHALL")
	}
}

func TestAUserOfAClusterWithoutACommand(t *testing.T) {
	testserver.Require(t)
	cluster := testserver.Cluster(t)
	url := "redis+cluster://app:secret@" + strings.Join(cluster.Addrs(), ",")
	forbidding(t, nil, cluster.Nodes()...)
	for _, refused := range [][]string{{"HGET"}, {"LTRIM"}, {"EVALSHA"}, writeCommands, {"INFO", "CONFIG"}} {
		for i := range testserver.Masters { // on each master alone: the user of one server may differ
			forbidding(t, refused, cluster.Nodes()[i])
			store, err := redis.Open(t.Context(), redis.Config{URL: url})
			switch {
			case slices.Contains(refused, "INFO"):
			case err == nil:
				_, err := storage.NewSession(store, testserver.Patience).Claim(t.Context(), claimOf(1))
				wantRefused(t, "claim", err, refused)
			default:
				wantRefused(t, "open", err, refused)
			}
			if err == nil {
				_ = store.Close()
			}
			forbidding(t, nil, cluster.Nodes()[i])
		}
	}
}

func TestAServerThatRenamesCommands(t *testing.T) {
	testserver.Require(t)
	for _, refused := range [][]string{
		{"TIME"},
		{"HGET"},
		{"ZRANGE"},
		{"ZADD"},
		{"UNLINK"},
		{"EVAL"},
		{"EVALSHA"},
		writeCommands, scriptCommands,
		{"CONFIG", "CLIENT"},
		{"PUBLISH"}, // the test itself needs PING and INFO
	} {
		var config []string
		for _, c := range refused {
			config = append(config, "rename-command "+c+` ""`)
		}
		server := testserver.Redis(t, config...)
		wantOpened(t, redis.Config{URL: server.URL()}, refused...)
	}
}

func TestAMasterBehindSentinelsWithoutACommand(t *testing.T) {
	testserver.Require(t)
	s := testserver.Sentinel(t)
	url := "redis+sentinel://app:secret@" + s.Sentinel.Addr() + "/" + testserver.MasterName
	for _, refused := range [][]string{{"HGET"}, {"HSET"}, {"EVAL"}, writeCommands} {
		forbidding(t, refused, s.Master)
		wantOpened(t, redis.Config{URL: url}, refused...)
	}
}

// TestAnOwnClientWithoutACommand: the storage on an application's client finds out the same.
func TestAnOwnClientWithoutACommand(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	for _, refused := range [][]string{{"HGET"}, {"HSET"}, {"EVAL"}, writeCommands} {
		forbidding(t, refused, server)
		wantOpened(t, redis.Config{Client: client}, refused...)
	}
}
