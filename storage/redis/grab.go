package redis

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/midgehq/midge/storage"
)

// calm says of which queues the last claim found nothing but plain tasks that wait or are
// pending: the next one will go by the short script. Where that was in vain it is not
// tried again for a while, for there are queues that change all the time.
type calm struct {
	mu     sync.Mutex     // guards queues
	queues map[string]int // 1 where calm, below 0 for how many claims it will not be
}

const (
	calmAgain = 8     // claims by the general script after one that was in vain
	calmMost  = 4_096 // queues remembered: queues come and go, and to forget one costs one claim
)

// saw takes note of what a claim by the general script found.
func (c *calm) saw(queue string, calm bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch n := c.queues[queue]; {
	case calm && n <= 0:
		c.setLocked(queue, n+1)
	case !calm && n > 0:
		c.setLocked(queue, 0)
	}
}

// vain takes note of a short script that left a claim: it does not tell for which queue.
func (c *calm) vain(queues []storage.ClaimQueue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range queues {
		c.setLocked(queues[i].Name, -calmAgain)
	}
}

func (c *calm) setLocked(queue string, n int) {
	if n == 0 {
		delete(c.queues, queue)
		return
	}
	if _, known := c.queues[queue]; c.queues == nil || !known && len(c.queues) >= calmMost {
		c.queues = make(map[string]int)
	}
	c.queues[queue] = n
}

// are reports whether all queues are calm, and tasks may be taken from them.
func (c *calm) are(queues []storage.ClaimQueue) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(queues, func(q storage.ClaimQueue) bool {
		return q.Max < 0 || c.queues[q.Name] <= 0
	})
}

// grabs reports whether a claim goes by a short script, which leaves the first call of a lane.
func (s *Storage) grabs(req *storage.ClaimRequest, a ask) bool {
	return a.most > 0 && req.Call.Seq > 1 && s.calm.are(a.group.queues)
}

// grabArgs gives a short script, its keys and arguments.
func (s *Storage) grabArgs(req *storage.ClaimRequest, a ask) (sc *script, keys, args []any) {
	queues, most := a.group.queues, a.most
	if len(queues) == 1 {
		most = min(most, cmp.Or(queues[0].Max, most))
	}
	args = append(make([]any, 0, 8+len(queues)), laneArgs(req.Call, a.index)...)
	args = append(args, req.Token[:], req.Runner, most-1, a.start, req.Lease.Microseconds())
	keys = make([]any, 0, 9*len(queues)+1)
	for i := range queues {
		keys = s.keys.some(queues[i].Name, keys,
			metaKey, tasksKey, pendingKey, waitingKey, lineKey, voidsKey, leasesKey, claimsKey, windowsKey)
	}
	keys = s.keys.some(queues[0].Name, keys, lanesKey)
	if len(queues) == 1 {
		return &s.scripts.grab, keys, args
	}
	for i := range queues {
		args = append(args, cmp.Or(queues[i].Max, most))
	}
	return &s.scripts.glean, keys, args
}

// readGrab reads the reply of a short script.
func (s *Storage) readGrab(req *storage.ClaimRequest, a ask, reply any) (*claimAnswer, error) {
	pieces, _ := reply.([]any)
	head, ok := reply.(string)
	if len(pieces) > 0 {
		head, ok = pieces[0].(string)
		pieces = pieces[1:]
	}
	r := reader{rest: head, bad: !ok}
	version, flags := r.number(7), r.number(1)
	now, err := strconv.ParseInt(r.until(';'), 10, 64)
	r.bad = r.bad || err != nil
	answer := &claimAnswer{remains: flags&1 > 0}
	answer.Now, answer.Cancels = moment(now), flags&2 > 0
	ids := make([]string, len(a.group.queues))
	for i := range ids {
		ids[i] = r.until(';')
		answer.taken += countIDs(ids[i])
	}
	answer.allocate()
	h := haul{wide: 2}
	if flags&4 > 0 {
		h.lengths.rest = strings.Repeat(r.text(h.wide), answer.taken)
	} else {
		h.lengths.rest = r.text(h.wide * answer.taken)
	}
	r.bad = r.text(1) != ";" || r.bad
	if h.pieces.list = pieces; len(pieces) == 0 {
		h.pieces.list = []any{r.rest}
	}
	for i := range ids {
		h.ids, h.count = ids[i], countIDs(ids[i])
		r.bad = !answer.read(req, a, a.group.queues[i].Name, version, &h) || r.bad
	}
	if r.bad {
		return nil, fmt.Errorf("%w: a claim of another shape", errReply)
	}
	return answer, nil
}

// countIDs counts ids with commas between.
func countIDs(ids string) int {
	if ids == "" {
		return 0
	}
	return strings.Count(ids, ",") + 1
}
