package codec

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

// mismatch is an error that names the part of a payload that does not fit its type. It names
// fields, and the kind of the encoded value, and quotes nothing.
type mismatch struct {
	field string       // its path; "" for the whole payload
	given string       // the kind of the encoded value, such as string
	into  reflect.Type // the type of the field
	cause error
}

func (m *mismatch) Error() string {
	text := "got " + m.given
	if m.field != "" {
		text += fmt.Sprintf(" for field %q", m.field)
	}
	if decodesItself(m.into) {
		return fmt.Sprintf("%s, which the decoder of %v refused (%T)", text, m.into, m.cause)
	}
	inside := false
	if kind := m.into.Kind(); kind == reflect.Struct || kind == reflect.Map {
		inside = m.given == "map" || m.given == "object"
	} else if kind == reflect.Slice || kind == reflect.Array {
		inside = m.given == "array"
	}
	if inside {
		text += " whose elements do not all fit"
	}
	return fmt.Sprintf("%s, want %v", text, m.into)
}

// mismatchDepth bounds the path of a field: each step decodes the part below it again.
const mismatchDepth = 8

// findMismatch finds the field that does not fit, by decoding each field alone: few decoders name
// it.
func findMismatch(encoding string, data []byte, typ reflect.Type, cause error) *mismatch {
	m := &mismatch{given: given(encoding, data), into: pointed(typ), cause: cause}
	for range mismatchDepth {
		if m.into.Kind() != reflect.Struct || decodesItself(m.into) {
			break
		}
		name, value, err := firstMismatch(encoding, data, m.into)
		field, ok := fieldNamed(m.into, encoding, name)
		if err == nil || !ok {
			break
		}
		m.field = strings.TrimPrefix(m.field+"."+name, ".")
		m.given, m.into, m.cause, data = given(encoding, value), pointed(field), err, value
	}
	return m
}

// pointed returns the type that a pointer finally points to. A pointer type that points to itself
// stays a pointer.
func pointed(typ reflect.Type) reflect.Type {
	for i := 0; i < maxDepth && typ.Kind() == reflect.Pointer; i++ {
		typ = typ.Elem()
	}
	return typ
}

// firstMismatch returns the first field of an encoded struct that does not decode.
func firstMismatch(encoding string, data []byte, typ reflect.Type) (name string, value []byte, err error) {
	shaped, each := shapeOf(encoding, reflect.PointerTo(typ)), msgpackFields
	if encoding == JSON {
		each = jsonFields
	}
	each(data, func(field string, of, alone []byte) bool {
		name, value, err = field, of, shaped.decodeAs(encoding, alone, reflect.New(typ).Interface())
		return err == nil
	})
	return name, value, err
}

// msgpackFields yields the entries of a well-formed map: the name, the value, and a map with only
// this entry.
func msgpackFields(data []byte, yield func(name string, value, alone []byte) bool) {
	w := msgpackWalk{data: data}
	at, _, items, isMap, err := w.head(0)
	for ; err == nil && isMap && items > 0; items -= 2 {
		var behind, end int
		var name string
		if behind, err = w.value(at, 0); err != nil {
			return
		}
		if end, err = w.value(behind, 0); err != nil {
			return
		}
		if msgpack.Unmarshal(data[at:behind], &name) == nil &&
			!yield(name, data[behind:end], append([]byte{0x81}, data[at:end]...)) {
			return
		}
		at = end
	}
}

// jsonFields does the same for a JSON object.
func jsonFields(data []byte, yield func(name string, value, alone []byte) bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		alone, err := json.Marshal(map[string]json.RawMessage{name: fields[name]})
		if err == nil && !yield(name, fields[name], alone) {
			return
		}
	}
}

// fieldNamed returns the type of the field that is decoded from a name.
func fieldNamed(typ reflect.Type, encoding string, name string) (reflect.Type, bool) {
	for _, f := range reflect.VisibleFields(typ) {
		own := f.Name
		if tag, _, _ := strings.Cut(f.Tag.Get(encoding), ","); tag != "" {
			own = tag
		}
		if f.IsExported() && (own == name || encoding == JSON && strings.EqualFold(own, name)) {
			return f.Type, true
		}
	}
	return nil, false
}

// given returns a word for the kind of an encoded value.
func given(encoding string, data []byte) string {
	if encoding == JSON {
		return givenJSON(data)
	}
	switch c := data[0]; {
	case c == 0xc0:
		return "nil"
	case c == 0xc2, c == 0xc3:
		return "bool"
	case c < 0x80, c >= 0xe0, c >= 0xcc && c <= 0xd3:
		return "integer"
	case c == 0xca, c == 0xcb:
		return "float"
	case c < 0x90, c == 0xde, c == 0xdf:
		return "map"
	case c < 0xa0, c == 0xdc, c == 0xdd:
		return "array"
	case c < 0xc0, c >= 0xd9 && c <= 0xdb:
		return "string"
	case c >= 0xc4 && c <= 0xc6:
		return "bytes"
	}
	return "extension"
}

// givenOf returns a word for the value of a [json.UnmarshalTypeError]: its kind, which the value itself may
// follow, and why a number is none of an integer type.
func givenOf(value string, into reflect.Type) string {
	kind, text, has := strings.Cut(value, " ")
	switch {
	case kind != "number" || !has || !isInteger(into):
		return kind
	case strings.ContainsAny(text, "eE"):
		return "number with an exponent"
	case strings.Contains(text, "."):
		return "number with a fraction"
	}
	return "number out of range"
}

func givenJSON(data []byte) string {
	switch strings.TrimLeft(string(data), " \t\r\n")[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "bool"
	case 'n':
		return "null"
	}
	return "number"
}
