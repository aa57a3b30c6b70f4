package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// unsound has the queues with a key or field that scripts cannot read. Each script call that names
// such a queue fails for its other queues too. So claims leave the queue alone, and try it by itself
// once in a while (unsoundAgain). Describe warns of it.
type unsound struct {
	mu     sync.Mutex // guards queues and lost
	queues map[string]unsoundness
	lost   map[[16]byte]lostClaim // by lane
}

// lostClaim is a claim with an unknown outcome that has asked some queues in script calls of their own. A
// repeat of it asks them so again, even if another claim has found them mended since.
type lostClaim struct {
	seq    uint64
	queues []string
	at     time.Time
}

type unsoundness struct {
	why   string
	again time.Time
}

// unsoundAgain is how long claims leave a damaged queue alone.
const unsoundAgain = 30 * time.Second

// sort returns the groups without their unsound queues, then a group of its own for each unsound queue
// that is due for another try, and for each queue that the try of this call before asked by itself. A group
// keeps its index and home, and its queues keep their places, whichever queues are left out, so that a repeat
// finds the outcome of the first try, for these queues.
func (u *unsound) sort(call storage.Call, groups []*group) []*group {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.queues)+len(u.lost) == 0 {
		return groups
	}
	before := u.lost[call.Lane.ID]
	delete(u.lost, call.Lane.ID)
	if before.seq != call.Seq {
		before.queues = nil
	}
	var sound, again []*group
	for _, g := range groups {
		rest := &group{index: g.index, home: g.home}
		for i, q := range g.queues {
			is, damaged := u.queues[q.Name]
			switch {
			case damaged && !time.Now().Before(is.again), slices.Contains(before.queues, q.Name):
				again = append(again, g.only(i))
			case !damaged:
				rest.queues, rest.places = append(rest.queues, q), append(rest.places, i)
			}
		}
		if len(rest.queues) > 0 {
			sound = append(sound, rest)
		}
	}
	return append(sound, again...)
}

// lose notes that a claim of these groups failed, and that an earlier try of it may have happened. It forgets
// the claims that nobody repeats any more.
func (u *unsound) lose(call storage.Call, groups []*group) {
	claim := lostClaim{seq: call.Seq, at: time.Now()}
	for _, g := range groups {
		if g.index >= apartIndex(0, 0) {
			claim.queues = append(claim.queues, g.queues[0].Name)
		}
	}
	if len(claim.queues) == 0 || call.IsZero() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lost == nil {
		u.lost = make(map[[16]byte]lostClaim)
	}
	maps.DeleteFunc(u.lost, func(_ [16]byte, c lostClaim) bool { return claim.at.Sub(c.at) > storage.LaneLife })
	u.lost[call.Lane.ID] = claim
}

// only returns a group of only the i-th queue.
func (g *group) only(i int) *group {
	q := g.queues[i : i+1]
	return &group{queues: q, index: apartIndex(g.index, g.place(i)), home: q[0].Name}
}

func (u *unsound) note(queue, why string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.queues == nil {
		u.queues = make(map[string]unsoundness)
	}
	u.queues[queue] = unsoundness{why, time.Now().Add(unsoundAgain)}
}

// mended notes that queues are sound again. A claim notes it once it has succeeded, because a repeat of it
// asks these queues as the first try did.
func (u *unsound) mended(queues []string) {
	if len(queues) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, queue := range queues {
		delete(u.queues, queue)
	}
}

// warnings returns a warning for each unsound queue, sorted.
func (u *unsound) warnings() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]string, 0, len(u.queues))
	for queue, is := range u.queues {
		all = append(all, fmt.Sprintf("queue %s is damaged and left alone: %s", queue, is.why))
	}
	slices.Sort(all)
	return all
}

// errDivided is the error of a script call that was divided. Of a Tx it means that the Tx did not happen.
var errDivided = fmt.Errorf("%w in a queue of the call when it was made first", storage.ErrDamaged)

// divides reports whether an error of a script call of several queues or Txs demands a script call for each.
func divides(err error) bool { return spoiled(err) || errors.Is(err, errDivided) }

// divide notes on the server that a script call that failed with err is divided and will never happen. If an
// earlier try has happened, divide returns its outcome instead.
func (s *Storage) divide(ctx context.Context, id identity, home string, err error) (outcome string, _ error) {
	if errors.Is(err, errDivided) || id.seq == 0 {
		return "", nil
	}
	reply, err := s.scripts.divide.run(ctx, s.client, s.keys.of(home, nil), id.append(nil)...)
	if err != nil {
		return "", err
	}
	text, _ := reply.(string)
	if err := verdict(first(text)); err != nil && !errors.Is(err, errDivided) {
		return "", err
	}
	return text[1:], nil
}

// askSound makes the script call of an ask. If the call fails because of a damaged queue, askSound
// asks the queues one by one: the damaged queue yields nothing, and each other queue costs a call.
func (s *Storage) askSound(ctx context.Context, req *storage.ClaimRequest, a ask) (*claimAnswer, error) {
	answer, err := s.askFor(ctx, req, a)
	queues := a.group.queues
	switch {
	case len(queues) > 1 && spoiled(err) || errors.Is(err, errDivided):
		outcome, err := s.divide(ctx, identityOf(req.Call, a.index), a.group.home, err)
		if err != nil && !spoiled(err) {
			return nil, err
		}
		return s.askEach(ctx, req, a, outcome != "")
	case spoiled(err):
		s.unsound.note(queues[0].Name, s.inspect(ctx, queues[0].Name, err))
		return &claimAnswer{}, nil
	case err == nil && a.index >= apartIndex(0, 0):
		answer.mended = append(answer.mended, queues[0].Name)
	}
	return answer, err
}

// askEach asks the queues of a group one after the other, each for its part of the outcome if the ask
// happened.
func (s *Storage) askEach(
	ctx context.Context, req *storage.ClaimRequest, a ask, happened bool,
) (*claimAnswer, error) {
	all := &claimAnswer{}
	for i := range a.group.queues {
		one := a
		one.group = a.group.only(i)
		if happened {
			one.group.home, one.group.places = a.group.home, []int{a.group.place(i)}
		} else {
			one.index = apartIndex(a.index, a.group.place(i))
		}
		one.most, one.start = a.most-all.taken, max(a.start-all.taken, 0)
		if all.suspect {
			one.suspect = leave
		}
		answer, err := s.askSound(ctx, req, one)
		if err != nil && all.Now.IsZero() { // no queue before it has an answer, so nothing was claimed
			return nil, err
		}
		if err != nil {
			return nil, inPart(err)
		}
		all.add(answer)
	}
	return all, nil
}

// apartIndex returns the index in the lane field of the i-th of the script calls that replace a spoiled
// script call with this index.
func apartIndex(index, i int) int { return (i+1)<<16 + index }

// add adds the answer of another queue.
func (c *claimAnswer) add(a *claimAnswer) {
	c.Tasks, c.Fences = append(c.Tasks, a.Tasks...), append(c.Fences, a.Fences...)
	c.Ticks, c.Ended = append(c.Ticks, a.Ticks...), append(c.Ended, a.Ended...)
	c.forget, c.damaged = append(c.forget, a.forget...), append(c.damaged, a.damaged...)
	c.mended = append(c.mended, a.mended...)
	c.Bounded, c.Held = append(c.Bounded, a.Bounded...), append(c.Held, a.Held...)
	c.taken += a.taken
	c.Cancels, c.suspect, c.suspects = c.Cancels || a.Cancels, c.suspect || a.suspect, c.suspects || a.suspects
	c.more, c.remains, c.repeated = c.more || a.more, c.remains || a.remains, c.repeated || a.repeated
	if !a.NextDue.IsZero() && (c.NextDue.IsZero() || a.NextDue.Before(c.NextDue)) {
		c.NextDue = a.NextDue
	}
	if a.Now.After(c.Now) {
		c.Now = a.Now
	}
}

// inspect returns the faults of a queue that made a script fail: the bad keys and fields, or
// else the text of the script's error.
func (s *Storage) inspect(ctx context.Context, queue string, spoil error) string {
	list, err := s.scripts.inspect.list(ctx, s.client, s.keys.of(queue, nil))
	v := values(list)
	var found []string
	for err == nil && len(v.list) > 0 && !v.bad {
		found = append(found, v.text())
	}
	if len(found) == 0 {
		return spoil.Error()
	}
	return strings.Join(found, "; ")
}

// applyEach carries out one after the other the Txs of the parts that failed because of a damaged
// queue. Only the Txs that name the damaged queue get its error. applyEach returns the parts that did
// not fail in this way.
func (s *Storage) applyEach(
	ctx context.Context, call storage.Call, parts []*part, txs []storage.Tx, applied []storage.Applied,
) (sound []*part, err error) {
	for _, p := range parts {
		if !s.divided(ctx, p) {
			sound = append(sound, p)
			continue
		}
		for _, u := range p.units {
			for _, i := range u.txs {
				err := s.applyApart(ctx, call, apartIndex(len(parts), i), txs[i:i+1], applied[i:i+1])
				if err != nil {
					return nil, inPart(err)
				}
			}
		}
	}
	return sound, nil
}

// divided divides a part that failed because of a damaged queue, and reports whether it is divided. If not,
// the part has its outcome or error.
func (s *Storage) divided(ctx context.Context, p *part) bool {
	err := p.err
	if err == nil && p.outcome != "" {
		err = verdict(p.outcome[0])
	}
	if !divides(err) {
		return false
	}
	if p.outcome, p.err = s.divide(ctx, p.id, p.queues[0], err); p.outcome != "" {
		p.outcome = "R" + p.outcome
	}
	return p.err == nil && p.outcome == ""
}

// applyApart carries out one Tx in a script call with this index. If its queue is damaged, the Tx has that
// error, in all repeats too.
func (s *Storage) applyApart(
	ctx context.Context, call storage.Call, index int, tx []storage.Tx, applied []storage.Applied,
) error {
	parts, _ := s.split(call, tx)
	p := parts[0]
	p.id = identityOf(call, index)
	if err := s.send(ctx, call, parts); err != nil {
		return err
	}
	failed := p.err
	if s.divided(ctx, p) {
		applied[0].Err = cmp.Or(failed, errDivided)
		return nil
	}
	return gather(parts, tx, applied)
}

// extendEach extends the leases of a batch queue by queue, after a damaged queue made the batch fail with
// err, unless an earlier try has extended them. It reports the leases of a damaged queue as Locked. It
// returns the queue's error if one of these extensions has a progress or checkpoint to write. A batch of
// one queue is not sent again: it would come from another lane, and might replace what a later Extend has
// written.
func (s *Storage) extendEach(
	ctx context.Context, req *storage.ExtendRequest, index int, leases []storage.Extension, failed error,
	to *storage.Extended,
) error {
	outcome, err := s.divide(ctx, identityOf(req.Call, index), leases[0].Fence.Queue, failed)
	if err != nil && !spoiled(err) {
		return err
	}
	if rest, happened := strings.CutPrefix(outcome, "X"); happened {
		r := reader{rest: rest}
		now := r.number(7)
		return readMarks(now, r.rest, leases, to)
	}
	queues := byQueue(leases)
	for i, some := range queues {
		err := failed
		if len(queues) > 1 {
			err = s.extendBatch(ctx, req, apartIndex(index, i), some, to)
		}
		if err == nil {
			continue
		}
		if !divides(err) {
			return inPart(err)
		}
		for _, e := range some {
			if e.Progress != nil || e.Checkpoint != nil {
				return err
			}
			to.Locked = append(to.Locked, e.Fence.Ref)
		}
	}
	return nil
}

// byQueue splits leases by queue. It keeps their order.
func byQueue(leases []storage.Extension) (all [][]storage.Extension) {
	at := make(map[string]int)
	for _, e := range leases {
		n, some := at[e.Fence.Queue]
		if !some {
			n = len(all)
			at[e.Fence.Queue], all = n, append(all, nil)
		}
		all[n] = append(all[n], e)
	}
	return all
}
