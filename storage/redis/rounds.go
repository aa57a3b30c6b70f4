package redis

import (
	"context"
	"slices"
	"sync"

	"github.com/midgehq/midge/storage"
)

// share asks all groups at the same time for a share each. Then it asks the groups that have more, one
// after the other, for the tasks that are still wanted.
func (c *claiming) share(ctx context.Context, groups []*group) error {
	answers := make([]*claimAnswer, len(groups))
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for i, a := range c.shares(groups) {
		all.Go(func() { answers[i], errs[i] = c.storage.askSound(ctx, c.req, a) })
	}
	all.Wait()
	repeated := len(groups) > 0
	for _, answer := range answers {
		if answer != nil {
			c.take(answer)
			repeated = repeated && answer.repeated
		}
	}
	if err := gravest(errs); err != nil {
		return c.failed(err, slices.Contains(errs, nil))
	}
	c.remains = repeated // tasks may have come since the first try, and the round below takes none
	for i, g := range groups {
		a := ask{g, c.groups + g.index, c.left, min(c.start, c.left), leave}
		if repeated { // only returns what the second round of the first try took here
			a.most, a.start = 0, 0
		} else if !c.asksAgain(&a, answers[i]) {
			continue
		}
		answer, err := c.storage.askSound(ctx, c.req, a)
		if err != nil {
			return c.failed(err, true)
		}
		c.take(answer)
	}
	return nil
}

// asksAgain reports whether a group has to be asked in the second round, and completes the ask a by
// the group's answer in the first round. A group that repeated an earlier try is not asked again: it
// has returned its share, that try did not reach the second round, and nobody knows how many of the
// tasks that it took have ended since.
func (c *claiming) asksAgain(a *ask, gave *claimAnswer) bool {
	wanted := c.req.Suspect && !c.suspect && a.start > 0
	rest, full := a.group.less(gave)
	c.remains = c.remains || gave.remains && (c.left == 0 || gave.repeated || full > 0)
	if wanted {
		a.suspect = give
	}
	a.group = rest
	return c.left > 0 && !gave.repeated && full < len(rest.queues) && (gave.remains || wanted && gave.suspects)
}

// less returns the group with the limits that are left to its queues after an answer. A queue whose
// limit is used up is only maintained; full counts these queues.
func (g *group) less(gave *claimAnswer) (rest *group, full int) {
	took := make(map[string]int)
	for i := range gave.Tasks {
		took[gave.Tasks[i].Queue]++
	}
	for i := range gave.damaged {
		took[gave.damaged[i].queue]++
	}
	rest = &group{queues: slices.Clone(g.queues), index: g.index, home: g.home, places: g.places}
	for i := range rest.queues {
		q := &rest.queues[i]
		if q.Max > 0 {
			if q.Max -= took[q.Name]; q.Max <= 0 {
				q.Max = storage.MaxFull
				full++
			}
		}
	}
	return rest, full
}

// shares divides the tasks that the claim asks for among the groups. One of the groups that start
// tasks may take a suspect; it is random, but the same in a repeat.
func (c *claiming) shares(groups []*group) []ask {
	asks := make([]ask, len(groups))
	left, starting := c.start, 0
	for i, g := range groups {
		most := (c.req.Most() + len(groups) - 1 - i) / len(groups)
		asks[i] = ask{g, g.index, most, min(left, most), leave}
		if c.req.Suspect {
			asks[i].suspect = tell
		}
		if left -= asks[i].start; asks[i].start > 0 {
			starting++
		}
	}
	if c.req.Suspect && starting > 0 {
		asks[int(c.req.Token[0])%starting].suspect = give
	}
	return asks
}
