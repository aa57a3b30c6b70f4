package redis

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// readAside reads the large payloads of claimed tasks from the side hashes of their queues. The scripts of
// a claim do not, because the Lua of Redis hashes each byte of each text that it holds. A task whose payload
// is not there, or has another size, counts as damaged. It may also have lost its lease since: then it is
// another runner's, and setting it apart under the fence of this claim changes nothing.
//
// An error of readAside is a storage.ErrUnknown: the tasks are claimed, and a repeat of the call returns
// them.
func (s *Storage) readAside(ctx context.Context, answer *claimAnswer) error {
	payloads, err := heed(ctx, &s.scripts.calls, func(ctx context.Context) (map[int]*goredis.StringCmd, error) {
		pipe := s.client.Pipeline()
		all := make(map[int]*goredis.StringCmd, len(answer.aside))
		for i := range answer.aside {
			t := &answer.Tasks[i]
			all[i] = pipe.HGet(ctx, s.keys.key(t.Queue, sideKey), "b:"+t.ID)
		}
		_, _ = pipe.Exec(ctx) // returns the first error, behind which graver ones may stand
		for _, cmd := range all {
			if err := cmd.Err(); err != nil && !errors.Is(err, goredis.Nil) {
				return nil, err
			}
		}
		return all, nil
	})
	if err != nil {
		//nolint:errorlint // it hides what the error is
		return fmt.Errorf("%w: the payloads of claimed tasks: %v", storage.ErrUnknown, err)
	}
	kept := 0
	for i := range answer.Tasks {
		if size := answer.aside[i]; size > 0 {
			payload, err := payloads[i].Bytes()
			if err != nil || int64(len(payload)) != size {
				f := &answer.Fences[i]
				answer.damaged = append(answer.damaged, fenced{f.Queue, f.ID, packFence(f)})
				continue
			}
			answer.Tasks[i].Payload = payload
		}
		answer.Tasks[kept], answer.Fences[kept] = answer.Tasks[i], answer.Fences[i]
		kept++
	}
	answer.Tasks, answer.Fences, answer.aside = answer.Tasks[:kept], answer.Fences[:kept], nil
	return nil
}
