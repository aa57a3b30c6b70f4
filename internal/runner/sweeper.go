package runner

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// sweeper is the actor that maintains the queues that its runner does not serve: tasks there also
// fall due and lose their leases, though no runner claims. The live runners divide the queues among
// them without a leader, so that each queue is swept by one runner at a time.
type sweeper struct {
	*shared

	queues    *queues
	schedules *schedules
	pulse     *pulse
}

// A turn takes sweepPace for each queue that exists, whoever sweeps it, within bounds, so that all
// runners together ask for about a hundred queues a second at most. Each queue has its turn within
// five minutes, even if its runner died: the queues of that runner go to the others when its
// heartbeat expires.
const (
	sweepPace  = 10 * time.Millisecond
	sweepLeast = 30 * time.Second
	sweepMost  = 4 * time.Minute
	sweepSize  = 50 // queues of one call
	sweepOpen  = 50 // calls that are assembled at a time
)

// loop sweeps, turn after turn, until ctx ends.
func (s *sweeper) loop(ctx context.Context) {
	defer s.pulse.ends()
	for length := sweepLeast; sleep.For(ctx, jitter(length)); {
		length = s.turn(ctx)
	}
}

// turn sweeps this runner's share of the queues once, in calls spread evenly over the turn, and
// returns the gap until the next turn. A call does not wait for an earlier one that gets no answer.
func (s *sweeper) turn(ctx context.Context) time.Duration {
	calls, length := s.share(ctx)
	gap := length / time.Duration(max(len(calls), 1))
	var underWay sync.WaitGroup
	defer underWay.Wait()
	begun := time.Now()
	for i, queues := range calls {
		if !sleep.For(ctx, time.Until(begun.Add(gap*time.Duration(i)))) {
			break
		}
		underWay.Go(func() { s.maintain(ctx, queues) })
	}
	return gap
}

// share returns the queues that this runner sweeps, grouped into calls that each stay within a
// shard, and how long the turn takes.
func (s *sweeper) share(ctx context.Context) (calls [][]string, length time.Duration) {
	var open [][]string    // calls with room for more queues
	var runners []string   // the live ones, read if there is a queue to share
	all, known := 0, false // how many queues there are, and whether runners was read
	for name, err := range storage.EachQueue(ctx, s.store, "") {
		if err != nil {
			s.trouble(ctx, "list the queues", err)
			return nil, sweepLeast
		}
		all++
		if s.queues.maintains(name) {
			continue
		}
		if !known {
			if runners, err = storage.RunnerIDs(ctx, s.store); err != nil {
				s.trouble(ctx, "list the runners", err)
				return nil, sweepLeast
			}
			known = true
		}
		if !s.sweeps(name, runners) {
			continue
		}
		at := slices.IndexFunc(open, func(queues []string) bool {
			return storage.Spans(s.store, queues[0], name)
		})
		if at < 0 {
			at, open = len(open), append(open, nil)
		}
		if open[at] = append(open[at], name); len(open[at]) == sweepSize {
			calls, open = append(calls, open[at]), slices.Delete(open, at, at+1)
		}
		if len(open) > sweepOpen {
			calls, open = append(calls, open[0]), slices.Delete(open, 0, 1)
		}
	}
	return append(calls, open...), min(max(time.Duration(all)*sweepPace, sweepLeast), sweepMost)
}

// sweeps reports whether this runner, of all live ones, sweeps a queue. Each queue assigns every
// runner a weight, and the heaviest runner sweeps it. So a runner that comes or goes moves only its
// own queues (rendezvous hashing).
func (s *sweeper) sweeps(queue string, runners []string) bool {
	own := weight(s.id, queue)
	return !slices.ContainsFunc(runners, func(other string) bool { return weight(other, queue) > own })
}

// weight returns the weight of a runner for a queue, which is the same on every runner. It is a cryptographic
// sum, because the weights of queues with similar names must be independent: with FNV, whose upper bits
// hardly change with the last characters, one runner of two often swept all of them.
func weight(runner, queue string) uint64 {
	sum := sha256.Sum256([]byte(runner + "\x00" + queue))
	return binary.BigEndian.Uint64(sum[:])
}

// maintain maintains queues of one shard. If the runner serves queues of that shard, its contact decides
// which leases may be recovered. Otherwise a second claim recovers the leases that had ended when the first
// one was answered. If the storage does not answer, the queues are left for the next sweep.
func (s *sweeper) maintain(ctx context.Context, queues []string) {
	if d := s.queues.claiming(queues[0]); d != nil {
		s.claim(ctx, queues, d.contact.recoverBefore(s.elapsed()))
	} else if now, ok := s.claim(ctx, queues, longAgo()); ok && sleep.For(ctx, recoveryPause) {
		s.claim(ctx, queues, now)
	}
}

// claim maintains queues and recovers leases that ended before a moment. It returns the storage's time.
func (s *sweeper) claim(ctx context.Context, queues []string, before time.Time) (now time.Time, ok bool) {
	req := storage.ClaimRequest{Runner: s.id, RecoverBefore: before}
	for _, q := range queues {
		req.Queues = append(req.Queues, storage.ClaimQueue{Name: q, Max: storage.MaxNone})
	}
	claimed, err := s.beats.Claim(ctx, req)
	if err != nil {
		s.trouble(ctx, "maintain queues", err)
		return now, false
	}
	s.tellEnded(claimed.Ended)
	s.schedules.tick(ctx, s.pulse, s.beats, dueCursors(claimed))
	return claimed.Now, true
}

func (s *sweeper) trouble(ctx context.Context, action string, err error) {
	if ctx.Err() == nil {
		s.log.trouble(action, err)
	}
}
