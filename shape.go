package midge

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// shape is where integers are in what a type is decoded from. The decoder of MessagePack cuts
// those that are too large for their fields; fits finds them, but for those of structs that are
// written as arrays. A nil shape has none.
type shape struct {
	typ    reflect.Type
	low    int64             // of an integer
	high   uint64            // likewise
	fields map[string]*shape // of a struct; nil for a name that is not clear
	key    *shape            // of a map
	elem   *shape            // of a map, slice or array
	// narrow says that it has integers of less than 64 bits, or without sign. Into others
	// everything fits but a uint64 of 2⁶³ or more.
	narrow bool
}

// shapeOf gives the shape of a type, nil where it holds no integers or reads itself.
func shapeOf(typ reflect.Type) *shape {
	s := makeShape(typ, make(map[reflect.Type]*shape))
	if s != nil {
		s.narrow = has(s.typ, isNarrow, make(map[reflect.Type]bool))
	}
	return s
}

func makeShape(typ reflect.Type, known map[reflect.Type]*shape) *shape {
	typ = pointed(typ)
	if s, ok := known[typ]; ok {
		return s
	}
	if !has(typ, isInteger, make(map[reflect.Type]bool)) {
		return nil
	}
	s := &shape{typ: typ}
	known[typ] = s
	switch {
	case isInteger(typ) && typ.Kind() >= reflect.Uint:
		s.high = math.MaxUint64 >> (64 - typ.Bits())
	case isInteger(typ):
		s.low, s.high = math.MinInt64>>(64-typ.Bits()), math.MaxInt64>>(64-typ.Bits())
	case typ.Kind() == reflect.Struct:
		s.fields = fieldsOf(typ, known, nil)
	case typ.Kind() == reflect.Map:
		s.key, s.elem = makeShape(typ.Key(), known), makeShape(typ.Elem(), known)
	default:
		s.elem = makeShape(typ.Elem(), known)
	}
	return s
}

// fieldsOf gives the shapes of a struct's fields, and of those of structs embedded in it, by
// the names that the decoder knows. Where names collide it gives less than the decoder reads,
// never more: what is not there is not looked at.
func fieldsOf(typ reflect.Type, known map[reflect.Type]*shape, outer []reflect.Type) map[string]*shape {
	fields := make(map[string]*shape, typ.NumField())
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, more, _ := strings.Cut(f.Tag.Get(string(MessagePack)), ",")
		if name == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		within := pointed(f.Type)
		if f.Anonymous && within.Kind() == reflect.Struct && !slices.Contains(outer, within) &&
			!decodesItself(within) && !strings.Contains(more, "noinline") {
			promoted := fieldsOf(within, known, append(outer, typ))
			if !collide(promoted, fields) {
				maps.Copy(fields, promoted)
			}
		}
		names := []string{cmp.Or(name, f.Name)}
		if _, alias, ok := strings.Cut(more, "alias:"); ok {
			alias, _, _ = strings.Cut(alias, ",")
			names = append(names, alias)
		}
		for _, n := range names {
			_, taken := fields[n]
			if fields[n] = nil; !taken {
				fields[n] = makeShape(f.Type, known)
			}
		}
	}
	return fields
}

// collide reports whether two structs have fields of one name.
func collide(a, b map[string]*shape) bool {
	for name := range a {
		if _, both := b[name]; both {
			return true
		}
	}
	return false
}

func isInteger(typ reflect.Type) bool {
	return typ.Kind() >= reflect.Int && typ.Kind() <= reflect.Uint64
}

func isNarrow(typ reflect.Type) bool {
	return isInteger(typ) && (typ.Kind() >= reflect.Uint || typ.Bits() < 64)
}

// has reports whether a value of the type may hold one of a kind that is asked for, where the
// decoder reads it field by field.
func has(typ reflect.Type, kind func(reflect.Type) bool, seen map[reflect.Type]bool) bool {
	typ = pointed(typ)
	if seen[typ] || decodesItself(typ) {
		return false
	}
	seen[typ] = true
	switch typ.Kind() {
	case reflect.Slice, reflect.Array:
		return typ.Elem().Kind() != reflect.Uint8 && has(typ.Elem(), kind, seen) // else bytes
	case reflect.Map:
		return has(typ.Key(), kind, seen) || has(typ.Elem(), kind, seen)
	case reflect.Struct:
		for i := range typ.NumField() {
			if has(typ.Field(i).Type, kind, seen) {
				return true
			}
		}
		return false
	default:
		return kind(typ)
	}
}

// code64 is the code of an unsigned integer of 64 bits.
const code64 = 0xcf

// fits gives a *misfit for the first integer of a payload, which the decoder has read, that
// was too large for its field.
func (s *shape) fits(data []byte) error {
	if s == nil || !s.narrow && bytes.IndexByte(data, code64) < 0 {
		return nil
	}
	if _, bad := s.fit(msgpackWalk{data: data}, 0); bad != nil {
		return bad
	}
	return nil
}

// fit walks over the value at a place and gives the place behind it, or what does not fit.
func (s *shape) fit(w msgpackWalk, at int) (end int, bad *misfit) {
	next, body, items, isMap, _ := w.head(at) // which is sound: it was read
	if s == nil || s.fields != nil && !isMap || items == 0 {
		if s != nil && isInteger(s.typ) && !s.holds(w.data[at:]) {
			return next, &misfit{given: "integer out of range", into: s.typ}
		}
		if items > 0 {
			end, _ = w.value(at, 0)
			return end, nil
		}
		return next + body, nil
	}
	for end = next; items > 0 && bad == nil; items-- {
		switch {
		case s.fields != nil:
			text, length, _, _, _ := w.head(end) // the decoder takes nothing else for a name
			name := w.data[text : text+length]
			if end, bad = s.fields[string(name)].fit(w, text+length); bad != nil {
				bad.field = strings.TrimSuffix(string(name)+"."+bad.field, ".")
			}
			items--
		case isMap && items%2 == 0:
			end, bad = s.key.fit(w, end)
		default:
			end, bad = s.elem.fit(w, end)
		}
	}
	return end, bad
}

// holds reports whether the integer that data begins with is within bounds; what is none is.
func (s *shape) holds(data []byte) bool {
	c := data[0]
	if c < 0x80 || c >= 0xe0 {
		return int8(c) >= 0 && uint64(c) <= s.high || int8(c) < 0 && int64(int8(c)) >= s.low
	}
	if c < 0xcc || c > 0xd3 {
		return true
	}
	var b [8]byte
	width := 1 << ((c - 0xcc) % 4)
	copy(b[8-width:], data[1:1+width])
	n := binary.BigEndian.Uint64(b[:])
	if c <= code64 {
		return n <= s.high
	}
	signed := int64(n<<(64-8*width)) >> (64 - 8*width)
	return signed < 0 && signed >= s.low || signed >= 0 && uint64(signed) <= s.high
}
