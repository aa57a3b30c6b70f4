package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// Limit is the limit of a queue, and the starts that count for its rate.
type Limit struct {
	Operator *storage.Limit
	Declared *storage.DeclaredLimit
	Starts   Starts
	// Changed is set if Starts changed, for a Store that writes them.
	Changed bool
	// Damaged is set if a part of the limit could not be read: that part counts as none.
	Damaged bool
	// Running is how many tasks are pending that Queue.Sizes leaves out, for a Store whose counts begin at zero.
	Running int64
}

// Starts counts starts in parts of the Per of a rate, the oldest part first.
type Starts []Start

// Start is the sum of the costs of the starts in a part of time.
type Start struct {
	End int64 // the last moment of the part
	N   int64
}

// InForce returns the limit that holds.
func (l *Limit) InForce() storage.Limit {
	if l == nil {
		return storage.Limit{}
	}
	return (&storage.QueueLimit{Operator: l.Operator, Declared: l.Declared}).InForce()
}

// with returns the limit after a change of settings, nil if nothing of it is left. l may be nil.
func (l *Limit) with(named *storage.Settings) *Limit {
	if named.Limit == nil && named.Declared == nil {
		return l
	}
	after := new(Limit)
	if l != nil {
		*after = *l
	}
	if o := named.Limit; o != nil {
		after.Operator = nil
		if o.On {
			limit := o.Limit
			after.Operator = &limit
		}
	}
	if d := named.Declared; d != nil {
		after.Declared = nil
		if !d.Limit.IsZero() {
			after.Declared = &storage.DeclaredLimit{Limit: d.Limit, Replaced: slices.Clone(d.Replaced)}
		}
	}
	if after.InForce().Rate.N == 0 {
		after.Starts = nil
	}
	after.Changed, after.Damaged = true, false
	if after.Operator == nil && after.Declared == nil {
		return nil
	}
	return after
}

// part returns the last moment of the part of a rate's Per that holds a moment.
func part(per, now int64) int64 {
	width := (per + storage.RateParts - 1) / storage.RateParts
	return now - now%width + width - 1
}

// at returns the starts that count for a rate at a moment. Starts after the part of that moment count as made
// in it. come is that moment, or 0 during a wait of the clock: no start ceases to count then.
func (s Starts) at(per, now, come int64) Starts {
	end, future := part(per, now), int64(0)
	for len(s) > 0 && s[len(s)-1].End > end {
		future += s[len(s)-1].N
		s = s[:len(s)-1]
	}
	for len(s) > 0 && s[0].End+per <= come {
		s = s[1:]
	}
	if last := len(s) - 1; future > 0 && last >= 0 && s[last].End == end {
		future += s[last].N
		s = s[:last]
	}
	if future > 0 {
		s = append(slices.Clip(s), Start{end, future})
	}
	return s
}

// settle makes starts after a moment count as made at that moment from then on. Otherwise they would count as
// made at each later moment too, until the clock has passed them. A Per that was lowered leaves such starts,
// and so does a clock that was ahead.
func (l *Limit) settle(now, come int64) {
	per := l.InForce().Rate.Per.Microseconds()
	if l.Starts.areAhead(per, now) {
		l.Starts, l.Changed = l.Starts.at(per, now, come), true
	}
}

// areAhead reports whether some starts are after the part of Per that holds a moment.
func (s Starts) areAhead(per, now int64) bool {
	last := len(s) - 1
	return per > 0 && last >= 0 && s[last].End > part(per, now)
}

func (s Starts) sum() (n int64) {
	for _, p := range s {
		n += p.N
	}
	return n
}

// afford reports whether a rate admits the start of a task of a cost at a moment, beside these starts.
func (s Starts) afford(r storage.Rate, cost storage.Cost, now, come int64) bool {
	return r.N == 0 || s.at(r.Per.Microseconds(), now, come).sum()+r.Of(cost) <= int64(r.N)
}

// next returns the moment from which a rate admits a start of a cost, 0 if it admits one now.
func (s Starts) next(r storage.Rate, cost storage.Cost, now, come int64) int64 {
	return Moment(r.NextOf(cost, s.Counts(r, now, come)))
}

// Counts returns the starts that count for a rate at a moment. come is that moment, or 0 during a wait of the
// clock.
func (s Starts) Counts(r storage.Rate, now, come int64) (counts []storage.RateCount) {
	if r.N == 0 {
		return nil
	}
	per := r.Per.Microseconds()
	for _, p := range s.at(per, now, come) {
		counts = append(counts, storage.RateCount{Until: Time(p.End + per), N: p.N})
	}
	return counts
}

// with returns the starts with that of a task of a cost at a moment.
func (s Starts) with(rate storage.Rate, cost storage.Cost, now, come int64) Starts {
	per, n := rate.Per.Microseconds(), int64(min(cost.N(), rate.N))
	if n == 0 {
		return s
	}
	starts, end := s.at(per, now, come), part(per, now)
	if last := len(starts) - 1; last >= 0 && starts[last].End == end {
		return append(starts[:last:last], Start{end, starts[last].N + n})
	}
	return append(slices.Clip(starts), Start{end, n})
}

// affords reports whether the rate of a limit admits the start of a task of a cost at a moment.
func (l *Limit) affords(cost storage.Cost, now, come int64) bool {
	return l.Starts.afford(l.InForce().Rate, cost, now, come)
}

// next returns the moment from which the rate of a limit admits a start of a cost, 0 if it admits one now.
func (l *Limit) next(cost storage.Cost, now, come int64) int64 {
	if l == nil {
		return 0
	}
	return l.Starts.next(l.InForce().Rate, cost, now, come)
}

// count counts the start of a task for the rate.
func (l *Limit) count(cost storage.Cost, now, come int64) {
	if rate := l.InForce().Rate; rate.N > 0 && cost.N() > 0 {
		l.Starts, l.Changed = l.Starts.with(rate, cost, now, come), true
	}
}

// hasSlot reports whether the Concurrency of a queue's limit admits another pending task.
func (q *Queue) hasSlot() bool {
	most := int64(q.Limit.InForce().Concurrency)
	return most == 0 || q.running() < most
}

// running returns how many tasks count for the Concurrency of a queue's limit.
func (q *Queue) running() int64 { return q.Limit.Running + q.Sizes[Pending] + q.Sizes[Asked] }

// mayWait reports whether the limit of a queue admits a task that is claimed ahead: a Concurrency admits it
// in the first half of its slots. A rate counts starts, so it admits none; nor does a limit of partitions.
func (q *Queue) mayWait() bool {
	l := q.Limit.InForce()
	return l == (storage.Limit{Concurrency: l.Concurrency}) && q.running() < int64(l.Concurrency/2)
}

// mayStart reports whether the limit of a queue admits the start of a task of a cost.
func (s *Step) mayStart(q *Queue, cost storage.Cost) bool {
	return q.hasSlot() && q.Limit.affords(cost, s.Now, s.Come)
}

// Stats returns the limit for the Stats of a queue at a moment, nil if l is nil. come is that moment, or 0
// during a wait of the clock.
func (l *Limit) Stats(now, come int64) *storage.QueueLimit {
	if l == nil {
		return nil
	}
	st := new(storage.QueueLimit) // with copies, which the caller may change
	if o := l.Operator; o != nil {
		limit := *o
		st.Operator = &limit
	}
	if d := l.Declared; d != nil {
		st.Declared = &storage.DeclaredLimit{Limit: d.Limit, Replaced: slices.Clone(d.Replaced)}
	}
	st.Counts = l.Starts.Counts(st.InForce().Rate, now, come)
	st.Started, st.Next = storage.Started(st.Counts), st.NextOf(0)
	return st
}

// The texts in which storages keep a limit: "50 100 60000000" has the Concurrency, N and Per in
// microseconds. If the limit concerns partitions, their Concurrency, N, Per and Weight follow. In the text
// of a declaration the limits that it replaced follow, with semicolons between.

// Texts returns the texts of the operator's limit and of the declaration, "" for none, and the packed Starts.
func (l *Limit) Texts() (operator, declared string, starts []byte) {
	if l == nil {
		return "", "", nil
	}
	if l.Operator != nil {
		operator = limitText(*l.Operator)
	}
	if l.Declared != nil {
		declared = DeclaredText(l.Declared)
	}
	return operator, declared, l.Starts.Pack()
}

// DeclaredText returns the text of a declaration, "" if it has no limit.
func DeclaredText(d *storage.DeclaredLimit) string {
	if d.Limit.IsZero() {
		return ""
	}
	texts := []string{limitText(d.Limit)}
	for _, r := range d.Replaced {
		texts = append(texts, limitText(r))
	}
	return strings.Join(texts, ";")
}

// OperatorText returns the text of an operator's limit, "" if it is cleared.
func OperatorText(o *storage.OperatorLimit) string {
	if !o.On {
		return ""
	}
	return limitText(o.Limit)
}

// OwnText returns the text of the limit of one partition, "" for nil. It is that of a limit which sets
// nothing else.
func OwnText(p *storage.PartitionLimit) string {
	if p == nil {
		return ""
	}
	return limitText(storage.Limit{Partition: *p})
}

// OwnOf returns the limit of one partition that a text of OwnText describes. It reports false for any other
// text.
func OwnOf(text string) (*storage.PartitionLimit, bool) {
	if text == "" {
		return nil, true
	}
	l, sound := parseLimit(text)
	if l != (storage.Limit{Partition: l.Partition}) || !sound {
		return nil, false
	}
	return &l.Partition, true
}

func limitText(l storage.Limit) string {
	text := fmt.Sprintf("%d %d %d", l.Concurrency, l.Rate.N, l.Rate.Per.Microseconds())
	if p := l.Partition; !p.IsZero() {
		text += fmt.Sprintf(" %d %d %d %d", p.Concurrency, p.Rate.N, p.Rate.Per.Microseconds(), p.Weight)
	}
	return text
}

// LimitOf returns the limit that the results of Texts describe, nil for none. A part that cannot be read is
// left out, and Damaged set.
func LimitOf(operator, declared string, starts []byte) *Limit {
	if operator == "" && declared == "" {
		return nil
	}
	l, ok := new(Limit), true
	if operator != "" {
		if found, sound := parseLimit(operator); sound {
			l.Operator = &found
		} else {
			ok = false
		}
	}
	if declared != "" {
		l.Declared = new(storage.DeclaredLimit)
		for i, text := range strings.SplitN(declared, ";", storage.MaxReplaced+2) {
			found, sound := parseLimit(text)
			switch {
			case !sound && i == 0:
				l.Declared, ok = nil, false
			case !sound:
				ok = false
			case i == 0:
				l.Declared.Limit = found
			default:
				l.Declared.Replaced = append(l.Declared.Replaced, found)
			}
			if l.Declared == nil {
				break
			}
		}
	}
	l.Starts, l.Damaged = UnpackStarts(starts), !ok
	if len(starts) != len(l.Starts)*startBytes {
		l.Damaged = true
	}
	return l
}

// parseLimit returns the limit of a text, and false for a text that limitText cannot have made.
func parseLimit(text string) (l storage.Limit, ok bool) {
	fields := strings.Split(text, " ")
	if len(fields) != 3 && len(fields) != 7 {
		return l, false
	}
	var n [7]int64
	for i, field := range fields {
		v, err := strconv.ParseInt(field, 10, 64)
		if err != nil || v < 0 || v > storage.MaxPer.Microseconds() {
			return l, false
		}
		n[i] = v
	}
	l.Concurrency = int(n[0])
	l.Rate = storage.Rate{N: int(n[1]), Per: time.Duration(n[2]) * time.Microsecond}
	l.Partition.Concurrency = int(n[3])
	l.Partition.Rate = storage.Rate{N: int(n[4]), Per: time.Duration(n[5]) * time.Microsecond}
	l.Partition.Weight = int(n[6])
	return l, (len(fields) == 3) == l.Partition.IsZero() && storage.CheckLimit("limit", l) == nil
}

// startBytes is the length of a packed Start: End in 8 bytes and N in 4, big-endian.
const startBytes = 12

// MostStarts bounds the parts that count at once: those of a Per, and of a former one.
const MostStarts = 4 * storage.RateParts

// Pack packs the starts. It counts the oldest ones as made in one part, if there are more parts than
// UnpackStarts accepts, as after a Per that was raised again and again.
func (s Starts) Pack() []byte {
	if more := len(s) - MostStarts; more > 0 {
		oldest := s[:more+1]
		s = slices.Concat(Starts{{oldest[more].End, oldest.sum()}}, s[more+1:])
	}
	b := make([]byte, 0, len(s)*startBytes)
	for _, p := range s {
		b = binary.BigEndian.AppendUint64(b, uint64(p.End))
		b = binary.BigEndian.AppendUint32(b, uint32(min(p.N, storage.MaxRate)))
	}
	return b
}

// UnpackStarts returns the starts that Pack packed. It returns none for bytes that Pack cannot have made.
func UnpackStarts(b []byte) Starts {
	if len(b)%startBytes != 0 || len(b) > MostStarts*startBytes {
		return nil
	}
	s, last := make(Starts, 0, len(b)/startBytes), int64(0)
	for ; len(b) > 0; b = b[startBytes:] {
		p := Start{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint32(b[8:]))}
		if p.End <= last || p.End >= 1<<53 || p.N > storage.MaxRate {
			return nil
		}
		s, last = append(s, p), p.End
	}
	return s
}
