// Package vitals writes and reads what a runner tells of itself with its heartbeats, as
// storage.RunnerInfo.Vitals: how often jobs of each kind ran and failed, how long they took, and
// what the process holds. All counts begin with the runner.
package vitals

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
)

// MaxKinds bounds the kinds of a heartbeat.
const MaxKinds = 100

// Vitals are what a runner tells of itself.
type Vitals struct {
	// Memory is the resident memory of the process in bytes, where the system tells it, else what
	// the Go runtime holds; 0 where it is not known.
	Memory int64
	// Goroutines of the process.
	Goroutines int
	// Kinds of jobs that ran, those with the most runs first. At most MaxKinds.
	Kinds []Kind
	// Omitted is how many kinds had no room.
	Omitted int
}

// Kind tells of the jobs of a kind.
type Kind struct {
	Name string
	// Failed is how many runs failed.
	Failed uint64
	// Runs has the durations of all runs that ended.
	Runs Histogram
}

// format is the first byte of vitals.
const format = 1

// errDamaged is the error of Decode.
var errDamaged = errors.New("vitals: damaged, or of another version")

// Encode writes the vitals in at most storage.MaxVitals bytes. Kinds that have no room are counted
// as omitted; the kinds with the most runs come first.
func (v *Vitals) Encode() []byte {
	kinds := slices.Clone(v.Kinds)
	slices.SortFunc(kinds, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(b.Runs.Count(), a.Runs.Count()), strings.Compare(a.Name, b.Name))
	})
	var body []byte
	n := 0
	for ; n < min(len(kinds), MaxKinds); n++ {
		longer := kinds[n].append(body)
		if len(longer) > storage.MaxVitals-headMost {
			break
		}
		body = longer
	}
	b := []byte{format}
	b = binary.AppendUvarint(b, uint64(max(v.Memory, 0)))
	b = binary.AppendUvarint(b, uint64(max(v.Goroutines, 0)))
	b = binary.AppendUvarint(b, uint64(v.Omitted+len(kinds)-n))
	b = binary.AppendUvarint(b, uint64(n))
	return seal(append(b, body...))
}

// seal appends the sum of what stands before it.
func seal(b []byte) []byte { return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)) }

// headMost is how much stands around the kinds.
const headMost = 1 + 4*binary.MaxVarintLen64 + 4

func (k *Kind) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(k.Name)))
	b = append(b, k.Name...)
	b = binary.AppendUvarint(b, k.Failed)
	return k.Runs.append(b)
}

// Decode reads what Encode wrote. Vitals of a later version, or damaged ones, are an error; nil
// vitals are empty.
func Decode(b []byte) (Vitals, error) {
	if len(b) == 0 {
		return Vitals{}, nil
	}
	if len(b) < 5 || len(b) > storage.MaxVitals || b[0] != format ||
		crc32.ChecksumIEEE(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return Vitals{}, errDamaged
	}
	r := reader{b: b[1 : len(b)-4]}
	v := Vitals{Memory: r.size(), Goroutines: int(r.size()), Omitted: int(r.size())}
	n := r.number()
	if n > MaxKinds {
		return Vitals{}, errDamaged
	}
	for range n {
		k := Kind{Name: r.text(), Failed: r.number()}
		k.Runs.read(&r)
		if storage.CheckName("kind", k.Name) != nil {
			r.bad = true
		}
		if r.bad {
			return Vitals{}, errDamaged
		}
		v.Kinds = append(v.Kinds, k)
	}
	if r.bad || len(r.b) > 0 {
		return Vitals{}, errDamaged
	}
	return v, nil
}

// reader reads numbers and texts; bad is set where there is none.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[size:]
	return n
}

// size reads a number that fits a signed one.
func (r *reader) size() int64 {
	n := int64(r.number())
	r.bad = r.bad || n < 0
	return max(n, 0)
}

func (r *reader) text() string {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return ""
	}
	text := string(r.b[:n])
	r.b = r.b[n:]
	return text
}
