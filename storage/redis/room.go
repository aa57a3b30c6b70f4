package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// findRoom finds out whether the server, or a master of a Cluster, is full: by INFO, or by a small write
// if the server does not report its memory.
func (s *Storage) findRoom(ctx context.Context) {
	why, known := s.memory(ctx)
	switch {
	case known && (why != "" || s.room.Full()):
		s.room.Tried(why)
	case !known && s.room.Full() && s.room.Due():
		s.tryRoom(ctx)
	}
}

// tryRoom writes a field, which a full server refuses, and removes it.
func (s *Storage) tryRoom(ctx context.Context) {
	_, err := heed(ctx, &s.scripts.calls, func(ctx context.Context) (any, error) {
		pipe := s.client.Pipeline()
		set := pipe.HSet(ctx, s.keys.global("probe"), "a", "b")
		pipe.Unlink(ctx, s.keys.global("probe"))
		_, _ = pipe.Exec(ctx) // each command has its own error
		return nil, set.Err()
	})
	if err = translateRead(err); err == nil {
		s.room.Tried("")
	} else {
		s.room.Wrote(err)
	}
}

// memory returns why the server, or a master of a Cluster, is full, "" for none. It reports false if it
// does not know that of all of them.
func (s *Storage) memory(ctx context.Context) (why string, known bool) {
	infos, err := heed(ctx, &s.scripts.calls, func(ctx context.Context) ([]string, error) {
		cluster, ok := s.client.(*goredis.ClusterClient)
		if !ok {
			info, err := s.client.Info(ctx, "memory").Result()
			return []string{info}, err
		}
		var all findings // its lock guards warnings, which has the texts
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
			info, err := node.Info(ctx, "memory").Result()
			all.mu.Lock()
			defer all.mu.Unlock()
			all.warnings = append(all.warnings, info)
			return err
		})
		return all.warnings, err
	})
	if err != nil {
		return "", false
	}
	for _, info := range infos {
		text, told := fullness(parseInfo(info), s.room.Full())
		if text != "" {
			return text, true
		}
		if !told {
			return "", false
		}
	}
	return "", true
}

// fullness judges INFO memory of one server: why it is full, "" if it is not. refused is true if it
// refused the last write: then it is full although it may have freed the memory of the refused command
// since. A server that evicts volatile keys, of which midge has none, is full only if it has refused a
// write. fullness reports false if the server does not report its memory.
func fullness(info map[string]string, refused bool) (why string, told bool) {
	most, err := strconv.ParseInt(info["maxmemory"], 10, 64)
	used, bad := strconv.ParseInt(info["used_memory"], 10, 64)
	if err != nil || bad != nil {
		return "", false
	}
	policy := info["maxmemory_policy"]
	if most == 0 || strings.HasPrefix(policy, "allkeys") {
		return "", true
	}
	aside, _ := strconv.ParseInt(info["mem_not_counted_for_evict"], 10, 64) // 0 if it is not reported
	used -= aside
	if used > most && policy == "noeviction" || refused && used > most/100*99 {
		return fmt.Sprintf("the memory of Redis is full: %.1f of %.1f MB (maxmemory) are used",
			float64(used)/1e6, float64(most)/1e6), true
	}
	return "", true
}
