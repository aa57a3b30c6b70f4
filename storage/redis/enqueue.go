package redis

import "strconv"

// lone reports whether a part has an identity and one insert on which nothing hangs, and
// comes after no other part of its call.
func (p *part) lone() bool {
	return p.count == 1 && p.plain == insertRun && p.repeats() && p.before == ""
}

// insert gives the id of a lone part's insert, and its record but for lead, version and times.
func (p *part) insert() (id, rest *string) { return &p.run[0].items[0], &p.run[0].items[1] }

// priority is that of a lone part's insert, as a record has it.
func (p *part) priority() byte {
	_, rest := p.insert()
	return (*rest)[0]
}

// alike reports whether the parts of an invocation are all lone ones that differ in nothing
// but lane, id and payload, each in its own: what enqueue.lua is for.
func (inv *invocation) alike() bool {
	if len(inv.queues) != 1 {
		return false
	}
	for i, p := range inv.parts {
		if !p.lone() || !p.joins(inv.parts[:i]) {
			return false
		}
	}
	return true
}

// joins reports whether a lone part may go out with others. They are few: see flushParts.
func (p *part) joins(others []*part) bool {
	id, _ := p.insert()
	for _, o := range others {
		if other, _ := o.insert(); *other == *id || o.id.lane == p.id.lane {
			return false
		}
	}
	return len(others) == 0 || others[0].run[0].lead == p.run[0].lead && others[0].priority() == p.priority()
}

// loneArgs gives the keys and arguments of enqueue.lua.
func (s *Storage) loneArgs(inv *invocation) (keys, args []any) {
	first := inv.parts[0]
	oldest, newest := first.id.opened, first.id.opened
	args = make([]any, 5, 5+4*len(inv.parts))
	for _, p := range inv.parts {
		oldest, newest = min(oldest, p.id.opened), max(newest, p.id.opened)
		id, rest := p.insert()
		args = append(args, &p.id.lane, &p.id.seq, id, rest)
	}
	args[0], args[1] = &first.run[0].lead, basis(first.priority())
	args[2], args[3], args[4] = s.keys.channel(first.queues[0]), oldest, newest
	place := waitingKey
	if first.priority() == plainPriority {
		place = lineKey
	}
	return s.keys.some(first.queues[0], make([]any, 0, 4), metaKey, tasksKey, place, lanesKey), args
}

// told hands the reply of enqueue.lua, which is the mark before the first part, to the parts:
// their marks differ in the last byte.
func (inv *invocation) told(stamp string) {
	for i, p := range inv.parts {
		p.err, p.outcome = nil, ""
		if n := len(stamp) - 1; n >= 0 {
			p.outcome = "NA" + stamp[:n] + string([]byte{stamp[n] + byte(i)}) + "*w"
		}
	}
}

// plainPriority is priority 0 as a record has it.
const plainPriority = 9

// basis is the place in waiting from which the tasks of a priority, as a record has it,
// are numbered; see place in lib.lua. Those of priority 0 stand in the line instead.
func basis(priority byte) string {
	return strconv.FormatInt(-(int64(priority)-plainPriority)<<48, 10)
}
