package redis_test

import (
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/redis"
)

// TestAKeyThatATrialLeftBehindRefusesNothing: a trial of room that is cut off between its two commands leaves a
// hash behind.
func TestAKeyThatATrialLeftBehindRefusesNothing(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	do(t, server, "HSET", "midge:{*}:probe", "a", "b")
	s, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}
