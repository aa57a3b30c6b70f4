package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// invocation is one call of apply.lua: parts of one slot and class, in order.
type invocation struct {
	parts  []*part
	queues []string
	ops    int
	bytes  int
	script *script
	keys   []any
	args   []any
	cmd    *goredis.Cmd
	sent   sent
}

// invocationsOf joins parts. Parts that a full Redis refuses stay apart from those that it
// has to take; the parts of one call stay in order.
func invocationsOf(parts []*part) []*invocation {
	if len(parts) == 1 {
		return []*invocation{{parts: parts, queues: parts[0].queues}}
	}
	var all []*invocation
	last := map[bool]int{true: -1, false: -1} // the open invocation of each class
	placed := make(map[*slotCall]int, len(parts))
	for _, p := range parts {
		at := last[p.grows]
		if at < placed[p.of] || !all[at].fits(p) {
			at = len(all)
			all = append(all, &invocation{})
			last[p.grows] = at
		}
		placed[p.of] = at
		inv := all[at]
		inv.parts = append(inv.parts, p)
		inv.ops += p.ops
		inv.bytes += p.bytes
		for _, q := range p.queues {
			if !slices.Contains(inv.queues, q) {
				inv.queues = append(inv.queues, q)
			}
		}
	}
	return all
}

// fits reports whether a part may join. One that others of the same call come before or
// behind joins no other call, which could spoil it: it would be late when tried again.
func (inv *invocation) fits(p *part) bool {
	if c := inv.parts[0].of; c != p.of && (len(c.parts) > 1 || len(p.of.parts) > 1) {
		return false
	}
	most := partOps
	if p.plain != "" && inv.class() == p.plain {
		most = runOps(p.plain == completionRun)
	}
	return inv.ops+p.ops <= most && inv.bytes+p.bytes <= partBytes
}

// scriptOf is the script that is tried first.
func (s *Storage) scriptOf(inv *invocation) *script {
	for _, p := range inv.parts {
		if !p.short {
			return &s.scripts.apply
		}
	}
	switch inv.class() {
	case insertRun:
		if inv.alike() {
			return &s.scripts.enqueue
		}
		return &s.scripts.insert
	case completionRun:
		if inv.finishes() {
			return &s.scripts.finish
		}
		return &s.scripts.complete
	}
	return &s.scripts.apply
}

// invoke carries out invocations in one pipeline, and again those for which the server
// had forgotten the script.
func (s *Storage) invoke(ctx context.Context, invocations []*invocation) {
	for _, inv := range invocations {
		inv.keys, inv.args = s.argsOf(inv)
		inv.cmd = inv.script.call(ctx, &inv.sent, !s.brought.knows(inv), inv.keys, inv.args)
	}
	s.pipeline(ctx, invocations)
	var again []*invocation
	for _, inv := range invocations {
		s.brought.learn(inv)
		if forgotten(inv.cmd.Err()) {
			inv.cmd = inv.script.call(ctx, &inv.sent, true, inv.keys, inv.args)
			again = append(again, inv)
		}
	}
	s.pipeline(ctx, again)
}

// brought remembers which scripts the server of a slot knows, for calls of several parts. A
// server that knows none refuses a part, but not the one behind it where another client
// brings the script in between: they would change places. So the first goes with its text.
type brought struct{ scripts sync.Map } // of known

type known struct {
	script *script
	slot   int
}

// knows reports whether an invocation may go by the hash of its script.
func (b *brought) knows(inv *invocation) bool {
	if len(inv.parts[0].of.parts) == 1 {
		return true
	}
	_, knows := b.scripts.Load(known{inv.script, inv.parts[0].slot})
	return knows
}

// learn takes note of what an invocation met.
func (b *brought) learn(inv *invocation) {
	at := known{inv.script, inv.parts[0].slot}
	switch err := inv.cmd.Err(); {
	case forgotten(err):
		b.scripts.Delete(at)
	case err == nil && !b.knows(inv):
		b.scripts.Store(at, nil)
	}
}

func (s *Storage) pipeline(ctx context.Context, invocations []*invocation) {
	switch len(invocations) {
	case 0:
		return
	case 1:
		_ = s.client.Process(ctx, invocations[0].cmd) // the command has its own error
		return
	}
	pipe := s.client.Pipeline()
	for _, inv := range invocations {
		_ = pipe.Process(ctx, inv.cmd)
	}
	_, _ = pipe.Exec(ctx) // likewise
}

// argsOf gives the keys and arguments of an invocation's script.
func (s *Storage) argsOf(inv *invocation) (keys, args []any) {
	switch inv.script {
	case &s.scripts.enqueue:
		return s.loneArgs(inv)
	case &s.scripts.finish:
		return s.finishArgs(inv)
	}
	n := 4 + len(inv.queues)
	for _, p := range inv.parts {
		n += p.size()
	}
	args = make([]any, 0, n)
	if inv.script == &s.scripts.apply {
		args = append(args, len(inv.queues), inv.refusal(), s.limits.DeadMax, len(inv.parts))
	} else {
		args = append(args, len(inv.queues), len(inv.parts))
	}
	keys = make([]any, 0, block*len(inv.queues))
	for _, q := range inv.queues {
		keys = s.keysOf(inv.script, q, keys)
		args = append(args, q)
	}
	for _, p := range inv.parts {
		args = p.append(args, inv.script, s.scripts)
	}
	return keys, args
}

// keysOf appends the keys of a queue that a script takes.
func (s *Storage) keysOf(sc *script, queue string, list []any) []any {
	switch sc {
	case &s.scripts.insert:
		return s.keys.some(queue, list, metaKey, tasksKey, waitingKey, lineKey, lanesKey)
	case &s.scripts.complete:
		return s.keys.some(queue, list, metaKey, tasksKey, pendingKey, leasesKey, claimsKey, lanesKey)
	}
	return s.keys.of(queue, list)
}

// class is the letter of the runs that all parts are of, "" where they are not.
func (inv *invocation) class() string {
	class := inv.parts[0].plain
	for _, p := range inv.parts {
		if p.plain != class {
			return ""
		}
	}
	return class
}

// refusal is "1" where a full Redis is to refuse the invocation.
func (inv *invocation) refusal() string {
	if inv.parts[0].grows {
		return "1"
	}
	return "0"
}

// hand hands the reply of an invocation to its parts.
func (s *Storage) hand(inv *invocation) {
	if text, ok := inv.cmd.Val().(string); ok {
		if inv.script == &s.scripts.enqueue {
			inv.told(text)
		} else {
			inv.cut(text)
		}
		return
	}
	reply, err := inv.cmd.Slice()
	if err == nil && len(reply) != len(inv.parts)+1 {
		err = fmt.Errorf("%w: %d outcomes for %d calls", errReply, len(reply)-1, len(inv.parts))
	}
	for i, p := range inv.parts {
		p.sent, p.spoiled = p.sent || inv.sent.Load(), false
		if err != nil {
			p.err = translate(err, p.sent)
			p.spoiled = len(inv.parts) > 1 && spoiled(p.err)
			continue
		}
		p.err = nil
		p.outcome, _ = reply[i+1].(string)
	}
}
