package redis

import (
	"bytes"
	"strconv"
)

// lone is a part that is one insert on which nothing hangs.
type lone struct {
	lane            []byte // its field
	opened          int64
	queue, lead, id string
	rest            any // of the record, whose version and times come between lead and it
	priority        byte
}

// lone gives the insert of a part that has an identity and nothing else, and comes after
// no other part of its call.
func (p *part) lone() (in lone, ok bool) {
	if p.count != 1 || p.plain != insertRun || !p.repeats() || p.before != "" {
		return lone{}, false
	}
	// A run of inserts is its letter, queue, lead and number, then id and rest of each.
	in.queue, _ = p.args[1].(string)
	in.lead, _ = p.args[2].(string)
	in.id, _ = p.args[4].(string)
	rest, _ := p.args[5].([]byte)
	in.rest, in.priority = rest, rest[0]
	in.lane, _ = p.head[0].([]byte)
	in.opened, _ = p.head[2].(int64)
	return in, true
}

// alike gives the inserts of an invocation whose parts are all lone ones that differ in
// nothing but lane, id and payload, each in its own: what enqueue.lua is for.
func (inv *invocation) alike() []lone {
	if len(inv.queues) != 1 {
		return nil
	}
	all := make([]lone, 0, len(inv.parts))
	for _, p := range inv.parts {
		in, ok := p.lone()
		if !ok || !in.joins(all) {
			return nil
		}
		all = append(all, in)
	}
	return all
}

// joins reports whether in may go out with others. They are few: see flushParts.
func (in lone) joins(others []lone) bool {
	for i := range others {
		if o := &others[i]; o.id == in.id || bytes.Equal(o.lane, in.lane) {
			return false
		}
	}
	return len(others) == 0 || others[0].lead == in.lead && others[0].priority == in.priority
}

// loneArgs gives the keys and arguments of enqueue.lua.
func (s *Storage) loneArgs(inv *invocation) (keys []string, args []any) {
	first, opened := &inv.alone[0], inv.alone[0].opened
	args = make([]any, 4, 4+4*len(inv.parts))
	for i := range inv.alone {
		in := &inv.alone[i]
		opened = min(opened, in.opened)
		args = append(args, in.lane, inv.parts[i].head[1], in.id, in.rest)
	}
	args[0], args[1], args[2], args[3] = first.lead, basis(first.priority), s.keys.channel(first.queue), opened
	return s.keys.some(first.queue, nil, metaKey, tasksKey, waitingKey, lanesKey), args
}

// told hands the reply of enqueue.lua, which is when the first part happened, to the parts:
// the times differ in their last byte.
func (inv *invocation) told(stamp string) {
	for i, p := range inv.parts {
		p.err, p.outcome = nil, ""
		if n := len(stamp) - 1; n >= 0 {
			p.outcome = "NA" + stamp[:n] + string([]byte{stamp[n] + byte(i)}) + "*w"
		}
	}
}

// basis is the place in waiting from which the tasks of a priority, as a record has it,
// are numbered; see place in lib.lua.
func basis(priority byte) string {
	return strconv.FormatInt(-(int64(priority)-9)<<48, 10)
}
