package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// invocation is one script call of a flush, of apply.lua or one of its short ways: parts of one slot and
// class, in order.
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

// invocationsOf joins parts into invocations. Parts that a full Redis has to refuse do not join parts
// that it has to accept; the parts of one call stay in order.
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

// fits reports whether a part may join. A part of a call with several parts joins no other call. The
// other call could spoil it, and then it would happen after the parts of its own call that come next.
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

// scriptOf returns the script of an invocation: a short way if all parts may go by it, else apply.lua.
// A short way may leave its parts to a second call, of apply.lua, and yet the parts of one call must
// stay in order. So a part of inserts checks whether the part before it has happened. Parts of completions
// do not, because completions of different tasks need no order.
func (s *Storage) scriptOf(inv *invocation) *script {
	if slices.ContainsFunc(inv.parts, func(p *part) bool { return !p.short }) {
		return &s.scripts.apply
	}
	switch class := inv.class(); {
	case class == insertRun && len(inv.queues) == 1:
		return &s.scripts.insert
	case class == completionRun:
		return &s.scripts.complete
	}
	return &s.scripts.apply
}

// invoke carries out invocations in one pipeline, and in a second one the invocations whose script
// the server did not know.
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

// brought remembers which scripts the server of a slot knows, for calls of several parts. A server that
// does not know the script of two parts refuses the first one. If another client loads the script before
// the second part arrives, the server carries that one out, and the parts happen in the wrong order. So
// such calls send the text of a script until the server is known to have it.
type brought struct{ scripts sync.Map } // of known

type known struct {
	script *script
	slot   int
}

// knows reports whether an invocation may send only the hash of its script.
func (b *brought) knows(inv *invocation) bool {
	if len(inv.parts[0].of.parts) == 1 {
		return true
	}
	_, knows := b.scripts.Load(known{inv.script, inv.parts[0].slot})
	return knows
}

// learn notes from the error of an invocation whether the server knows the script.
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
	switch {
	case len(invocations) == 0:
		return
	case s.replicas > 0:
		s.replicated(ctx, invocations)
		return
	case len(invocations) == 1:
		_ = s.client.Process(ctx, invocations[0].cmd) // the command has its own error
		return
	}
	pipe := s.client.Pipeline()
	for _, inv := range invocations {
		_ = pipe.Process(ctx, inv.cmd)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}

// argsOf returns the keys and arguments of an invocation's script.
func (s *Storage) argsOf(inv *invocation) (keys, args []any) {
	if inv.script == &s.scripts.insert {
		return s.insertArgs(inv)
	}
	n := 3 + len(inv.queues)
	for _, p := range inv.parts {
		n += p.size()
	}
	args = append(make([]any, 0, n), len(inv.queues), inv.class(), len(inv.parts))
	places := s.scripts.places(inv.script)
	keys = make([]any, 0, cmp.Or(len(places), block)*len(inv.queues))
	for _, q := range inv.queues {
		keys = s.keys.some(q, keys, places)
		args = append(args, q)
	}
	for _, p := range inv.parts {
		args = p.append(args)
	}
	return keys, args
}

// insertArgs returns the keys and arguments of shortinsert.lua.
func (s *Storage) insertArgs(inv *invocation) (keys, args []any) {
	var leads []*string
	var before []any
	first, last, runs, n := inv.parts[0].id.opened, int64(0), 0, 6
	for _, p := range inv.parts {
		first, last = min(first, p.id.opened), max(last, p.id.opened)
		runs += len(p.run)
		n += 2 + len(p.run)
		for i := range p.run {
			r := &p.run[i]
			n += len(r.items)
			if !slices.ContainsFunc(leads, func(lead *string) bool { return *lead == r.lead }) {
				leads = append(leads, &r.lead)
			}
		}
		if p.before != "" {
			before = append(before, &p.before, &p.id.seq)
		}
	}
	args = make([]any, 0, n+len(leads)+len(before))
	args = append(args, len(inv.parts), runs, first, last, len(leads), len(before)/2)
	for _, lead := range leads {
		args = append(args, lead)
	}
	args = append(args, before...)
	for _, p := range inv.parts {
		args = p.appendInserts(args, leads)
	}
	places := s.scripts.places(inv.script)
	return s.keys.some(inv.queues[0], make([]any, 0, len(places)), places), args
}

// class returns the letter of the runs if all parts consist of runs of the same kind. Otherwise it
// returns "1" if a full Redis has to refuse the invocation, else "0".
func (inv *invocation) class() string {
	class := inv.parts[0].plain
	for _, p := range inv.parts {
		if p.plain != class || class == "" {
			if p.grows {
				return "1"
			}
			return "0"
		}
	}
	return class
}

// made returns the queues that have to be on the list of queues, according to the reply of apply.lua: the
// invocation made them, or it repeats one whose reply was lost.
func (inv *invocation) made() (queues []string) {
	reply, _ := inv.cmd.Val().([]any)
	if len(reply) == 0 {
		return nil
	}
	head, _ := reply[0].(string)
	for i, word := range strings.Fields(head) {
		if n, err := strconv.Atoi(word); i > 0 && err == nil && n >= 1 && n <= len(inv.queues) {
			queues = append(queues, inv.queues[n-1])
		}
	}
	return queues
}

// hand sets the outcome or error of each part from the reply of the invocation.
func (inv *invocation) hand() {
	// A short way returns a text: for each part N, A, a mark of 7 bytes and two letters for each run.
	if text, ok := inv.cmd.Val().(string); ok {
		for _, p := range inv.parts {
			n := min(9+2*len(p.units), len(text))
			p.sent, p.spoiled = p.sent || inv.sent.Load(), false
			p.err, p.outcome, text = nil, text[:n], text[n:]
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
