package codec

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

// bounds says where the encoded form of a type has integers, and how large they may be. The
// MessagePack decoder truncates integers that are too large for their fields; check finds them,
// except in structs that are written as arrays. Nil bounds allow everything.
type bounds struct {
	typ    reflect.Type
	low    int64              // lowest value of an integer
	high   uint64             // highest value of an integer
	fields map[string]*bounds // of a struct; nil for an ambiguous name
	key    *bounds            // of a map
	elem   *bounds            // of a map, slice or array
	// narrow means that the type has integers of less than 64 bits, or unsigned ones. Other
	// integers can hold every value except a uint64 of 2⁶³ or more.
	narrow bool
}

// boundsOf returns the bounds of a type, nil where it holds no integers or has a decoder of its
// own.
func boundsOf(typ reflect.Type) *bounds {
	b := makeBounds(typ, make(map[reflect.Type]*bounds))
	if b != nil {
		b.narrow = has(b.typ, isNarrow, make(map[reflect.Type]bool))
	}
	return b
}

func makeBounds(typ reflect.Type, known map[reflect.Type]*bounds) *bounds {
	typ = pointed(typ)
	if b, ok := known[typ]; ok {
		return b
	}
	if !has(typ, isInteger, make(map[reflect.Type]bool)) {
		return nil
	}
	b := &bounds{typ: typ}
	known[typ] = b
	switch {
	case isInteger(typ) && typ.Kind() >= reflect.Uint:
		b.high = math.MaxUint64 >> (64 - typ.Bits())
	case isInteger(typ):
		b.low, b.high = math.MinInt64>>(64-typ.Bits()), math.MaxInt64>>(64-typ.Bits())
	case typ.Kind() == reflect.Struct:
		b.fields = fieldsOf(typ, known, nil)
	case typ.Kind() == reflect.Map:
		b.key, b.elem = makeBounds(typ.Key(), known), makeBounds(typ.Elem(), known)
	default:
		b.elem = makeBounds(typ.Elem(), known)
	}
	return b
}

// fieldsOf returns the bounds of a struct's fields, and of the fields of structs embedded in it, by
// the names that the decoder knows. Where names collide it returns fewer fields than the decoder
// reads, never more: missing fields are not checked.
func fieldsOf(typ reflect.Type, known map[reflect.Type]*bounds, outer []reflect.Type) map[string]*bounds {
	fields := make(map[string]*bounds, typ.NumField())
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, more, _ := strings.Cut(f.Tag.Get(MessagePack), ",")
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
				fields[n] = makeBounds(f.Type, known)
			}
		}
	}
	return fields
}

// collide reports whether two structs have fields with the same name.
func collide(a, b map[string]*bounds) bool {
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

// has reports whether a value of the type may hold a value of a type that kind accepts, where the
// decoder decodes it field by field.
func has(typ reflect.Type, kind func(reflect.Type) bool, seen map[reflect.Type]bool) bool {
	typ = pointed(typ)
	if seen[typ] || decodesItself(typ) {
		return false
	}
	seen[typ] = true
	switch typ.Kind() {
	case reflect.Slice, reflect.Array:
		return typ.Elem().Kind() != reflect.Uint8 && has(typ.Elem(), kind, seen) // otherwise bytes
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

// code64 is the MessagePack code of an unsigned integer of 64 bits.
const code64 = 0xcf

// check returns a *mismatch for the first integer of a payload that is too large for its field. The
// decoder must have decoded the payload already.
func (b *bounds) check(data []byte) error {
	if b == nil || !b.narrow && bytes.IndexByte(data, code64) < 0 {
		return nil
	}
	if _, bad := b.walk(msgpackWalk{data: data}, 0); bad != nil {
		return bad
	}
	return nil
}

// walk walks over the value at a position and returns the position after it, or the mismatch.
func (b *bounds) walk(w msgpackWalk, at int) (end int, bad *mismatch) {
	next, body, items, isMap, _ := w.head(at) // no error: the decoder has read it
	if b == nil || b.fields != nil && !isMap || items == 0 {
		if b != nil && isInteger(b.typ) && !b.holds(w.data[at:]) {
			return next, &mismatch{given: "integer out of range", into: b.typ}
		}
		if items > 0 {
			end, _ = w.value(at, 0)
			return end, nil
		}
		return next + body, nil
	}
	for end = next; items > 0 && bad == nil; items-- {
		switch {
		case b.fields != nil:
			text, length, _, _, _ := w.head(end) // the decoder accepts nothing but a string as a name
			name := w.data[text : text+length]
			if end, bad = b.fields[string(name)].walk(w, text+length); bad != nil {
				bad.field = strings.TrimSuffix(string(name)+"."+bad.field, ".")
			}
			items--
		case isMap && items%2 == 0:
			end, bad = b.key.walk(w, end)
		default:
			end, bad = b.elem.walk(w, end)
		}
	}
	return end, bad
}

// holds reports whether the integer at the beginning of data is within bounds; any other value is.
func (b *bounds) holds(data []byte) bool {
	c := data[0]
	if c < 0x80 || c >= 0xe0 {
		return int8(c) >= 0 && uint64(c) <= b.high || int8(c) < 0 && int64(int8(c)) >= b.low
	}
	if c < 0xcc || c > 0xd3 {
		return true
	}
	var wide [8]byte
	width := 1 << ((c - 0xcc) % 4)
	copy(wide[8-width:], data[1:1+width])
	n := binary.BigEndian.Uint64(wide[:])
	if c <= code64 {
		return n <= b.high
	}
	signed := int64(n<<(64-8*width)) >> (64 - 8*width)
	return signed < 0 && signed >= b.low || signed >= 0 && uint64(signed) <= b.high
}
