package redis

import (
	"context"
	"errors"
	"strconv"

	goredis "github.com/redis/go-redis/v9"
)

// lone is an insert on which nothing hangs, alone in its call: what enqueue.lua is for.
type lone struct {
	queue, id  string
	lead, rest []byte // of its record; version and times come between
}

// lone gives the insert of a part that has nothing else.
func (p *part) lone() (in lone, ok bool) {
	if p.count != 1 || p.plain != insertRun || p.head[1] == "0" {
		return lone{}, false
	}
	// A run of inserts is its letter, queue, lead and number, then id and rest of each.
	queue, _ := p.args[1].(string)
	lead, _ := p.args[2].(string)
	id, _ := p.args[4].(string)
	rest, ok := p.args[5].([]byte)
	return lone{queue, id, []byte(lead), rest}, ok
}

// enqueue carries out a lone insert, and reports false where there is none, or more to it.
func (s *Storage) enqueue(ctx context.Context, inv *invocation) bool {
	if len(inv.parts) != 1 {
		return false
	}
	p := inv.parts[0]
	in, ok := p.lone()
	if !ok {
		return false
	}
	keys := s.keys.some(in.queue, metaKey, tasksKey, waitingKey, lanesKey)
	args := []any{
		p.head[0], p.head[1], p.head[2], in.id, in.lead, in.rest, basis(in.rest[0]), s.keys.channel(in.queue),
	}
	script := &s.scripts.enqueue
	inv.cmd = s.client.EvalSha(ctx, script.sha, keys, args...)
	if forgotten(inv.cmd.Err()) {
		inv.cmd = s.client.Eval(ctx, script.source, keys, args...)
	}
	if errors.Is(inv.cmd.Err(), goredis.Nil) {
		return false
	}
	inv.land()
	return true
}

// basis is the place in waiting from which the tasks of a priority, as a record has it,
// are numbered; see place in lib.lua.
func basis(priority byte) string {
	return strconv.FormatInt(-(int64(priority)-9)<<48, 10)
}
