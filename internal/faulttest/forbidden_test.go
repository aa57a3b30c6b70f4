//go:build unix

package faulttest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// TestARedisThatForbidsWritesRefusesEnqueueAndStart checks, with users that may not write, or may not run
// scripts, that the storage opens, and that the application learns at once which commands its user lacks.
func TestARedisThatForbidsWritesRefusesEnqueueAndStart(t *testing.T) {
	require(t)
	testserver.Parallel(t)
	server := testserver.Redis(t)
	for _, refused := range []string{
		"HDEL HSET DEL ZADD ZREM ZREMRANGEBYRANK RPUSH LTRIM UNLINK", "EVAL EVALSHA",
	} {
		rules := strings.Fields("ACL SETUSER app reset on >secret ~* &* +@all")
		for command := range strings.FieldsSeq(refused) {
			rules = append(rules, "-"+strings.ToLower(command))
		}
		_, err := server.Do(rules...)
		must(t, err)
		store, err := redis.Open(t.Context(), redis.Config{URL: "redis://app:secret@" + server.Addr()})
		must(t, err)
		client, err := midge.NewClient(store, midge.ClientConfig{})
		must(t, err)
		_, enqueued := client.Enqueue(t.Context(), stepJob{})
		runner, err := midge.NewRunner(store, midge.RunnerConfig{Logger: zap.NewNop()})
		must(t, err)
		must(t, midge.Handle(runner, func(context.Context, stepJob) error { return nil }))
		for what, err := range map[string]error{"Enqueue": enqueued, "Start": runner.Start(t.Context())} {
			if !errors.Is(err, storage.ErrRefused) {
				t.Errorf("%s without %s: got %v, want an ErrRefused", what, refused, err)
				continue
			}
			for command := range strings.FieldsSeq(refused) {
				if !strings.Contains(err.Error(), command) {
					t.Errorf("%s without %s: %v does not name %s", what, refused, err, command)
				}
			}
		}
		must(t, store.Close())
	}
}
