package ledger

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"time"

	"github.com/midgehq/midge/internal/packed"
	"github.com/midgehq/midge/storage"
)

// page is one record of the ledger: a quarter of an hour of minutes, or a day of hours, of a part of the
// queues and kinds. It holds its samples as bytes, in the order of time. A sample is appended, and can only be
// read by reading all samples before it.
type page struct {
	start  int64 // minutes since 1970
	step   int64 // minutes from slot to slot: 1, or 60
	parts  int   // into how many parts the queues and kinds are split
	queues []counted
	kinds  []string
	builds []build // the versions of runners; only the first part has them
	count  int     // the number of samples
	last   int     // slot of the last sample, -1 for none
	raw    []byte
}

// counted is a queue with its totals at the last sample. The process that writes the next sample takes the
// growth of the totals from there.
type counted struct {
	name string
	totals
}

// totals are the totals of a queue since its beginning, as far as the ledger keeps them.
type totals struct{ enqueued, done, failed, dead int64 }

// sample has the figures of one slot of a page. It also covers the slots before it that have no sample: span
// slots in all.
type sample struct {
	slot   int
	span   int
	gap    bool // the figures are averaged over a longer time than the slot
	blind  bool // it is not known how often jobs of each kind ran
	queues []queueFigures
	kinds  []kindFigures
}

// queueFigures are the figures of a queue, which is named by its place in the page.
type queueFigures struct {
	at int
	totals

	waiting, oldest int64 // oldest in seconds
}

// kindFigures are the figures of a kind, which is named by its place in the page.
type kindFigures struct {
	at            int
	runs, failed  int64
	p50, p95, p99 byte // durations as packDuration writes them
}

// format is the first byte of a page.
const format = 2

// pageMinutes is how many minutes a page of minutes holds. Each minute writes the whole page, which is half
// full on average, so shorter pages mean fewer written bytes. But each page names its queues and kinds, and
// more pages have to be read to show a day. The id of a page is its number since 1970, so pages of another
// length have other ids: they are not read, and are deleted when they expire.
const pageMinutes = 15

// Bounds of a page that is read. The figures of a gap longer than maxSpan belong to its last maxSpan slots.
const (
	maxParts = 10_000
	maxSpan  = int64(MinutesKept / time.Minute)
)

// errDamaged is the error of a page that cannot be read.
var errDamaged = errors.New("ledger: damaged page, or one of another version")

// part returns the part, of so many, to which a name belongs.
func part(name string, parts int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % uint32(max(parts, 1)))
}

// slots returns how many slots the page has.
func (p *page) slots() int {
	if p.step == 1 {
		return pageMinutes
	}
	return 24
}

// find returns the place of a queue, and adds the queue if it is new.
func (p *page) find(name string, places map[string]int) int {
	at, ok := places[name]
	if !ok {
		at = len(p.queues)
		places[name] = at
		p.queues = append(p.queues, counted{name: name})
	}
	return at
}

// findKind returns the place of a kind, and adds the kind if it is new.
func (p *page) findKind(name string, places map[string]int) int {
	at, ok := places[name]
	if !ok {
		at = len(p.kinds)
		places[name] = at
		p.kinds = append(p.kinds, name)
	}
	return at
}

// encode returns the page as bytes.
func (p *page) encode() []byte {
	b := make([]byte, 0, len(p.raw)+64*(len(p.queues)+len(p.kinds))+64)
	b = append(b, format)
	for _, n := range []int64{p.start, p.step, int64(p.parts), int64(len(p.queues))} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for i := range p.queues {
		q := &p.queues[i]
		b = packed.AppendText(b, q.name)
		for _, n := range q.list() {
			b = binary.AppendUvarint(b, uint64(max(n, 0)))
		}
	}
	b = binary.AppendUvarint(b, uint64(len(p.kinds)))
	for _, name := range p.kinds {
		b = packed.AppendText(b, name)
	}
	b = appendBuilds(b, p.builds)
	b = binary.AppendUvarint(b, uint64(p.count))
	b = binary.AppendUvarint(b, uint64(p.last+1))
	return packed.Seal(append(b, p.raw...))
}

// list returns the totals in the order in which a page has them.
func (t totals) list() [4]int64 { return [4]int64{t.enqueued, t.done, t.failed, t.dead} }

// decode reads a page. It reads all samples once, to find damage.
func decode(b []byte) (*page, error) {
	b, whole := packed.Unseal(b, format)
	if !whole {
		return nil, errDamaged
	}
	r := reader{packed.Reader{Rest: b}}
	p := &page{start: r.Size(), step: r.Size(), parts: int(r.Size())}
	n := r.Size()
	if p.step != 1 && p.step != 60 || p.start%(p.step*int64(p.slots())) != 0 || p.parts < 1 || p.parts > maxParts {
		return nil, errDamaged
	}
	for ; n > 0 && !r.Bad; n-- {
		q := counted{name: r.name()}
		q.totals = totals{r.Size(), r.Size(), r.Size(), r.Size()}
		p.queues = append(p.queues, q)
	}
	for n = r.Size(); n > 0 && !r.Bad; n-- {
		p.kinds = append(p.kinds, r.name())
	}
	p.builds = r.builds()
	count, last := r.Size(), r.Size()-1
	if r.Bad || last >= int64(p.slots()) || count > last+1 {
		return nil, errDamaged
	}
	p.count, p.last, p.raw = int(count), int(last), r.Rest
	if err := p.each(func(*sample) {}); err != nil {
		return nil, err
	}
	return p, nil
}

// reader reads a page.
type reader struct{ packed.Reader }

// name reads the name of a queue or a kind.
func (r *reader) name() string {
	name := r.Text()
	if storage.CheckName("name", name) != nil {
		r.Bad = true
	}
	return name
}
