package redis

import (
	"context"
	"slices"
	"sync"
)

// share asks all groups at once, each for a share, and then those that have more for
// what the others left.
func (c *claiming) share(ctx context.Context, groups []*group) error {
	answers := make([]*claimAnswer, len(groups))
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for i, a := range c.shares(groups) {
		all.Go(func() { answers[i], errs[i] = c.storage.askSound(ctx, c.req, a) })
	}
	all.Wait()
	repeated := true
	for _, answer := range answers {
		if answer != nil {
			c.take(answer)
			repeated = repeated && answer.repeated
		}
	}
	if err := gravest(errs); err != nil {
		return c.failed(err, slices.Contains(errs, nil))
	}
	c.remains = false
	for i, g := range groups {
		a := ask{g, c.groups + g.index, c.left, min(c.start, c.left), leave}
		if repeated { // give what the first try took here, and no more
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

// asksAgain reports whether a group is to be asked in the second round, after what it gave in
// the first, and for what. One that repeated an earlier try has had its share: that try came to
// no second round, and what has ended since then of what it took nobody knows.
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

// less is the group after an answer: a queue may give what is left of its most, or is only
// maintained where that is nothing. full counts the latter.
func (g *group) less(gave *claimAnswer) (rest *group, full int) {
	took := make(map[string]int)
	for i := range gave.Tasks {
		took[gave.Tasks[i].Queue]++
	}
	for i := range gave.damaged {
		took[gave.damaged[i].queue]++
	}
	rest = &group{queues: slices.Clone(g.queues), index: g.index, places: g.places}
	for i := range rest.queues {
		q := &rest.queues[i]
		if q.Max > 0 {
			if q.Max -= took[q.Name]; q.Max <= 0 {
				q.Max = -1
				full++
			}
		}
	}
	return rest, full
}

// shares deals out what is asked for to the groups. One of those that start tasks, by
// chance but the same for a repeat, may give a suspect.
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
