package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

func encodeMsgpack(v any) ([]byte, error) {
	buf := bytes.NewBuffer(make([]byte, 0, 128))
	enc := msgpack.GetEncoder()
	enc.Reset(buf)
	enc.UseCompactInts(true)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	msgpack.PutEncoder(enc)
	return buf.Bytes(), nil
}

// decoders is a pool of decoders, each with its reader.
var decoders = sync.Pool{New: func() any { return &msgpackDecoder{Decoder: msgpack.NewDecoder(nil)} }}

type msgpackDecoder struct {
	*msgpack.Decoder

	in bytes.Reader
}

func decodeMsgpack(data []byte, v any) error {
	dec, _ := decoders.Get().(*msgpackDecoder)
	dec.in.Reset(data)
	dec.Reset(&dec.in)
	dec.UseLooseInterfaceDecoding(true) // an integer in an any becomes an int64 or a uint64; see mend
	dec.SetMapDecoder(decodeAnyMap)
	if err := dec.Decode(v); err != nil {
		return err
	}
	dec.in.Reset(nil)
	decoders.Put(dec)
	return nil
}

// Exact decodes data into maps, lists and values of the types in which they are encoded: [Decode] reads bytes
// in an any as text, and any number of MessagePack as one of 64 bits.
func Exact(encoding string, data []byte) (v any, err error) {
	if encoding != MessagePack {
		err = Decode(encoding, data, &v)
		return v, err
	}
	dec := msgpack.NewDecoder(bytes.NewReader(data))
	dec.SetMapDecoder(decodeAnyMap)
	return v, dec.Decode(&v)
}

// decodeAnyMap decodes a map into an any, also with keys that are not strings. The decoder would
// refuse these, although the encoder wrote them.
func decodeAnyMap(dec *msgpack.Decoder) (any, error) {
	m, err := dec.DecodeUntypedMap()
	if err != nil {
		return nil, err
	}
	byName := make(map[string]any, len(m))
	for key, value := range m {
		name, ok := key.(string)
		if !ok {
			return m, nil
		}
		byName[name] = value
	}
	return byName, nil
}

// checkMsgpack checks that data is exactly one value with a bounded depth, and that no array or map
// announces more items than data can hold, for which the decoder would allocate memory.
func checkMsgpack(data []byte) error {
	w := msgpackWalk{data: data}
	end, err := w.value(0, 0)
	if err == nil && end != len(data) {
		err = &malformedError{fmt.Sprintf("%d bytes too many", len(data)-end)}
	}
	return err
}

// sortMaps sorts the entries of every map by their keys, in place, so that equal values have equal
// bytes.
func sortMaps(data []byte) error {
	w := msgpackWalk{data: data, sort: true}
	_, err := w.value(0, 0)
	return err
}

// Head reads the head of the MessagePack value at a position in data. It returns where the body
// begins, how many bytes the body has, and how many values follow as items, two for each entry of a
// map. The body of an extension begins with the byte of its type. There is no error in data that
// [Check] accepts.
func Head(data []byte, at int) (next, body, items int, isMap bool, err error) {
	return msgpackWalk{data: data}.head(at)
}

// msgpackWalk walks over a value without decoding it
// (github.com/msgpack/msgpack/blob/master/spec.md).
type msgpackWalk struct {
	data []byte
	sort bool
}

// value walks over the value at a position and returns the position after it.
func (w msgpackWalk) value(at, depth int) (int, error) {
	at, body, items, isMap, err := w.head(at)
	if err != nil {
		return 0, err
	}
	if items > 0 && depth == maxDepth {
		return 0, new(deepError)
	}
	if left := len(w.data) - at; body > left || items > left {
		return 0, &malformedError{"cut short"}
	}
	if isMap && w.sort {
		return w.sorted(at, items, depth)
	}
	at += body
	begin := at
	for i := range items {
		if at, err = w.value(at, depth+1); err != nil {
			return 0, w.within(err, begin, i, isMap)
		}
	}
	return at, nil
}

// head reads the head of a value: see Head.
func (w msgpackWalk) head(at int) (next, body, items int, isMap bool, err error) {
	if at >= len(w.data) {
		return 0, 0, 0, false, &malformedError{"cut short"}
	}
	c := w.data[at]
	at++
	switch {
	case c < 0x80, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3: // small integers, nil, booleans
		return at, 0, 0, false, nil
	case c < 0x90: // small map
		return at, 0, 2 * int(c&0x0f), true, nil
	case c < 0xa0: // small array
		return at, 0, int(c & 0x0f), false, nil
	case c < 0xc0: // small string
		return at, int(c & 0x1f), 0, false, nil
	case c >= 0xca && c <= 0xd3: // floats and integers
		return at, [...]int{4, 8, 1, 2, 4, 8, 1, 2, 4, 8}[c-0xca], 0, false, nil
	case c >= 0xd4 && c <= 0xd8: // extensions of 1 to 16 bytes, after their type
		return at, 1 + 1<<(c-0xd4), 0, false, nil
	}
	size, at, err := w.size(c, at)
	switch {
	case err != nil:
		return 0, 0, 0, false, err
	case c == 0xdc || c == 0xdd: // array
		return at, 0, size, false, nil
	case c == 0xde || c == 0xdf: // map
		return at, 0, 2 * size, true, nil
	case c >= 0xc7 && c <= 0xc9: // extension, with its type
		return at, size + 1, 0, false, nil
	}
	return at, size, 0, false, nil // binary or string
}

// size reads the size that follows the code c.
func (w msgpackWalk) size(c byte, at int) (size, next int, err error) {
	var width int
	switch c {
	case 0xc4, 0xc7, 0xd9:
		width = 1
	case 0xc5, 0xc8, 0xda, 0xdc, 0xde:
		width = 2
	case 0xc6, 0xc9, 0xdb, 0xdd, 0xdf:
		width = 4
	default:
		return 0, 0, &malformedError{fmt.Sprintf("code %#x", c)}
	}
	if at+width > len(w.data) {
		return 0, 0, &malformedError{"cut short"}
	}
	var b [8]byte
	copy(b[8-width:], w.data[at:at+width])
	return int(binary.BigEndian.Uint64(b[:])), at + width, nil
}

// sorted walks over the items of a map and sorts its entries in place.
func (w msgpackWalk) sorted(at, items, depth int) (int, error) {
	type entry struct{ key, whole []byte }
	entries := make([]entry, items/2)
	begin := at
	for i := range entries {
		value, err := w.value(at, depth+1)
		if err != nil {
			return 0, err
		}
		end, err := w.value(value, depth+1)
		if err != nil {
			return 0, err
		}
		entries[i] = entry{key: w.data[at:value], whole: w.data[at:end]}
		at = end
	}
	byKey := func(a, b entry) int { return bytes.Compare(a.key, b.key) }
	if slices.IsSortedFunc(entries, byKey) {
		return at, nil
	}
	slices.SortFunc(entries, byKey)
	sorted := make([]byte, 0, at-begin)
	for _, e := range entries {
		sorted = append(sorted, e.whole...)
	}
	copy(w.data[begin:at], sorted)
	return at, nil
}

// hasMaps reports whether a value of the type may hold a map. The encoder writes the entries of
// maps in no order.
func hasMaps(typ reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[typ] {
		return false
	}
	seen[typ] = true
	switch typ.Kind() {
	case reflect.Map, reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return hasMaps(typ.Elem(), seen)
	case reflect.Struct:
		for field := range typ.Fields() {
			if hasMaps(field.Type, seen) {
				return true
			}
		}
		return false
	default:
		return false
	}
}
