package codec

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"strings"
)

// The MessagePack decoder truncates integers that are too large for their fields, and reads an integer as an
// int64 where the field is a float. checkIntegers finds them.

func isInteger(typ reflect.Type) bool {
	return typ.Kind() >= reflect.Int && typ.Kind() <= reflect.Uint64
}

func isFloat(typ reflect.Type) bool {
	return typ.Kind() == reflect.Float32 || typ.Kind() == reflect.Float64
}

// isInteger reports whether the decoder reads integers of an encoding as values of the type.
func (s *shape) isInteger() bool { return (isInteger(s.typ) || isFloat(s.typ)) && !s.decodes }

// isNarrow reports whether the type has less than 64 bits, or no sign. Other integers, and floats, can hold
// every value except a uint64 of 2⁶³ or more.
func (s *shape) isNarrow() bool {
	return s.isInteger() && !isFloat(s.typ) && (s.typ.Kind() >= reflect.Uint || s.typ.Bits() < 64)
}

// code64 is the MessagePack code of an unsigned integer of 64 bits.
const code64 = 0xcf

// checkIntegers returns a *mismatch for the first integer of a payload that is too large for its
// field. The decoder must have decoded the payload already.
func (s *shape) checkIntegers(data []byte) error {
	if !s.integers || !s.narrow && bytes.IndexByte(data, code64) < 0 {
		return nil
	}
	if _, bad := s.walk(msgpackWalk{data: data}, 0); bad != nil {
		return bad
	}
	return nil
}

// walk walks over the value at a position and returns the position after it, or the mismatch.
func (s *shape) walk(w msgpackWalk, at int) (end int, bad *mismatch) {
	s = s.behindPointers()
	next, body, items, isMap, _ := w.head(at) // no error: the decoder has read it
	if s == nil || !s.integers || s.named != nil && !isMap && !s.layout.array || items == 0 {
		if s != nil && s.high > 0 && !s.holds(w.data[at:]) {
			return next, &mismatch{given: "integer out of range", into: s.typ}
		}
		if items > 0 {
			end, _ = w.value(at, 0)
			return end, nil
		}
		return next + body, nil
	}
	for end = next; items > 0 && bad == nil; items-- {
		switch {
		case s.named != nil && !isMap: // it is written as an array
			end, bad = s.inOrder(w, end, items)
			items = 1
		case s.named != nil:
			text, length, _, _, _ := w.head(end) // the decoder accepts nothing but a string as a name
			name := w.data[text : text+length]
			if end, bad = s.named[string(name)].walk(w, text+length); bad != nil {
				bad.field = strings.TrimSuffix(string(name)+"."+bad.field, ".")
			}
			items--
		case isMap && items%2 == 0:
			end, bad = s.key.walk(w, end)
		default:
			end, bad = s.elem.walk(w, end)
		}
	}
	return end, bad
}

// inOrder walks over the items of a struct that is written as an array.
func (s *shape) inOrder(w msgpackWalk, at, items int) (end int, bad *mismatch) {
	for i, of := range s.fields[:min(items, len(s.fields))] {
		if at, bad = of.walk(w, at); bad != nil {
			bad.field = strings.TrimSuffix(s.layout.fields[i].name+"."+bad.field, ".")
			return at, bad
		}
	}
	for range items - len(s.fields) { // the decoder passes over them
		at, _ = w.value(at, 0)
	}
	return at, nil
}

// behindPointers returns the shape of the value that a pointer finally points to.
func (s *shape) behindPointers() *shape {
	for s != nil && s.typ.Kind() == reflect.Pointer {
		s = s.elem
	}
	return s
}

// bound sets the lowest and the highest value of an integer type.
func (s *shape) bound() {
	switch unused := 64 - s.typ.Bits(); {
	case isFloat(s.typ):
		s.low, s.high = math.MinInt64, math.MaxInt64
	case s.typ.Kind() >= reflect.Uint:
		s.high = math.MaxUint64 >> unused
	default:
		s.low, s.high = math.MinInt64>>unused, math.MaxInt64>>unused
	}
}

// holds reports whether the integer at the beginning of data is within the bounds of the type; any
// other value is.
func (s *shape) holds(data []byte) bool {
	c := data[0]
	if c < 0x80 || c >= 0xe0 {
		return int8(c) >= 0 && uint64(c) <= s.high || int8(c) < 0 && int64(int8(c)) >= s.low
	}
	if c < 0xcc || c > 0xd3 {
		return true
	}
	var wide [8]byte
	width := 1 << ((c - 0xcc) % 4)
	copy(wide[8-width:], data[1:1+width])
	n := binary.BigEndian.Uint64(wide[:])
	if c <= code64 {
		return n <= s.high
	}
	signed := int64(n<<(64-8*width)) >> (64 - 8*width)
	return signed < 0 && signed >= s.low || signed >= 0 && uint64(signed) <= s.high
}

// isReadArray reports whether the decoder reads lists as arrays of the type.
func (s *shape) isReadArray() bool { return s.typ.Kind() == reflect.Array && !s.decodes }

// checkArrays returns a *mismatch for the first list of JSON with more items than its array has, which the
// decoder leaves out. The decoder must have decoded the payload already.
func (s *shape) checkArrays(data []byte) error {
	if !s.arrays {
		return nil
	}
	if bad := s.overlong(&reader{encoding: JSON, data: data}); bad != nil {
		return bad
	}
	return nil
}

// overlong returns the mismatch of the first list within the next value that is too long for its array.
func (s *shape) overlong(in *reader) (bad *mismatch) {
	items, isMap := 0, false
	if s = s.behindPointers(); s != nil && s.arrays {
		items, isMap = in.open()
	}
	if items == 0 {
		in.skip()
		return nil
	}
	for i := 0; bad == nil && in.more(items-i); i++ {
		switch {
		case s.isReadArray() && i >= s.typ.Len():
			bad = &mismatch{given: "array", into: s.typ}
		case s.named != nil:
			name, _ := in.name()
			if bad = s.named[folded(JSON, name)].overlong(in); bad != nil {
				bad.field = strings.TrimSuffix(name+"."+bad.field, ".")
			}
		case isMap:
			in.skip() // the key
			bad = s.elem.overlong(in)
		default:
			bad = s.elem.overlong(in)
		}
	}
	return bad
}
