package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
)

// A script call of a claim serves at most claimQueues queues. If the claim names many kinds, it serves
// fewer: queues times kinds, the number of lines for which the script searches, is at most claimLines.
const (
	claimQueues = 64
	claimLines  = 2000
)

// group is the queues of a claim that one script call serves. On a Cluster they are in one slot.
type group struct {
	queues []storage.ClaimQueue
	index  int    // among all groups of the claim
	home   string // the first queue of the whole group, whose lanes have the call
	places []int  // the queues' indexes in the whole group; nil if no queue was left out
}

// place returns the index of the i-th queue in the whole group.
func (g *group) place(i int) int {
	if g.places == nil {
		return i
	}
	return g.places[i]
}

// Claim maintains the named queues and takes tasks from them. On one Redis a script call serves
// up to 64 queues, in their order. If more are named, a claim that has all tasks that it wants leaves the
// other queues to a later claim of its runner, if these were maintained within the last quarter of a second.
// On a Cluster, Claim asks all slots at the same time for a share each, and then asks the slots that have
// more for the tasks that are still wanted. So the order across slots, and which tasks of several slots
// start, is best effort.
func (s *Storage) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if err := storage.CheckClaim(&req); err != nil {
		return storage.Claimed{}, err
	}
	if err := s.mayWrite(); err != nil {
		return storage.Claimed{}, wrap("claim", err)
	}
	claimed, err := s.claim(ctx, &req)
	s.room.Wrote(err)
	if err != nil {
		return storage.Claimed{}, wrap("claim", err)
	}
	return claimed, nil
}

func (s *Storage) claim(ctx context.Context, req *storage.ClaimRequest) (storage.Claimed, error) {
	s.wake.listen(served(req.Queues))
	s.wake.claims.Add(1)
	defer s.wake.claims.Add(-1)
	since := s.wake.events.Looking(req)
	groups := s.groups(req.Queues, len(req.Kinds))
	c := claiming{storage: s, req: req, left: req.Most(), start: req.Start, groups: len(groups)}
	c.Since = since
	groups = s.unsound.sort(req.Call, groups)
	var err error
	if s.cluster && c.groups > 1 { // even if one is left: the first try of this call may have asked two
		err = c.share(ctx, groups)
	} else {
		err = c.turns(ctx, groups)
	}
	if err != nil {
		s.unsound.lose(req.Call, groups)
		return storage.Claimed{}, err
	}
	s.unsound.mended(c.mended)
	c.finish(ctx)
	if c.Now.IsZero() { // there is no answer for any queue: all of them are damaged
		if c.Now, err = s.time(ctx); err != nil {
			return storage.Claimed{}, translateRead(err)
		}
	}
	switch {
	case c.More:
		s.wake.events.Left(req)
	case req.Most() > 0:
		s.wake.rests(req, since)
	}
	return c.Claimed, nil
}

// served returns the names of the queues from which the claim takes tasks. It need not listen to the
// queues that it only maintains; a Wait for them begins to listen.
func served(queues []storage.ClaimQueue) []string {
	names := make([]string, 0, len(queues))
	for i := range queues {
		if queues[i].Max >= 0 {
			names = append(names, queues[i].Name)
		}
	}
	return names
}

// groups sorts the queues of a claim into groups, in order. kinds is how many kinds the claim names.
func (s *Storage) groups(queues []storage.ClaimQueue, kinds int) []*group {
	most := min(claimQueues, claimLines/max(kinds, 1))
	var groups []*group
	open := make(map[int]*group, 1)
	for _, q := range queues {
		slot := s.slot(q.Name)
		g := open[slot]
		if g == nil || len(g.queues) == most {
			g = &group{index: len(groups), home: q.Name}
			open[slot] = g
			groups = append(groups, g)
		}
		g.queues = append(g.queues, q)
	}
	return groups
}

// claiming is one Claim under way.
type claiming struct {
	storage.Claimed

	storage *Storage
	req     *storage.ClaimRequest
	groups  int // how many groups its queues form, unsound queues included
	left    int // how many tasks may still be taken
	start   int // how many of them start
	suspect bool
	more    bool // maintenance is left over
	remains bool // tasks are left over
	forget  []string
	mended  []string // queues that were tried again and are sound
	damaged []fenced
}

// fenced is a task whose record cannot be read, or whose id is not valid, with the fence of its
// claim.
type fenced struct {
	queue, id string
	fence     []byte
}

// ask is one script call of a claim.
type ask struct {
	group   *group
	index   int // in the lane field
	most    int
	start   int
	suspect suspects
}

// suspects is how a script call treats suspects.
type suspects string

const (
	leave suspects = "0"
	give  suspects = "1" // take one
	tell  suspects = "t" // report whether one waits
)

// turns asks one group after the other, each for all tasks that are still wanted.
func (c *claiming) turns(ctx context.Context, groups []*group) error {
	for i, g := range groups {
		if i > 0 && c.left == 0 && c.req.Most() > 0 && !c.storage.upkeep.due(c.req.Runner) {
			c.putOff()
			return nil
		}
		a := ask{g, g.index, c.left, min(c.start, c.left), leave}
		if c.req.Suspect && !c.suspect {
			a.suspect = give
		}
		answer, err := c.storage.askSound(ctx, c.req, a)
		if err != nil {
			return c.failed(err, i > 0)
		}
		c.take(answer)
	}
	if len(groups) > 1 {
		c.storage.upkeep.done(c.req.Runner)
	}
	return nil
}

// putOff notes that a claim that has all tasks that it wants leaves the maintenance of the other queues to
// a later one.
func (c *claiming) putOff() {
	c.remains = true
	if next := c.Now.Add(upkeepEvery); c.NextDue.IsZero() || next.Before(c.NextDue) {
		c.NextDue = next
	}
}

// failed returns the error of a claim of which one script call failed with err. others is true if other
// script calls may have happened. If the failed call was refused and others took tasks, failed returns
// nil: the claim returns these tasks, and a later claim that takes nothing returns the refusal.
func (c *claiming) failed(err error, others bool) error {
	switch {
	case !others:
		return err
	case errors.Is(err, storage.ErrUnknown):
		return inPart(err) // the repeat returns the tasks that the others took
	case len(c.Tasks)+len(c.damaged)+len(c.Ticks) > 0:
		return nil
	}
	return err
}

// gravest returns the gravest of several errors, nil if all are nil: an error that leaves open
// whether a part happened is graver than one after which the part did not happen.
func gravest(errs []error) error {
	var worst error
	grave := 0
	for _, err := range errs {
		n := 1
		switch {
		case err == nil:
			continue
		case errors.Is(err, storage.ErrLaneExpired):
			n = 2
		case errors.Is(err, storage.ErrUnknown):
			n = 3
		}
		if n > grave {
			worst, grave = err, n
		}
	}
	return worst
}

// inPart returns the error of a call of which one part failed with err and another happened: an
// ErrUnknown. It hides an ErrLaneExpired of the part, which would mean that nothing of the call happened.
func inPart(err error) error {
	if errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrLaneExpired) {
		return err
	}
	//nolint:errorlint // it hides what the error is
	return fmt.Errorf("%w: a part of the call failed: %v", storage.ErrUnknown, err)
}

// askFor makes one script call.
func (s *Storage) askFor(ctx context.Context, req *storage.ClaimRequest, a ask) (*claimAnswer, error) {
	keys, args := s.claimArgs(req, a)
	reply, err := s.scripts.claim.run(ctx, s.client, keys, args...)
	if err != nil {
		return nil, err
	}
	answer, err := s.readClaim(req, a, reply)
	if err != nil || len(answer.aside) == 0 {
		return answer, err
	}
	return answer, s.readAside(ctx, answer)
}

// claimArgs returns the keys and arguments of claim.lua.
func (s *Storage) claimArgs(req *storage.ClaimRequest, a ask) (keys, args []any) {
	args = make([]any, 0, 14+2*len(a.group.queues))
	args = append(args, len(a.group.queues))
	args = append(args, laneArgs(req.Call, a.index)...)
	start := a.start
	if req.Start == 0 {
		start = -1 // the claim wants none to start
	}
	args = append(args, req.Token[:], req.Runner, a.most, start, string(a.suspect), req.Lease.Microseconds())
	keys = make([]any, 0, block*len(a.group.queues))
	for _, q := range a.group.queues {
		keys = s.keys.of(q.Name, keys)
		args = append(args, q.Max)
	}
	copy(keys[lanesKey:], s.keys.block(a.group.home)[lanesKey:openedKey+1])
	args = append(args, strings.Join(req.Kinds, ","))
	for _, q := range a.group.queues {
		args = append(args, s.looked.at(q.Name, req.Kinds))
	}
	recoverTo := int64(never)
	if !req.RecoverBefore.IsZero() {
		recoverTo = req.RecoverBefore.UnixMicro() - 1
	}
	var places strings.Builder // counted from 1
	for _, at := range a.group.places {
		fmt.Fprintf(&places, "%d,", at+1)
	}
	return keys, append(args, recoverTo, places.String(), s.wake.process)
}

// claimAnswer is the answer of one script call of a claim.
type claimAnswer struct {
	storage.Claimed

	repeated bool
	taken    int  // how many the first try took; a repeat returns the tasks that are still pending
	suspect  bool // a suspect was taken
	suspects bool // suspects wait
	more     bool
	remains  bool
	forget   []string
	mended   []string
	damaged  []fenced
	aside    map[int]int64 // the sizes of payloads that are still to be read, by the index of their task
}

// readClaim reads the reply of claim.lua.
func (s *Storage) readClaim(req *storage.ClaimRequest, a ask, reply any) (*claimAnswer, error) {
	list, some := reply.([]any)
	if !some {
		list = []any{reply}
	}
	v := values(list)
	head := reader{rest: v.text()}
	letter, now := first(head.text(1)), head.digits(16)
	if head.bad {
		return nil, fmt.Errorf("%w: %v", errReply, reply)
	}
	answer := &claimAnswer{repeated: letter == 'R'}
	answer.Now = moment(now)
	if err := verdict(letter); err != nil {
		return nil, err
	}
	if due := head.digits(16); due > 0 {
		answer.NextDue = moment(due)
	}
	version := head.digits(16)
	answer.taken = int(head.digits(4))
	flags, rest, _ := strings.Cut(head.rest, ";")
	// A repeat asks again: tasks that came since the first try may have published their wake-up before
	// this one listened.
	answer.more, answer.remains = strings.Contains(flags, "m"), answer.repeated || strings.Contains(flags, "t")
	answer.Cancels, answer.suspects = strings.Contains(flags, "c"), strings.Contains(flags, "s")
	answer.suspect = strings.Contains(flags, "z")
	answer.allocate()
	h := haulOf(rest, v.list, len(a.group.queues))
	for i, q := range a.group.queues {
		info, ticks, last, lines := h.rare(i)
		bounded, held := strings.Contains(lines, "b"), strings.Contains(lines, "h")
		if bounded {
			answer.Bounded = append(answer.Bounded, q.Name)
		}
		if held {
			answer.Held = append(answer.Held, q.Name)
		}
		if lines != "" && !bounded && !held {
			s.looked.note(q.Name, req.Kinds, lines)
		}
		if last == "f" {
			answer.forget = append(answer.forget, q.Name)
		} else if list, some := strings.CutPrefix(last, "!"); some {
			h.pieces.bad = !answer.readEnded(q.Name, list) || h.pieces.bad
		}
		fence := storage.Fence{Ref: storage.Ref{Queue: q.Name}, Version: version, Token: req.Token}
		answer.read(req, a, fence, h, h.queues[i], info)
		answer.readTicks(q.Name, ticks)
	}
	if h.bad() {
		return nil, fmt.Errorf("%w: a claim of another shape", errReply)
	}
	return answer, nil
}

// readEnded reads the tasks of a queue that maintenance ended, and reports whether it could read the
// whole list. Each task is the letter of its state (k if it died of an unknown kind), its id behind
// a length byte, and its kind likewise.
func (c *claimAnswer) readEnded(queue, list string) bool {
	r := reader{rest: list}
	for r.rest != "" && !r.bad {
		letter := byte(r.number(1))
		e := storage.Ended{State: stateOf(letter)}
		e.Ref = storage.Ref{Queue: queue, ID: r.text(int(r.number(1)))}
		e.Kind = r.text(int(r.number(1)))
		switch letter {
		case 'd':
			e.Reason = storage.ReasonCrashes
		case 'k':
			e.State, e.Reason = storage.Dead, storage.ReasonKind
		}
		c.Ended = append(c.Ended, e)
	}
	return !r.bad
}

// allocate makes the slices for the tasks that were taken.
func (c *claimAnswer) allocate() {
	n := min(max(c.taken, 0), storage.MaxClaim)
	c.Grow(n)
	c.Fences = make([]storage.Fence, 0, n)
}

// haul is the part of a reply that has the tasks that a claim took.
type haul struct {
	queues  []takenOf
	lengths reader // of the records, in 4 bytes each
	records reader // the rest of the text with the next records
	pieces  reply  // texts with further records, several records in each
	special []any  // the lists of queues in which something is rare: see claim.lua
	shared  batch
}

// takenOf are the tasks that were taken from one queue: their ids with commas between.
type takenOf struct {
	ids   string
	count int
}

// haulOf parses the part of a reply behind its numbers: text, and the rest of the list.
func haulOf(text string, list []any, queues int) *haul {
	h := &haul{queues: make([]takenOf, queues)}
	r, all := reader{rest: text}, 0
	sizes := reader{rest: r.text(12 * queues)}
	for i := range h.queues {
		h.queues[i].count = int(sizes.digits(4))
		h.queues[i].ids = r.text(int(sizes.digits(8)))
		all += h.queues[i].count
	}
	h.lengths.rest = r.text(4 * all)
	h.records = r
	h.records.bad = r.bad || sizes.bad
	from := slices.IndexFunc(list, func(v any) bool { _, rare := v.([]any); return rare })
	if from < 0 {
		from = len(list)
	}
	h.pieces.list, h.special = list[:from], list[from:]
	h.shared.left = h.pieces.size() + len(r.rest)
	return h
}

// bad reports whether the reply could not be parsed.
func (h *haul) bad() bool { return h.lengths.bad || h.records.bad || h.pieces.bad }

// next returns the next record.
func (h *haul) next() string {
	if h.records.rest == "" {
		h.records.rest = h.pieces.text()
	}
	return h.records.text(int(h.lengths.number(4)))
}

// rare returns the parts of a reply about the i-th queue besides its tasks. info has for each task whether
// it started and until when it is leased, and is empty if all tasks are alike. ticks has id and record of
// each cursor that ticks. last has the result of maintenance. lines has "b" if the limit of the queue admits
// no task of the claim or not the task that comes next, and "h" if tasks wait because their partition is at
// its Concurrency. Else it is the field lines of the queue if that has no declined task of the claim's
// kinds. All are empty if the reply has no list for the queue.
func (h *haul) rare(i int) (info reader, ticks *reply, last, lines string) {
	if len(h.special) == 0 {
		return reader{}, &reply{}, "", ""
	}
	list, _ := h.special[0].([]any)
	v := values(list)
	if v.number() != int64(i) {
		return reader{}, &reply{}, "", ""
	}
	h.special = h.special[1:]
	info, ticks, last, lines = reader{rest: v.text()}, v.sublist(), v.text(), v.text()
	h.pieces.bad = h.pieces.bad || v.bad
	return info, ticks, last, lines
}

// read adds the tasks of one queue to the answer, and the tasks that cannot be read to damaged.
func (c *claimAnswer) read(
	req *storage.ClaimRequest, a ask, fence storage.Fence, h *haul, q takenOf, info reader,
) {
	known := info.rest != ""
	lease := moment(c.Now.UnixMicro() + req.Lease.Microseconds())
	claimed := moment(fence.Version)
	if claimed.Sub(c.Now) >= jumpBack {
		claimed = c.Now
	}
	for range q.count {
		at := len(c.Tasks) + len(c.damaged)
		fence.ID, q.ids, _ = strings.Cut(q.ids, ",")
		started, until := at < a.start, lease
		if known {
			started, until, claimed = info.text(1) == "1", moment(info.number(7)), moment(info.number(7))
		}
		c.Tasks = append(c.Tasks, storage.Task{Ref: fence.Ref})
		t := &c.Tasks[len(c.Tasks)-1]
		aside, err := h.shared.readRecord(h.next(), t)
		if err != nil || storage.CheckRef(fence.Ref) != nil {
			c.Tasks = c.Tasks[:len(c.Tasks)-1]
			c.damaged = append(c.damaged, fenced{fence.Queue, fence.ID, packFence(&fence)})
			continue
		}
		t.State, t.Version, t.Runner = storage.Pending, fence.Version, req.Runner
		t.LeaseUntil, t.Started, t.Claimed = until, started, claimed
		c.Fences = append(c.Fences, fence)
		if aside > 0 {
			if c.aside == nil {
				c.aside = make(map[int]int64)
			}
			c.aside[len(c.Tasks)-1] = aside
		}
	}
	h.pieces.bad = h.pieces.bad || q.ids != "" || info.bad
}

// readTicks adds the cursors of one queue that tick to the answer. It leaves out cursors that it cannot
// read.
func (c *claimAnswer) readTicks(queue string, ticks *reply) {
	for len(ticks.list) > 0 && !ticks.bad {
		t := storage.Task{Ref: storage.Ref{Queue: queue, ID: ticks.text()}, State: storage.Cursors}
		if err := readRecord(ticks.text(), &t); err == nil && t.Cursor != nil {
			c.Ticks = append(c.Ticks, t)
		}
	}
}

// take adds the answer of one script call to the claim.
func (c *claiming) take(a *claimAnswer) {
	if len(c.Tasks) == 0 {
		c.Tasks, c.Fences = a.Tasks, a.Fences
	} else {
		c.Tasks = append(c.Tasks, a.Tasks...)
		c.Fences = append(c.Fences, a.Fences...)
	}
	c.Ticks = append(c.Ticks, a.Ticks...)
	c.Ended = append(c.Ended, a.Ended...)
	c.Cancels = c.Cancels || a.Cancels
	c.Bounded, c.Held = union(c.Bounded, a.Bounded), union(c.Held, a.Held)
	c.left = max(c.left-a.taken, 0)
	c.start = max(c.start-a.taken, 0)
	c.suspect = c.suspect || a.suspect
	c.more = c.more || a.more
	c.remains = c.remains || a.remains
	c.forget = append(c.forget, a.forget...)
	c.mended = append(c.mended, a.mended...)
	c.damaged = append(c.damaged, a.damaged...)
	// The clocks of slots may differ: NextDue is a moment of the clock of its own slot.
	due := c.Now.Add(a.NextDue.Sub(a.Now))
	if a.Now.After(c.Now) {
		if !c.NextDue.IsZero() {
			c.NextDue = c.NextDue.Add(a.Now.Sub(c.Now))
		}
		c.Now, due = a.Now, a.NextDue
	}
	if !a.NextDue.IsZero() && (c.NextDue.IsZero() || due.Before(c.NextDue)) {
		c.NextDue = due
	}
}

// union adds the queues of more to names. A second round may name a queue again.
func union(names, more []string) []string {
	for _, queue := range more {
		if !slices.Contains(names, queue) {
			names = append(names, queue)
		}
	}
	return names
}

// finish sets More, sets damaged tasks apart and forgets abandoned queues.
func (c *claiming) finish(ctx context.Context) {
	c.More = c.more || c.remains && c.req.Most() > 0
	for _, f := range c.damaged {
		_, _ = c.storage.scripts.apart.run(ctx, c.storage.client, c.storage.keys.of(f.queue, nil), f.fence, f.id)
		c.More = true // other tasks could have been taken in its place
	}
	for _, queue := range c.forget {
		c.storage.forget(ctx, queue)
	}
}
