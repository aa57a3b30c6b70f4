package testserver

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestClockJumps checks that servers of every kind follow a clock that jumps while they
// run.
func TestClockJumps(t *testing.T) {
	Require(t)
	RequirePostgres(t)
	clock, err := StartClock()
	must(t, err)
	t.Cleanup(func() { must(t, clock.Close()) })
	clock.Set(-time.Hour)

	redis, err := Start(Options{Env: clock.Env()})
	must(t, err)
	t.Cleanup(func() { must(t, redis.Close()) })
	cluster, err := StartCluster(Options{Env: clock.Env(), Config: []string{"cluster-node-timeout 86400000"}})
	must(t, err)
	t.Cleanup(func() { must(t, cluster.Close()) })
	clocks := map[string]func() time.Time{"redis": func() time.Time { return redisTime(t, redis) }}
	for _, node := range cluster.Nodes() {
		clocks["node "+node.Addr()] = func() time.Time { return redisTime(t, node) }
	}
	postgres := Postgres(t, PostgresOptions{Unsafe: true, Env: clock.Env()})
	conn, err := pgx.Connect(t.Context(), postgres.URL())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	clocks["postgres"] = func() (now time.Time) {
		must(t, conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now))
		return now
	}

	for _, ahead := range []time.Duration{
		-time.Hour, 2 * time.Hour, 2*time.Hour + 999_999*time.Microsecond, -time.Microsecond, -24 * time.Hour, 0,
	} {
		clock.Set(ahead)
		for name, now := range clocks {
			from := time.Now().Add(ahead).Truncate(time.Microsecond)
			got, to := now(), time.Now().Add(ahead)
			if clock.Ahead() != ahead || got.Before(from) || got.After(to) {
				t.Errorf("%s under a clock %v ahead: got %v, want from %v to %v", name, ahead, got, from, to)
			}
		}
	}
	must(t, cluster.AwaitReady())
}

func redisTime(t *testing.T, server *Server) time.Time {
	t.Helper()
	reply, err := server.Do("TIME")
	must(t, err)
	seconds, micros, _ := strings.Cut(reply, "\n")
	s, err := strconv.ParseInt(seconds, 10, 64)
	must(t, err)
	us, err := strconv.ParseInt(micros, 10, 64)
	must(t, err)
	return time.Unix(s, us*1000)
}
