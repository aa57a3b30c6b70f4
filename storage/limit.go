package storage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limit bounds the tasks of a queue over all runners. The zero Limit sets no bound.
type Limit struct {
	// Concurrency is how many tasks of the queue are pending at once, 1 to MaxLimitConcurrency; 0 sets no bound.
	Concurrency int
	// Rate is how many tasks of the queue start in a span of time; the zero Rate sets no bound.
	Rate Rate
	// Partition bounds the tasks of each partition of the queue, and not the tasks without one.
	Partition PartitionLimit
}

// PartitionLimit bounds the tasks of each partition of a queue, or of one partition, over all runners. The
// zero PartitionLimit sets no bound.
type PartitionLimit struct {
	// Concurrency is how many tasks of a partition are pending at once, 1 to MaxLimitConcurrency; 0 sets no
	// bound. Tasks that were claimed while the limit had no such bound do not count.
	Concurrency int
	// Rate is how many tasks of a partition start in a span of time; the zero Rate sets no bound.
	Rate Rate
	// Weight is how many tasks of a partition Claims take in one turn, 1 to MaxWeight; 0 means 1.
	Weight int
}

// IsZero reports whether p sets neither a bound nor a weight.
func (p PartitionLimit) IsZero() bool { return p == PartitionLimit{} }

// PerTurn returns how many tasks of a partition Claims take in one turn, at least 1.
func (p PartitionLimit) PerTurn() int { return max(p.Weight, 1) }

// Rate allows starts whose costs sum up to N in any span of Per by the storage's clock. A start counts for
// Per and up to a RateParts-th of Per more. A cost over N counts as N.
type Rate struct {
	N   int           // 1 to MaxRate
	Per time.Duration // MinSpan to MaxPer
}

// Cost is how much of the rate of its queue the start of a task uses up. The zero Cost is 1.
type Cost int32

// NoCost is the cost of a start that uses up nothing. While a rate is spent, such a task waits too.
const NoCost Cost = -1

// MaxCost is the largest cost.
const MaxCost = 1_000_000

// CostOf returns the cost n, 0 to MaxCost. For any other n it returns an *[InvalidError] that names it as
// what.
func CostOf(what string, n int) (Cost, error) {
	switch {
	case n < 0 || n > MaxCost:
		return 0, Invalid(what, n, "0 to %d", MaxCost)
	case n == 0:
		return NoCost, nil
	case n == 1:
		return 0, nil
	}
	return Cost(n), nil
}

// N returns the cost as a number, 0 to MaxCost.
func (c Cost) N() int {
	switch c {
	case 0:
		return 1
	case NoCost:
		return 0
	}
	return int(c)
}

// Of returns how much of the rate must be left for a start of a cost, at least 1.
func (r Rate) Of(c Cost) int64 { return int64(max(min(c.N(), r.N), 1)) }

// checkCost checks a cost; what names it in the error.
func checkCost(what string, c Cost) error {
	if c < NoCost || c > MaxCost {
		return Invalid(what, int(c), "1 to %d, or NoCost", MaxCost)
	}
	return nil
}

// The bounds of a Limit.
const (
	MaxLimitConcurrency = 10_000        // of a Limit's Concurrency
	MaxRate             = 1_000_000_000 // of a Rate's N
	MaxPer              = 31 * 24 * time.Hour
	RateParts           = 64    // parts of a Rate's Per in which starts are counted
	MaxWeight           = 1_000 // of a PartitionLimit's Weight
	MaxReplaced         = 10    // of a DeclaredLimit's Replaced
)

// IsZero reports whether l sets no bound.
func (l Limit) IsZero() bool { return l == Limit{} }

// String returns a text such as "50 at once, 100 in 1m0s, 3 at once in a partition", or "none" for the zero
// Limit.
func (l Limit) String() string {
	return limitsText(append(boundsText(l.Concurrency, l.Rate, ""), l.Partition.texts(" in a partition")...))
}

// String returns a text such as "3 at once, 100 in 1m0s, weight 5", or "none" for the zero PartitionLimit.
func (p PartitionLimit) String() string { return limitsText(p.texts("")) }

// texts returns a text for each part of a limit of partitions; of is the end of each.
func (p PartitionLimit) texts(of string) []string {
	parts := boundsText(p.Concurrency, p.Rate, of)
	if p.Weight > 0 {
		parts = append(parts, "weight "+strconv.Itoa(p.Weight)+of)
	}
	return parts
}

func boundsText(concurrency int, r Rate, of string) (parts []string) {
	if concurrency > 0 {
		parts = append(parts, strconv.Itoa(concurrency)+" at once"+of)
	}
	if r.N > 0 {
		parts = append(parts, r.String()+of)
	}
	return parts
}

func limitsText(parts []string) string {
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// String returns a text such as "100 in 1m0s".
func (r Rate) String() string { return fmt.Sprintf("%d in %v", r.N, r.Per) }

// DeclaredLimit is the limit of a queue that a program declares.
type DeclaredLimit struct {
	Limit Limit
	// Replaced are earlier declarations, the oldest first: the last MaxReplaced. A program that declares one
	// of them is older than the program that declares Limit.
	Replaced []Limit
}

// Replace returns the declaration of a limit that replaces d, which may be nil.
func (d *DeclaredLimit) Replace(l Limit) DeclaredLimit {
	after := DeclaredLimit{Limit: l}
	if d == nil {
		return after
	}
	for _, before := range append(slices.Clip(d.Replaced), d.Limit) {
		if before != l {
			after.Replaced = append(after.Replaced, before)
		}
	}
	after.Replaced = after.Replaced[max(len(after.Replaced)-MaxReplaced, 0):]
	return after
}

// OperatorLimit is the limit that an operator sets, of a queue or of one of its partitions. The zero
// OperatorLimit clears it.
type OperatorLimit struct {
	// On sets Limit, which stands above a declared limit. The zero Limit then lifts the declared limit. For
	// a partition only Limit.Partition is set, which stands above that of the queue.
	On    bool
	Limit Limit
}

// QueueLimit is the limit of a queue, as Stats returns it.
type QueueLimit struct {
	// Operator is the limit that an operator has set, nil if none has.
	Operator *Limit
	// Declared is the limit that programs declare or have declared, nil if none has.
	Declared *DeclaredLimit
	// Started is the sum of the costs of the starts that count for the Rate now.
	Started int64
	// Next is the moment from which the Rate admits another start of cost 1, zero if it admits one now.
	Next time.Time
	// Counts are the starts that count for the Rate now, the oldest first.
	Counts []RateCount
}

// RateCount is the sum of the costs of starts that count for a rate until a moment.
type RateCount struct {
	Until time.Time
	N     int64
}

// NextOf returns the moment from which the Rate admits a start of a cost, zero if it admits one now. A Rate
// that is spent admits no start, even if the start costs nothing. q may be nil.
func (q *QueueLimit) NextOf(c Cost) time.Time {
	if q == nil {
		return time.Time{}
	}
	return q.InForce().Rate.NextOf(c, q.Counts)
}

// NextOf returns the moment from which the rate admits a start of a cost beside the starts that count for it,
// the oldest first; zero if it admits one now.
func (r Rate) NextOf(c Cost, counts []RateCount) (at time.Time) {
	if r.N == 0 {
		return at
	}
	left := Started(counts)
	for _, n := range counts {
		if left+r.Of(c) <= int64(r.N) {
			break
		}
		left, at = left-n.N, n.Until
	}
	return at
}

// Started returns the sum of the costs of starts.
func Started(counts []RateCount) (sum int64) {
	for _, n := range counts {
		sum += n.N
	}
	return sum
}

// InForce returns the limit that holds: that of the operator if there is one, else the declared one.
// q may be nil.
func (q *QueueLimit) InForce() Limit {
	switch {
	case q == nil:
		return Limit{}
	case q.Operator != nil:
		return *q.Operator
	case q.Declared != nil:
		return q.Declared.Limit
	}
	return Limit{}
}

// AtLimit reports whether the limit of the queue admits no other start now: full if as many tasks are
// pending as its Concurrency admits, and spent if its Rate admits the next start at Limit.Next.
func (s *Stats) AtLimit() (full, spent bool) {
	most := int64(s.Limit.InForce().Concurrency)
	return most > 0 && s.Pending >= most, s.Limit != nil && !s.Limit.Next.IsZero()
}

// RunnerLimit is the limit of a queue that a runner declares.
type RunnerLimit struct {
	Queue string
	Limit Limit
}

// DeclaresLimit reports whether one of the runners declares the limit of a queue.
func DeclaresLimit(runners []RunnerInfo, queue string, l Limit) bool {
	return slices.ContainsFunc(runners, func(r RunnerInfo) bool {
		return slices.Contains(r.Limits, RunnerLimit{queue, l})
	})
}

// CheckLimit checks the limit of a queue; what names it in the error.
func CheckLimit(what string, l Limit) error {
	if err := checkBounds(what, l.Concurrency, l.Rate); err != nil {
		return err
	}
	return CheckPartitionLimit(what+".Partition", l.Partition)
}

// CheckPartitionLimit checks the limit of partitions; what names it in the error.
func CheckPartitionLimit(what string, p PartitionLimit) error {
	if err := checkBounds(what, p.Concurrency, p.Rate); err != nil {
		return err
	}
	return checkRange(what+".Weight", p.Weight, 0, MaxWeight)
}

// checkBounds checks the bounds of a queue, or of its partitions.
func checkBounds(what string, concurrency int, r Rate) error {
	if concurrency < 0 || concurrency > MaxLimitConcurrency {
		return Invalid(what+".Concurrency", concurrency, "1 to %d, or 0 for no bound", MaxLimitConcurrency)
	}
	switch {
	case r == Rate{}:
		return nil
	case r.N < 1 || r.N > MaxRate:
		return Invalid(what+".Rate.N", r.N, "1 to %d, or no Rate", MaxRate)
	case r.Per < MinSpan || r.Per > MaxPer:
		return Invalid(what+".Rate.Per", r.Per, "%v to %v, or no Rate", MinSpan, MaxPer)
	}
	return nil
}

// Forgotten reports whether a declared limit of the queue is in force though no live runner declares one.
func (q *QueueLimit) Forgotten(queue string, live []RunnerInfo) bool {
	if q == nil || q.Declared == nil || q.Operator != nil {
		return false
	}
	return !slices.ContainsFunc(live, func(r RunnerInfo) bool {
		return slices.ContainsFunc(r.Limits, func(l RunnerLimit) bool { return l.Queue == queue })
	})
}

func checkOperatorLimit(l *OperatorLimit) error {
	switch {
	case l == nil:
		return nil
	case !l.On && !l.Limit.IsZero():
		return Invalid("OperatorLimit.Limit", l.Limit.String(), "On with it")
	}
	return CheckLimit("Limit", l.Limit)
}

func checkDeclaredLimit(d *DeclaredLimit) error {
	if d == nil {
		return nil
	}
	if len(d.Replaced) > MaxReplaced {
		return Invalid("DeclaredLimit.Replaced", fmt.Sprintf("of %d limits", len(d.Replaced)),
			"at most %d", MaxReplaced)
	}
	for _, l := range append(slices.Clip(d.Replaced), d.Limit) {
		if err := CheckLimit("DeclaredLimit", l); err != nil {
			return err
		}
	}
	return nil
}
