package vitals

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/midgehq/midge/internal/packed"
)

// buckets is the number of buckets of a histogram: one for each microsecond below 4, four for
// each doubling from 4 microseconds to 19 hours, and one for all longer durations.
const buckets = 4 + 4*34 + 1

// Histogram counts durations.
type Histogram [buckets]uint64

// bucket returns the bucket of a duration.
func bucket(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0))
	if us < 4 {
		return int(us)
	}
	octave := bits.Len64(us) - 1 // at least 2
	quarter := us >> (octave - 2) & 3
	return min(4*(octave-1)+int(quarter), buckets-1)
}

// bounds returns the bounds of the durations in a bucket, in microseconds: from low up to, but
// not including, high.
func bounds(bucket int) (low, high float64) {
	begin := func(i int) float64 {
		if i < 4 {
			return float64(i)
		}
		return float64(uint64(4+i%4) << (i/4 - 1))
	}
	return begin(bucket), begin(bucket + 1)
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) { h[bucket(d)]++ }

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other {
		h[i] += n
	}
}

// Since returns the counts since an earlier state of the histogram. It returns false if earlier
// cannot be an earlier state of this histogram.
func (h *Histogram) Since(earlier *Histogram) (Histogram, bool) {
	var since Histogram
	for i, n := range h {
		if n < earlier[i] {
			return Histogram{}, false
		}
		since[i] = n - earlier[i]
	}
	return since, true
}

// Count returns the number of counted durations.
func (h *Histogram) Count() (all uint64) {
	for _, n := range h {
		all += n
	}
	return all
}

// Quantile returns the duration below which a part of all durations lie, such as 0.95, exact to a
// fifth. It returns 0 if nothing was counted.
func (h *Histogram) Quantile(part float64) time.Duration {
	all := h.Count()
	rank := part * float64(all)
	below := 0.0
	for i, n := range h {
		if n == 0 || below+float64(n) < rank {
			below += float64(n)
			continue
		}
		low, high := bounds(i)
		us := low + (high-low)*max(rank-below, 0)/float64(n)
		return time.Duration(us * float64(time.Microsecond))
	}
	return 0
}

// append appends the encoded histogram: the number of buckets that are not empty, then for each
// of them the number of empty buckets before it, and its count.
func (h *Histogram) append(b []byte) []byte {
	filled := 0
	for _, n := range h {
		if n > 0 {
			filled++
		}
	}
	b = binary.AppendUvarint(b, uint64(filled))
	gap := uint64(0)
	for _, n := range h {
		if n == 0 {
			gap++
			continue
		}
		b = binary.AppendUvarint(b, gap)
		b = binary.AppendUvarint(b, n)
		gap = 0
	}
	return b
}

func (h *Histogram) read(r *packed.Reader) {
	i := uint64(0)
	for range min(r.Number(), buckets+1) {
		i += min(r.Number(), buckets)
		n := r.Number()
		if i >= buckets || n == 0 {
			r.Bad = true
			return
		}
		h[i] = n
		i++
	}
}
