package redis

import "slices"

// finishes reports whether all parts are completions in one queue, each all that its call
// does there: what finish.lua is for.
func (inv *invocation) finishes() bool {
	for _, p := range inv.parts {
		if p.before != "" || !p.repeats() {
			return false
		}
	}
	return len(inv.queues) == 1
}

// finishArgs gives the keys and arguments of finish.lua.
func (s *Storage) finishArgs(inv *invocation) (keys, args []any) {
	args = append(make([]any, 0, 1+5*len(inv.parts)), len(inv.parts))
	for _, p := range inv.parts {
		args = append(p.id.append(args), len(p.run))
		for i := range p.run {
			r := &p.run[i]
			args = append(args, slices.Concat([]byte{byte(r.width)}, packFence(&r.fence), r.ids))
		}
	}
	return s.keys.some(inv.queues[0], nil, metaKey, tasksKey, pendingKey, leasesKey, claimsKey, lanesKey), args
}

// cut hands a reply in one text to the parts: of each what admit says, A, a time and two
// letters for each run.
func (inv *invocation) cut(text string) {
	for _, p := range inv.parts {
		n := min(9+2*len(p.units), len(text))
		p.err = nil
		p.outcome, text = text[:n], text[n:]
	}
}
