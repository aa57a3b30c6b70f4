package redis

import "strconv"

// lone is a part that is one insert on which nothing hangs.
type lone struct {
	queue, lead string
	id, rest    any // of the record, whose version and times come between lead and rest
	priority    byte
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
	rest, _ := p.args[5].([]byte)
	in.id, in.rest, in.priority = p.args[4], rest, rest[0]
	return in, true
}

// alike reports whether all parts are lone inserts that differ in nothing but id and
// payload: what enqueue.lua is for.
func (inv *invocation) alike() bool {
	if len(inv.queues) != 1 {
		return false
	}
	first, _ := inv.parts[0].lone()
	for _, p := range inv.parts {
		in, ok := p.lone()
		if !ok || in.lead != first.lead || in.priority != first.priority {
			return false
		}
	}
	return true
}

// loneArgs gives the keys and arguments of enqueue.lua.
func (s *Storage) loneArgs(inv *invocation) (keys []string, args []any) {
	first, _ := inv.parts[0].lone()
	args = make([]any, 0, 3+5*len(inv.parts))
	args = append(args, first.lead, basis(first.priority), s.keys.channel(first.queue))
	for _, p := range inv.parts {
		in, _ := p.lone()
		args = append(append(args, p.head[:3]...), in.id, in.rest)
	}
	return s.keys.some(first.queue, nil, metaKey, tasksKey, waitingKey, lanesKey), args
}

// basis is the place in waiting from which the tasks of a priority, as a record has it,
// are numbered; see place in lib.lua.
func basis(priority byte) string {
	return strconv.FormatInt(-(int64(priority)-9)<<48, 10)
}
