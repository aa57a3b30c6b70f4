package redis

import "strconv"

// isLone reports whether a part is one insert and nothing else, with an identity: what
// enqueue.lua is for.
func (p *part) isLone() bool { return p.count == 1 && p.head[1] != "0" }

// loneArgs gives the keys and arguments of enqueue.lua.
func (s *Storage) loneArgs(p *part) (keys []string, args []any) {
	// A run of inserts is its letter, queue, lead and number, then id and rest of each.
	queue, _ := p.args[1].(string)
	lead, id := p.args[2], p.args[4]
	rest, _ := p.args[5].([]byte)
	keys = s.keys.some(queue, nil, metaKey, tasksKey, waitingKey, lanesKey)
	return keys, append(append(args, p.head[:3]...), id, lead, rest, basis(rest[0]), s.keys.channel(queue))
}

// basis is the place in waiting from which the tasks of a priority, as a record has it,
// are numbered; see place in lib.lua.
func basis(priority byte) string {
	return strconv.FormatInt(-(int64(priority)-9)<<48, 10)
}
