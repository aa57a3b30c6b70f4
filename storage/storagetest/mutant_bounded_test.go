package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

// limits makes a Configure that alters each limit that it sets.
func limits(edit func(*storage.Limit)) func(configureFunc) configureFunc {
	return configured(func(_ *storage.Call, s *storage.Settings) {
		if s.Limit != nil {
			own := *s.Limit
			edit(&own.Limit)
			s.Limit = &own
		}
		if s.Declared != nil {
			own := *s.Declared
			edit(&own.Limit)
			s.Declared = &own
		}
	})
}

func boundedMutants() []mutant {
	return []mutant{
		breaks("limits ignored", fault{configure: limits(func(l *storage.Limit) { *l = storage.Limit{} })},
			"bounded/concurrency", "bounded/slots come back", "bounded/ahead", "bounded/rate", "bounded/no refund",
			"bounded/repeated", "bounded/other queues", "bounded/changed", "bounded/operator", "bounded/told",
			"bounded/priorities", "bounded/kinds", "bounded/suspects", "bounded/clock ahead", "bounded/clock back",
			"bounded/stays", "bounded/valid", "bounded/told while the clock is ahead", "bounded/shorter span",
			"bounded/next due while the clock is ahead", "bounded/many claimers", "bounded/no room"),
		breaks("one task too many", fault{configure: limits(func(l *storage.Limit) {
			if l.Concurrency > 0 {
				l.Concurrency++
			}
		})}, "bounded/concurrency", "bounded/model"),
		breaks("one start too many", fault{configure: limits(func(l *storage.Limit) {
			if l.Rate.N > 0 {
				l.Rate.N++
			}
		})}, "bounded/rate", "bounded/model"),
		breaks("slots do not come back", fault{configure: limits(func(l *storage.Limit) {
			if l.Concurrency > 0 {
				*l = starting(l.Concurrency, time.Hour)
			}
		})}, "bounded/slots come back", "bounded/concurrency"),
		breaks("starts are refunded", fault{configure: limits(func(l *storage.Limit) {
			if l.Rate.N > 0 && l.Concurrency == 0 {
				*l = slotsOf(l.Rate.N)
			}
		})}, "bounded/no refund", "bounded/rate", "bounded/rate changed"),
		breaks("rates last too long", fault{configure: limits(func(l *storage.Limit) {
			l.Rate.Per += l.Rate.Per / 4
		})}, "bounded/rate", "bounded/clock back"),
		breaks("claims without identity", fault{claim: asked(func(c *storage.ClaimRequest) { c.Call = storage.Call{} })},
			"bounded/repeated"),
		breaks("bounded queues unnamed", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			c.Bounded = nil
		})}, "bounded/named", "bounded/ahead", "bounded/other queues"),
		breaks("all queues are bounded", fault{claim: given(func(req storage.ClaimRequest, c *storage.Claimed) {
			c.Bounded = []string{req.Queues[0].Name}
		})}, "bounded/named"),
		breaks("more of a bounded queue", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			c.More = c.More || len(c.Bounded) > 0
		})}, "bounded/named", "bounded/kinds", "bounded/suspects"),
		breaks("NextDue without rates", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			c.NextDue = time.Time{}
		})}, "bounded/rate", "bounded/no refund"),
		breaks("nothing is claimed ahead", fault{claim: asked(func(c *storage.ClaimRequest) { c.Ahead = 0 })},
			"bounded/ahead"),
		breaks("a bounded queue holds back others", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			if len(c.Bounded) > 0 {
				c.Tasks, c.Fences = nil, nil
			}
		})}, "bounded/other queues"),
		breaks("changed limits wake nobody", fault{wait: waits(never)}, "bounded/changed"),
		breaks("operators set nothing", fault{configure: configured(func(_ *storage.Call, s *storage.Settings) {
			if s.Limit != nil {
				s.Limit = &storage.OperatorLimit{}
			}
		})}, "bounded/operator", "bounded/makes a queue"),
		breaks("what was replaced is forgotten", fault{stats: counted(func(s *storage.Stats) {
			if s.Limit != nil && s.Limit.Declared != nil {
				s.Limit.Declared.Replaced = nil
			}
		})}, "bounded/told"),
	}
}
