package redis

import (
	"errors"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// TestRefusalsOfAllServersAreUnderstood has the errors of several versions of Redis for a script whose
// first write is not permitted. Redis 6.2 puts the position in the script first.
func TestRefusalsOfAllServersAreUnderstood(t *testing.T) {
	text, err := sources.ReadFile("scripts/refusal.lua")
	if err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(&goredis.Options{Addr: miniredis.RunT(t).Addr()})
	defer func() { _ = client.Close() }()
	for said, want := range map[string]error{
		"OOM command not allowed when used memory > 'maxmemory'.":                     storage.ErrFull,
		"@user_script: 815: -OOM command not allowed when used memory > 'maxmemory'.": storage.ErrFull,
		"MISCONF Redis is configured to save RDB snapshots":                           storage.ErrRefused,
		"@user_script: 8: -MISCONF Redis is configured to save RDB snapshots":         storage.ErrRefused,
		"ERR The user executing the script can't run this command or subcommand":      storage.ErrRefused,
		"@user_script: 9: The user executing the script can't run this command":       storage.ErrRefused,
		"READONLY You can't write against a read only replica.":                       storage.ErrUnknown,
		"@user_script: 815: -READONLY You can't write against a read only replica.":   storage.ErrUnknown,
		"@user_script: 815: -NOREPLICAS Not enough good replicas to write.":           storage.ErrUnknown,
	} {
		err := client.Eval(t.Context(), string(text)+"return refusal({err = ARGV[1]})", nil, said).Err()
		if got := translate(err, true); !errors.Is(got, want) {
			t.Errorf("%q became %v, want %v", said, got, want)
		}
		if strings.Contains(said, "READONLY") && !goredis.HasErrorPrefix(err, "READONLY") {
			t.Errorf("%q became %v, which go-redis takes for no change of the master", said, err)
		}
	}
}
