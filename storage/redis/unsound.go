package redis

import (
	"context"
	"fmt"
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
	mu     sync.Mutex // guards queues and split
	queues map[string]unsoundness
	split  map[splitCall]uint64 // the numbers of calls whose queues were asked one by one
}

// splitCall identifies a script call of a claim by its lane and its index in the lane field.
type splitCall struct {
	lane  [16]byte
	index int
}

type unsoundness struct {
	why   string
	again time.Time
}

// unsoundAgain is how long claims leave a damaged queue alone.
const unsoundAgain = 30 * time.Second

// sort returns the groups without their unsound queues, then a group of its own for each unsound queue
// that is due for another try. A group keeps its index and its queues keep their places, whichever
// queues are left out, so that a repeat asks as the first try did.
func (u *unsound) sort(groups []*group) []*group {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.queues) == 0 {
		return groups
	}
	var sound, again []*group
	for _, g := range groups {
		rest := &group{index: g.index}
		for i, q := range g.queues {
			is, damaged := u.queues[q.Name]
			switch {
			case !damaged:
				rest.queues, rest.places = append(rest.queues, q), append(rest.places, i)
			case !time.Now().Before(is.again):
				again = append(again, g.only(i))
			}
		}
		if len(rest.queues) > 0 {
			sound = append(sound, rest)
		}
	}
	return append(sound, again...)
}

// only returns a group of only the i-th queue.
func (g *group) only(i int) *group {
	return &group{queues: g.queues[i : i+1], index: apartIndex(g.index, g.place(i))}
}

// mostSplit bounds the size of unsound.split: the lanes of old calls are no longer in use.
const mostSplit = 1000

// splits notes that the queues of a script call are asked one by one.
func (u *unsound) splits(call storage.Call, index int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.split == nil || len(u.split) == mostSplit {
		u.split = make(map[splitCall]uint64)
	}
	u.split[splitCall{call.Lane.ID, index}] = call.Seq
}

// wasSplit reports whether a script call repeats one that splits noted.
func (u *unsound) wasSplit(call storage.Call, index int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	seq, known := u.split[splitCall{call.Lane.ID, index}]
	return known && seq == call.Seq && !call.IsZero()
}

func (u *unsound) note(queue, why string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.queues == nil {
		u.queues = make(map[string]unsoundness)
	}
	u.queues[queue] = unsoundness{why, time.Now().Add(unsoundAgain)}
}

// mended notes that a queue is sound again.
func (u *unsound) mended(queue string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.queues, queue)
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

// askSound makes the script call of an ask. If the call fails because of a damaged queue, askSound
// asks the queues one by one: the damaged queue gives nothing, and each other queue costs a call.
func (s *Storage) askSound(ctx context.Context, req *storage.ClaimRequest, a ask) (*claimAnswer, error) {
	if s.unsound.wasSplit(req.Call, a.index) {
		return s.askEach(ctx, req, a)
	}
	answer, err := s.askFor(ctx, req, a)
	queues := a.group.queues
	switch {
	case len(queues) > 1 && spoiled(err):
		s.unsound.splits(req.Call, a.index)
		return s.askEach(ctx, req, a)
	case spoiled(err):
		s.unsound.note(queues[0].Name, s.inspect(ctx, queues[0].Name, err))
		return &claimAnswer{}, nil
	case err == nil && len(queues) == 1:
		s.unsound.mended(queues[0].Name)
	}
	return answer, err
}

// askEach asks the queues of a group one after the other.
func (s *Storage) askEach(ctx context.Context, req *storage.ClaimRequest, a ask) (*claimAnswer, error) {
	all := &claimAnswer{}
	for i := range a.group.queues {
		one := a
		one.group = a.group.only(i)
		one.index = apartIndex(a.index, a.group.place(i))
		one.most, one.start = a.most-all.taken, max(a.start-all.taken, 0)
		if all.suspect {
			one.suspect = leave
		}
		answer, err := s.askSound(ctx, req, one)
		if err != nil && all.Now.IsZero() { // no queue before it gave an answer, so nothing was claimed
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

// inspect returns what is wrong with a queue that made a script fail: the bad keys and fields, or
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
		if !spoiled(p.err) {
			sound = append(sound, p)
			continue
		}
		for _, u := range p.units {
			for _, i := range u.txs {
				err := s.applyApart(ctx, call, apartIndex(len(parts), i), txs[i:i+1], applied[i:i+1])
				if err != nil && !spoiled(err) {
					return nil, inPart(err)
				}
				if err != nil {
					applied[i].Err = err
				}
			}
		}
	}
	return sound, nil
}

// applyApart carries out one Tx in a script call with this index.
func (s *Storage) applyApart(
	ctx context.Context, call storage.Call, index int, tx []storage.Tx, applied []storage.Applied,
) error {
	parts, _ := s.split(call, tx)
	parts[0].id = identityOf(call, index)
	return s.carryOut(ctx, call, parts, tx, applied)
}

// extendEach extends the leases of a batch queue by queue, after a damaged queue made the batch fail.
// It reports the leases of a damaged queue as Locked. It returns the queue's error where one of these
// extensions has a progress or checkpoint to write.
func (s *Storage) extendEach(
	ctx context.Context, req *storage.ExtendRequest, index int, leases []storage.Extension, to *storage.Extended,
) error {
	for i, some := range byQueue(leases) {
		err := s.extendBatch(ctx, req, apartIndex(index, i), some, to)
		if err == nil {
			continue
		}
		if !spoiled(err) {
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
