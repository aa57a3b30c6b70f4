// Package steps packs the finished steps of a job and its checkpoint into the bytes that a task keeps as its
// checkpoint. All code that reads or writes these bytes does so through an [Envelope].
//
// A checkpoint without steps is stored as it is. If there are steps, or if the checkpoint itself begins
// with the byte 0xC1, which neither MessagePack nor JSON uses, the bytes are:
//
//	0xC1 0x01                      the mark, and the version of the layout
//	4 bytes, then the checkpoint   its length, 0 for none
//	for each step, to the end:
//	    4 bytes, then the name     its length
//	    8 bytes                    when the step ended, in microseconds since 1970
//	    8 bytes                    how long it took, in microseconds
//	    8 bytes                    until when a sleep lasts, in microseconds since 1970; 0 for a step
//	    4 bytes, then the result   its length; in the encoding of the task
//
// Numbers are big-endian.
package steps

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// Most bounds the steps of a task.
const Most = 256

const (
	mark    = 0xC1
	version = 1
	latest  = 253402300799999999 // the last microsecond of the year 9999, after which texts of moments end
	longest = int64(storage.MaxDelay / time.Microsecond)
)

// Step is a finished step, or a sleep that has begun.
type Step struct {
	Name   string
	Ended  time.Time     // by the storage's clock; of a sleep, when it began
	Took   time.Duration // of the function
	Until  time.Time     // the end of a sleep; zero for a step
	Result []byte        // in the encoding of the task; empty for a sleep
}

// Envelope holds the steps of a task in the order in which they ended, and the checkpoint that its job has
// stored.
type Envelope struct {
	Steps      []Step
	Checkpoint []byte // empty for none
}

// CheckName returns an *[storage.InvalidError] unless name is 1 to 128 bytes of printable UTF-8.
func CheckName(name string) error {
	if name == "" || len(name) > storage.MaxName || storage.PrintableText(name, len(name)) != name {
		return storage.Invalid("name of a step", name, "1 to %d bytes of printable UTF-8", storage.MaxName)
	}
	return nil
}

// Find returns the step of a name. ok is false if there is none.
func (e Envelope) Find(name string) (s Step, ok bool) {
	for i := range e.Steps {
		if e.Steps[i].Name == name {
			return e.Steps[i], true
		}
	}
	return Step{}, false
}

// plain reports whether the checkpoint is stored as it is.
func (e Envelope) plain() bool {
	return len(e.Steps) == 0 && (len(e.Checkpoint) == 0 || e.Checkpoint[0] != mark)
}

// Size returns the number of bytes to be stored.
func (e Envelope) Size() int {
	if e.plain() {
		return len(e.Checkpoint)
	}
	size := 2 + 4 + len(e.Checkpoint)
	for i := range e.Steps {
		size += 4 + len(e.Steps[i].Name) + 3*8 + 4 + len(e.Steps[i].Result)
	}
	return size
}

// Encode returns the bytes to be stored, nil for an empty envelope. They may be those of Checkpoint.
func (e Envelope) Encode() []byte {
	if e.plain() {
		return e.Checkpoint
	}
	b := append(make([]byte, 0, e.Size()), mark, version)
	b = appendPart(b, e.Checkpoint)
	for i := range e.Steps {
		s := &e.Steps[i]
		b = appendPart(b, s.Name)
		b = binary.BigEndian.AppendUint64(b, micros(s.Ended))
		b = binary.BigEndian.AppendUint64(b, uint64(s.Took.Microseconds()))
		b = binary.BigEndian.AppendUint64(b, micros(s.Until))
		b = appendPart(b, s.Result)
	}
	return b
}

func appendPart[T string | []byte](b []byte, part T) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
}

func micros(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMicro())
}

// Decode reads stored bytes. The parts of the envelope share their memory with stored. Damaged bytes are an
// error that wraps [storage.ErrDamaged]. Whether a checkpoint or a result fits the encoding of the task is
// not checked.
func Decode(stored []byte) (Envelope, error) {
	if len(stored) == 0 || stored[0] != mark {
		return Envelope{Checkpoint: stored}, nil
	}
	if len(stored) < 2 || stored[1] != version {
		return Envelope{}, damaged("unknown version")
	}
	in := reader{rest: stored[2:]}
	e := Envelope{Checkpoint: in.part()}
	for !in.short && len(in.rest) > 0 {
		s := Step{Name: string(in.part())}
		s.Ended = in.time()
		s.Took = time.Duration(in.micros(longest)) * time.Microsecond
		s.Until = in.time()
		s.Result = in.part()
		switch {
		case in.short:
		case in.outside:
			return Envelope{}, damaged("time out of range")
		case CheckName(s.Name) != nil:
			return Envelope{}, damaged("invalid name")
		case len(e.Steps) == Most:
			return Envelope{}, damaged(fmt.Sprintf("more than %d", Most))
		}
		e.Steps = append(e.Steps, s)
	}
	if in.short {
		return Envelope{}, damaged("cut off")
	}
	return e, nil
}

// damaged returns the error of bytes that cannot be read. Its text quotes nothing of them.
func damaged(problem string) error {
	return fmt.Errorf("the steps of the task cannot be read: %s (%w)", problem, storage.ErrDamaged)
}

// reader reads the parts of an envelope.
type reader struct {
	rest    []byte
	short   bool // the bytes ended too early
	outside bool // a time is outside of its range
}

func (r *reader) next(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.rest, r.short = nil, true
		return nil
	}
	part := r.rest[:n:n]
	r.rest = r.rest[n:]
	return part
}

func (r *reader) part() []byte {
	if length := r.next(4); length != nil {
		return r.next(int(binary.BigEndian.Uint32(length)))
	}
	return nil
}

// micros reads a number of microseconds, at most most.
func (r *reader) micros(most int64) int64 {
	number := r.next(8)
	if number == nil {
		return 0
	}
	n := binary.BigEndian.Uint64(number)
	if n > uint64(most) {
		r.outside = true
		return 0
	}
	return int64(n)
}

func (r *reader) time() time.Time {
	n := r.micros(latest)
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
