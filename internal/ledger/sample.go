package ledger

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/midgehq/midge/internal/packed"
)

// A sample is written as
//
//	the slots since the last sample, less one; flags; span;
//	the number of queues, and the figures of each; the number of kinds, and the figures of each.
//
// The figures of a queue begin with a byte whose bits name the figures that follow. Totals are the growth
// since the last sample. Sizes are differences to the sizes in the last sample, so a queue without figures
// has had no task, and has the same sizes as before.
const (
	flagGap = 1 << iota
	flagBlind
)

// The bits that name the figures that follow. The first bits are the totals, in their order.
const (
	hasWaiting = 1 << (4 + iota)
	hasOldest
	hasSkip // a number follows: how many queues of the page are skipped before this one
)

// sizes are the last sizes of a queue in the samples of a page.
type sizes struct{ waiting, oldest int64 }

// append adds a sample behind the last one. Its figures are in the order of their places. A queue without
// figures has had no task since the last sample, and its sizes are zero.
func (p *page) append(s *sample) {
	before := make([]sizes, len(p.queues))
	_ = p.eachRaw(before, func(*sample) {}) // no error: the page was checked when it was read
	b := binary.AppendUvarint(p.raw, uint64(s.slot-p.last-1))
	flags := byte(0)
	if s.gap {
		flags |= flagGap
	}
	if s.blind {
		flags |= flagBlind
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(s.span))
	b = appendQueues(b, s.queues, before)
	b = appendKinds(b, s.kinds)
	p.raw, p.last, p.count = b, s.slot, p.count+1
}

// appendQueues writes the figures of queues, and a drop to zero for queues without figures.
func appendQueues(b []byte, figures []queueFigures, before []sizes) []byte {
	var body []byte
	n, next := 0, 0
	for at := range before {
		f := queueFigures{at: at}
		if len(figures) > 0 && figures[0].at == at {
			f, figures = figures[0], figures[1:]
		}
		if longer := f.append(body, before[at], at-next); len(longer) > len(body) {
			body, n, next = longer, n+1, at+1
		}
	}
	return append(binary.AppendUvarint(b, uint64(n)), body...)
}

// Bounds of figures, because a damaged record or a runner may contain any number. Figures up to maxFigure can
// be added without an overflow, and maxOldest seconds fit into a duration.
const (
	maxFigure = 1 << 50
	maxOldest = int64(math.MaxInt64 / time.Second)
)

func clamped(n, most int64) int64 { return min(max(n, 0), most) }

// clamp keeps the figures within their bounds.
func (f *queueFigures) clamp() {
	for _, n := range [5]*int64{&f.enqueued, &f.done, &f.failed, &f.dead, &f.waiting} {
		*n = clamped(*n, maxFigure)
	}
	f.oldest = clamped(f.oldest, maxOldest)
}

// append writes the figures of a queue, of which the place is skip behind the queue that was written last. It
// writes nothing if nothing has happened.
func (f *queueFigures) append(b []byte, before sizes, skip int) []byte {
	f.clamp()
	mask, values := byte(0), f.list()
	for i, v := range values {
		if v != 0 {
			mask |= 1 << i
		}
	}
	waiting, oldest := f.waiting-before.waiting, f.oldest-before.oldest
	if waiting != 0 {
		mask |= hasWaiting
	}
	if oldest != 0 {
		mask |= hasOldest
	}
	if mask == 0 {
		return b
	}
	if skip > 0 {
		b = binary.AppendUvarint(append(b, mask|hasSkip), uint64(skip))
	} else {
		b = append(b, mask)
	}
	for _, v := range values {
		if v != 0 {
			b = binary.AppendUvarint(b, uint64(v))
		}
	}
	for _, v := range []int64{waiting, oldest} {
		if v != 0 {
			b = binary.AppendVarint(b, v)
		}
	}
	return b
}

func appendKinds(b []byte, figures []kindFigures) []byte {
	b = binary.AppendUvarint(b, uint64(len(figures)))
	next := 0
	for _, f := range figures {
		b = binary.AppendUvarint(b, uint64(f.at-next))
		b = binary.AppendUvarint(b, uint64(clamped(f.runs, maxFigure)))
		b = binary.AppendUvarint(b, uint64(clamped(f.failed, maxFigure)))
		b = append(b, f.p50, f.p95, f.p99)
		next = f.at + 1
	}
	return b
}

// each calls tell with one sample after the other. A sample is valid until tell returns. It has all queues that
// have a figure other than zero.
func (p *page) each(tell func(*sample)) error {
	return p.eachRaw(make([]sizes, len(p.queues)), tell)
}

// eachRaw does what each does, and leaves the sizes of the last sample in now.
func (p *page) eachRaw(now []sizes, tell func(*sample)) error {
	r := reader{packed.Reader{Rest: p.raw}}
	var s sample
	s.slot = -1
	counts := make([]totals, len(now))
	for range p.count {
		skip := r.Size()
		flags := r.Byte()
		span := r.Size()
		if r.Bad || skip >= int64(p.slots()-s.slot-1) || span < 1 || span > maxSpan {
			return errDamaged
		}
		s.slot += int(skip) + 1
		s.span, s.gap, s.blind = int(span), flags&flagGap != 0, flags&flagBlind != 0
		clear(counts)
		if !r.queues(now, counts) || !r.kinds(&s, len(p.kinds)) {
			return errDamaged
		}
		s.queues = s.queues[:0]
		for at, z := range now {
			if counts[at] != (totals{}) || z != (sizes{}) {
				s.queues = append(s.queues, queueFigures{at, counts[at], z.waiting, z.oldest})
			}
		}
		tell(&s)
	}
	if len(r.Rest) > 0 || s.slot != p.last {
		return errDamaged
	}
	return nil
}

// queues reads the figures of queues.
func (r *reader) queues(now []sizes, counts []totals) bool {
	next := int64(0)
	for n := r.Size(); n > 0; n-- {
		mask := r.Byte()
		if mask&hasSkip != 0 {
			next += r.Size()
		}
		if r.Bad || next < 0 || next >= int64(len(now)) {
			return false
		}
		c, z := &counts[next], &now[next]
		for i, to := range [4]*int64{&c.enqueued, &c.done, &c.failed, &c.dead} {
			if mask&(1<<i) != 0 {
				*to = r.figure()
			}
		}
		if mask&hasWaiting != 0 {
			z.waiting = clamped(z.waiting+r.Delta(), maxFigure)
		}
		if mask&hasOldest != 0 {
			z.oldest = clamped(z.oldest+r.Delta(), maxOldest)
		}
		next++
	}
	return !r.Bad
}

// figure reads a number, and bounds it so that it can be added up.
func (r *reader) figure() int64 { return min(r.Size(), maxFigure) }

// kinds reads the figures of kinds.
func (r *reader) kinds(s *sample, most int) bool {
	s.kinds = s.kinds[:0]
	next := int64(0)
	for n := r.Size(); n > 0; n-- {
		next += r.Size()
		if r.Bad || next < 0 || next >= int64(most) {
			return false
		}
		s.kinds = append(s.kinds, kindFigures{
			int(next), r.figure(), r.figure(), r.Byte(), r.Byte(), r.Byte(),
		})
		next++
	}
	return !r.Bad
}

// packDuration writes a duration from a microsecond to 50 days in a byte, to within 6 %. 0 means no duration.
func packDuration(d time.Duration) byte {
	us := float64(d) / float64(time.Microsecond)
	if us < 1 {
		return 0
	}
	return byte(min(1+math.Round(6*math.Log2(us)), 255))
}

func unpackDuration(b byte) time.Duration {
	if b == 0 {
		return 0
	}
	return time.Duration(math.Exp2(float64(b-1)/6) * float64(time.Microsecond))
}
