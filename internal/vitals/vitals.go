// Package vitals encodes and decodes the vitals that a runner sends with its heartbeats, as
// storage.RunnerInfo.Vitals: how often jobs of each kind ran and failed, how long they took, and
// the memory and goroutines of the process. All counts begin with the runner.
package vitals

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/midgehq/midge/internal/packed"
	"github.com/midgehq/midge/storage"
)

// MaxKinds is the most kinds in the vitals of a heartbeat.
const MaxKinds = 100

// Vitals are the figures that a runner reports about itself.
type Vitals struct {
	// Memory is the resident memory of the process in bytes on Linux, elsewhere the memory that the
	// Go runtime holds. 0 means unknown.
	Memory int64
	// Goroutines is the number of goroutines of the process.
	Goroutines int
	// Kinds are the kinds of jobs that ran, at most MaxKinds of them when decoded, the kinds with
	// the most runs first.
	Kinds []Kind
	// Omitted is the number of kinds that were left out for lack of room.
	Omitted int
}

// Kind holds the counts of the jobs of a kind.
type Kind struct {
	Name string
	// Failed is the number of runs that failed.
	Failed uint64
	// Runs counts the durations of all runs that ended.
	Runs Histogram
}

// format is the first byte of vitals.
const format = 1

// errDamaged is the only error of Decode.
var errDamaged = errors.New("vitals: damaged, or of another version")

// Encode encodes the vitals in at most storage.MaxVitals bytes. The kinds with the most runs come
// first. Kinds for which there is no room are counted as omitted.
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
	return packed.Seal(append(b, body...))
}

// headMost is the most bytes that the encoding needs beside the kinds.
const headMost = 1 + 4*binary.MaxVarintLen64 + 4

func (k *Kind) append(b []byte) []byte {
	b = packed.AppendText(b, k.Name)
	b = binary.AppendUvarint(b, k.Failed)
	return k.Runs.append(b)
}

// Decode decodes what Encode has encoded. It returns an error for damaged vitals or vitals of
// another version. Without any bytes it returns empty vitals.
func Decode(b []byte) (Vitals, error) {
	if len(b) == 0 {
		return Vitals{}, nil
	}
	inner, whole := packed.Unseal(b, format)
	if !whole || len(b) > storage.MaxVitals {
		return Vitals{}, errDamaged
	}
	r := packed.Reader{Rest: inner}
	v := Vitals{Memory: r.Size(), Goroutines: int(r.Size()), Omitted: int(r.Size())}
	n := r.Number()
	if n > MaxKinds {
		return Vitals{}, errDamaged
	}
	for range n {
		k := Kind{Name: r.Text(), Failed: r.Number()}
		k.Runs.read(&r)
		if storage.CheckName("kind", k.Name) != nil {
			r.Bad = true
		}
		if r.Bad {
			return Vitals{}, errDamaged
		}
		v.Kinds = append(v.Kinds, k)
	}
	if r.Bad || len(r.Rest) > 0 {
		return Vitals{}, errDamaged
	}
	return v, nil
}
