// Package payload shows the parameters, results and checkpoints of tasks as JSON, and writes edited JSON back
// into the encoding of the task.
//
// JSON has no bytes and no moments, and the keys of its objects are texts. A MessagePack value that JSON does
// not have is shown as an object of one member whose name begins with "$":
//
//	{"$bytes":"AAEC"}                 bytes, in base64
//	{"$text":"gA=="}                  a text that is not valid UTF-8, in base64
//	{"$float":"NaN"}                  a float: NaN, +Inf or -Inf
//	{"$extension":[5,"AAEC"]}         an extension: its type, and its bytes in base64
//	{"$map":[[true,1],[null,2]]}      a map with other keys than texts or integers, with both, or with one twice
//
// A text key that begins with "$" is shown with one "$" more. A moment is a text in RFC 3339, integers have
// all their digits, and a float always has a point or an exponent. The entries of a map are shown in the order
// in which they are stored, and keys that are integers are shown as texts.
//
// Parameters that are stored as JSON are shown unchanged but for white space, which is left out. The output is
// always valid UTF-8 without control characters, so that a terminal can print it.
package payload

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/storage"
)

// The names of the members that show values which JSON does not have.
const (
	asBytes     = "$bytes"
	asText      = "$text"
	asFloat     = "$float"
	asExtension = "$extension"
	asMap       = "$map"
)

// maxDepth bounds how deep lists and maps nest. The encodings of jobs have the same bound.
const maxDepth = 100

// maxSize bounds the input and the output, in bytes: four times the largest payload.
const maxSize = 4 * storage.MaxPayloadCap

// DamagedError is the reason why a payload cannot be shown. Its text quotes nothing of the payload.
type DamagedError struct {
	Encoding string // of the payload
	Problem  string
}

// Error names the encoding and the problem.
func (e *DamagedError) Error() string {
	return "payload is no " + storage.PrintableText(e.Encoding, 64) + ": " + e.Problem
}

// JSON returns a payload as JSON without white space, or a *[DamagedError] for a payload that is damaged,
// nests too deep, is too large, or has an encoding that midge does not know.
func JSON(encoding string, payload []byte) ([]byte, error) {
	if err := check(encoding, payload); err != nil {
		return nil, err
	}
	var shown []byte
	if encoding == codec.JSON {
		var b bytes.Buffer
		if err := json.Compact(&b, payload); err != nil {
			return nil, &DamagedError{Encoding: encoding, Problem: "syntax error"}
		}
		shown = Printable(b.Bytes())
	} else {
		s := shower{data: payload, out: make([]byte, 0, 2*len(payload))}
		s.value(0)
		shown = Printable(s.out)
	}
	if len(shown) > maxSize {
		return nil, &DamagedError{Encoding: encoding, Problem: fmt.Sprintf("%d bytes as JSON", len(shown))}
	}
	return shown, nil
}

// check returns a *[DamagedError] if a payload cannot be shown.
func check(encoding string, payload []byte) error {
	if len(payload) > maxSize {
		return &DamagedError{Encoding: encoding, Problem: fmt.Sprintf("%d bytes", len(payload))}
	}
	err := codec.Check(encoding, payload)
	var invalid *storage.InvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid) && invalid.What == "encoding":
		return &DamagedError{Encoding: encoding, Problem: "unknown encoding"}
	}
	return &DamagedError{Encoding: encoding, Problem: err.Error()}
}

// shower writes checked MessagePack as JSON.
type shower struct {
	data []byte
	out  []byte
}

func (s *shower) add(text string) { s.out = append(s.out, text...) }

// value writes the value at a place, and returns the place behind it.
func (s *shower) value(at int) int {
	v, next := valueAt(s.data, at)
	switch v.kind {
	case kindNil:
		s.add("null")
	case kindBool:
		s.out = strconv.AppendBool(s.out, v.flag)
	case kindInt:
		s.add(v.digits())
	case kindFloat:
		s.float(v)
	case kindText:
		s.text(v.body)
	case kindBytes:
		s.wrapped(asBytes, v.body)
	case kindTime:
		s.out = append(v.at.AppendFormat(append(s.out, '"'), time.RFC3339Nano), '"')
	case kindExtension:
		s.add(`{"` + asExtension + `":[` + strconv.Itoa(int(v.ext)) + `,"`)
		s.out = base64.StdEncoding.AppendEncode(s.out, v.body)
		s.add(`"]}`)
	case kindArray:
		s.add("[")
		for i := range v.items {
			s.comma(i)
			next = s.value(next)
		}
		s.add("]")
	case kindMap:
		next = s.mapping(v, next)
	}
	return next
}

func (s *shower) comma(i int) {
	if i > 0 {
		s.add(",")
	}
}

// mapping writes the entries of a map, of which the first begins at a place.
func (s *shower) mapping(v value, at int) int {
	keys := keysOf(s.data, v, at)
	open, between, behind := "{", ":", "}"
	if keys == keysOther {
		open, between, behind = `{"`+asMap+`":[`, ",", "]}"
	}
	s.add(open)
	for i := range v.items / 2 {
		s.comma(i)
		switch keys {
		case keysOther:
			s.add("[")
			at = s.value(at)
		case keysInt:
			var key value
			key, at = valueAt(s.data, at)
			s.add(`"` + key.digits() + `"`)
		default:
			var key value
			key, at = valueAt(s.data, at)
			if len(key.body) > 0 && key.body[0] == '$' {
				key.body = append([]byte{'$'}, key.body...)
			}
			s.text(key.body)
		}
		s.add(between)
		at = s.value(at)
		if keys == keysOther {
			s.add("]")
		}
	}
	s.add(behind)
	return at
}

// wrapped writes bytes as an object of one member.
func (s *shower) wrapped(name string, body []byte) {
	s.add(`{"` + name + `":"`)
	s.out = append(base64.StdEncoding.AppendEncode(s.out, body), `"}`...)
}

func (s *shower) float(v value) {
	switch {
	case math.IsNaN(v.float):
		s.add(`{"` + asFloat + `":"NaN"}`)
	case math.IsInf(v.float, 0):
		s.out = strconv.AppendFloat(append(s.out, `{"`+asFloat+`":"`...), v.float, 'g', -1, 64)
		s.add(`"}`)
	default:
		begin, format := len(s.out), byte('f')
		if size := math.Abs(v.float); size != 0 && (size < 1e-6 || size >= 1e21) {
			format = 'e'
		}
		s.out = strconv.AppendFloat(s.out, v.float, format, -1, v.bits)
		if !bytes.ContainsAny(s.out[begin:], ".e") {
			s.add(".0")
		}
	}
}

// text writes a text.
func (s *shower) text(body []byte) {
	if !utf8.Valid(body) {
		s.wrapped(asText, body)
		return
	}
	s.out = append(s.out, '"')
	for _, c := range body {
		switch {
		case c == '"' || c == '\\':
			s.out = append(s.out, '\\', c)
		case c == '\n':
			s.add(`\n`)
		case c == '\t':
			s.add(`\t`)
		case c < ' ':
			s.out = fmt.Appendf(s.out, `\u%04x`, c)
		default:
			s.out = append(s.out, c)
		}
	}
	s.out = append(s.out, '"')
}

// Printable escapes the characters of JSON that a terminal would obey or not show. JSON has such characters
// only in texts, apart from line breaks, which are kept.
func Printable(text []byte) []byte {
	sound := true
	for i := 0; sound && i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		sound = (strconv.IsPrint(r) || r == '\n') && (r != utf8.RuneError || size > 1)
		i += size
	}
	if sound {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, `\ufffd`...)
		case strconv.IsPrint(r), r == '\n':
			out = append(out, text[i:i+size]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += size
	}
	return out
}

// kind is the kind of a MessagePack value.
type kind int

const (
	kindNil kind = iota
	kindBool
	kindInt
	kindFloat
	kindText
	kindBytes
	kindTime
	kindArray
	kindMap
	kindExtension
)

// String names the kind in errors.
func (k kind) String() string {
	return [...]string{
		"null", "true or false", "an integer", "a number", "a text", `bytes as {"` + asBytes + `":"base64"}`,
		"a time in RFC 3339", "a list", "an object", `an extension as {"` + asExtension + `":[type,"base64"]}`,
	}[k]
}

// value is one value of MessagePack without its items.
type value struct {
	kind     kind
	flag     bool    // of kindBool
	negative bool    // of kindInt
	number   uint64  // of kindInt: in two's complement if negative
	float    float64 // of kindFloat
	bits     int     // of kindFloat: 32 or 64
	body     []byte  // of texts, bytes and extensions
	at       time.Time
	ext      int8 // the type of an extension
	items    int  // how many values follow; a map has two for each entry
}

// digits writes an integer.
func (v *value) digits() string {
	if v.negative {
		return strconv.FormatInt(int64(v.number), 10)
	}
	return strconv.FormatUint(v.number, 10)
}

// valueAt reads the value at a place of checked data. It returns the place behind the value, which for a list
// or a map is the place of its first item.
func valueAt(data []byte, at int) (value, int) {
	next, size, items, isMap, err := codec.Head(data, at)
	if err != nil {
		return value{}, len(data) // cannot happen: data was checked
	}
	c, body := data[at], data[next:next+size]
	v := value{body: body, items: items}
	switch {
	case isMap:
		v.kind = kindMap
	case c < 0x80, c >= 0xe0:
		v.kind, v.number, v.negative = kindInt, uint64(int8(c)), c >= 0xe0
	case c >= 0x90 && c < 0xa0, c == 0xdc, c == 0xdd:
		v.kind = kindArray
	case c < 0xc0, c >= 0xd9 && c <= 0xdb:
		v.kind = kindText
	case c == 0xc0:
		v.kind = kindNil
	case c <= 0xc3:
		v.kind, v.flag = kindBool, c == 0xc3
	case c <= 0xc6:
		v.kind = kindBytes
	case c == 0xca:
		v.kind, v.bits, v.float = kindFloat, 32, float64(math.Float32frombits(binary.BigEndian.Uint32(body)))
	case c == 0xcb:
		v.kind, v.bits, v.float = kindFloat, 64, math.Float64frombits(binary.BigEndian.Uint64(body))
	case c >= 0xcc && c <= 0xd3:
		v.kind, v.number = kindInt, unsigned(body)
		if c >= 0xd0 {
			shift := 64 - 8*len(body)
			v.number = uint64(int64(v.number<<shift) >> shift)
			v.negative = int64(v.number) < 0
		}
	default:
		v.kind, v.ext, v.body = kindExtension, int8(body[0]), body[1:]
		v.moment()
	}
	return v, next + size
}

// unsigned reads a number of up to eight bytes.
func unsigned(body []byte) (n uint64) {
	for _, c := range body {
		n = n<<8 | uint64(c)
	}
	return n
}

// extMoment is the type of the extension that is a moment
// (github.com/msgpack/msgpack/blob/master/spec.md#timestamp-extension-type).
const extMoment = -1

// moment turns an extension into a moment if it is one and RFC 3339 can write it.
func (v *value) moment() {
	var seconds int64
	var nanos uint64
	switch {
	case v.ext != extMoment:
		return
	case len(v.body) == 4:
		seconds = int64(unsigned(v.body))
	case len(v.body) == 8:
		n := unsigned(v.body)
		seconds, nanos = int64(n&(1<<34-1)), n>>34
	case len(v.body) == 12:
		nanos, seconds = unsigned(v.body[:4]), int64(unsigned(v.body[4:]))
	default:
		return
	}
	const first, last = -62167219200, 253402300799 // the years 0 and 9999
	if seconds >= first && seconds <= last && nanos < 1e9 {
		v.kind, v.at = kindTime, time.Unix(seconds, int64(nanos)).UTC()
	}
}

// keys is the common kind of the keys of a map.
type keys int

const (
	keysNone keys = iota
	keysText
	keysInt
	keysOther
)

// keysOf returns the kind of the keys of a map, of which the first entry begins at a place.
func keysOf(data []byte, v value, at int) keys {
	found := keysNone
	seen := make(map[string]bool, v.items/2)
	for range v.items / 2 {
		key, next := valueAt(data, at)
		is, name := keysOther, ""
		switch {
		case key.kind == kindText && utf8.Valid(key.body):
			is, name = keysText, string(key.body)
		case key.kind == kindInt:
			is, name = keysInt, key.digits()
		}
		if found != keysNone && is != found || is == keysOther || seen[name] {
			return keysOther
		}
		found, seen[name] = is, true
		at = skip(data, skipItems(data, next, key.items))
	}
	return found
}

// skip returns the place behind the value at a place.
func skip(data []byte, at int) int {
	v, next := valueAt(data, at)
	return skipItems(data, next, v.items)
}

func skipItems(data []byte, at, items int) int {
	for range items {
		at = skip(data, at)
	}
	return at
}
