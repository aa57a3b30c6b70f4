package payload

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/storage"
)

// Encode writes JSON in an encoding. The JSON has the form that [JSON] shows, and somebody may have edited it.
// like is the payload before the edit, or nil. Each value keeps the type that the value in the same place of
// like has, so that the decoder of the job can read it: an integer stays an integer, a float a float of its
// width, bytes stay bytes, a moment a moment, and the keys of a map stay integers. A new element of a list
// gets the type of the other elements, if they have one type. A value without a place in like gets the type
// that it has in the JSON. null is permitted everywhere.
//
// JSON that cannot be read, or that has another type than like in some place, is a *[storage.InvalidError]
// that names the place. A damaged like is a *[DamagedError].
func Encode(encoding string, text []byte, like []byte) ([]byte, error) {
	return encode(encoding, text, like, false)
}

// Edit writes the edited parameters of a task, with the types of its own as Encode does. Parameters that no
// runner could decode may have the wrong types: a value of another type gets the type that it has in the
// JSON, and so does every number. Parameters that are damaged as a whole are replaced.
func Edit(t *storage.Task, text []byte) ([]byte, error) {
	return encode(t.Encoding, text, t.Payload, storage.Undecodable(t.Reason))
}

func encode(encoding string, text, like []byte, free bool) ([]byte, error) {
	if err := codec.CheckEncoding("encoding", encoding); err != nil {
		return nil, err
	}
	if len(text) > maxSize {
		return nil, storage.Invalid("parameters", strconv.Itoa(len(text))+" bytes", "at most %d", maxSize)
	}
	if !utf8.Valid(text) {
		return nil, notUTF8("parameters", len(text))
	}
	if encoding == codec.JSON && like == nil { // only the form can be wrong: document below reports the place
		if compact, err := compacted(text); err == nil && depthOf(compact) <= maxDepth {
			return compact, nil
		}
	}
	w := newWriter(text)
	w.write, w.free = encoding == codec.MessagePack, free
	old := likeOf(nil)
	if like != nil {
		err := check(encoding, like)
		if err != nil && !free {
			return nil, err
		}
		if encoding == codec.JSON && err == nil {
			like, _ = fromJSON(like) // it was checked
		}
		if err == nil {
			old = likeOf(like)
		}
	}
	if err := w.document(old); err != nil {
		return nil, err
	}
	if !w.write {
		return compacted(text)
	}
	return w.out, nil
}

// compacted returns JSON without the spaces between its tokens.
func compacted(text []byte) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 0, len(text)))
	if err := json.Compact(b, text); err != nil {
		return nil, storage.Invalid("parameters", "that are no JSON", "JSON")
	}
	return b.Bytes(), nil
}

// depthOf returns how deep the lists and objects of JSON nest.
func depthOf(text []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++ // what it escapes
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// notUTF8 returns the error of a text of size bytes whose invalid bytes JSON would replace by U+FFFD. It quotes
// nothing of the text.
func notUTF8(what string, size int) error {
	return storage.Invalid(what, fmt.Sprintf("of %d bytes", size), "valid UTF-8")
}

// CheckJSON returns a *[storage.InvalidError] with the place of the fault if text is not one JSON value in
// UTF-8. The error calls the text by the name given.
func CheckJSON(given string, text []byte) error {
	var whole json.RawMessage
	err := json.Unmarshal(text, &whole)
	switch {
	case err == nil && !utf8.Valid(text):
		return notUTF8("parameters", len(text))
	case err == nil:
		return nil
	}
	at := (*json.SyntaxError)(nil)
	if !errors.As(err, &at) || at.Offset >= int64(len(text)) && !strings.HasPrefix(err.Error(), "invalid") {
		return storage.Invalid("parameters", given, "JSON to its end")
	}
	return storage.Invalid("parameters", given, "valid JSON: character %d does not fit", at.Offset)
}

// fromJSON returns MessagePack whose values have the types of the JSON.
func fromJSON(text []byte) ([]byte, error) {
	w := newWriter(text)
	err := w.document(likeOf(nil))
	return w.out, err
}

// writer reads JSON and writes MessagePack.
type writer struct {
	in    *json.Decoder
	out   []byte
	path  []string // the path to the current value
	name  string   // what errors call the whole text
	write bool     // write MessagePack; objects may then stand for other values
	free  bool     // values may have other types than like
	exact bool     // keep the digits of a number that is no 64-bit integer as bytes, which JSON does not have
	depth int
	// The lists and maps of like by their place, so that each is read once.
	lists map[int]elements
	maps  map[int]fields
}

func newWriter(text []byte) *writer {
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	return &writer{in: in, name: "parameters", lists: make(map[int]elements), maps: make(map[int]fields)}
}

func (w *writer) document(like example) error {
	token, err := w.token()
	if err != nil {
		return err
	}
	if err := w.value(token, like); err != nil {
		return err
	}
	if _, err := w.in.Token(); !errors.Is(err, io.EOF) {
		return storage.Invalid(w.name, "with more behind the first value", "one value of JSON")
	}
	return nil
}

func (w *writer) token() (json.Token, error) {
	token, err := w.in.Token()
	if err != nil {
		return nil, storage.Invalid(w.name, "that are no JSON behind byte "+strconv.FormatInt(w.in.InputOffset(), 10), "JSON")
	}
	return token, nil
}

// invalid returns the error that the current place wants another kind of value.
func (w *writer) invalid(got any, want kind) error {
	what := w.name
	if len(w.path) > 0 {
		what = "parameter " + strings.Join(w.path, ".")
	}
	return storage.Invalid(what, got, "%v", want)
}

// find returns the first example of one of the kinds. If there is none, it returns the kind that the value must
// have instead, if there is such a kind.
func (w *writer) find(like example, kinds ...kind) (v value, at int, ok bool, wanted kind) {
	if v, at, ok, wanted = like.find(kinds...); w.free {
		wanted = kindNil
	}
	return v, at, ok, wanted
}

// value writes the value that begins with token.
func (w *writer) value(token json.Token, like example) error {
	switch t := token.(type) {
	case nil:
		w.out = append(w.out, 0xc0)
	case bool:
		if _, _, ok, wanted := w.find(like, kindBool); !ok && wanted != kindNil {
			return w.invalid(t, wanted)
		}
		w.out = append(w.out, 0xc2)
		if t {
			w.out[len(w.out)-1]++
		}
	case json.Number:
		return w.number(t.String(), like)
	case string:
		return w.text(t, like)
	case json.Delim:
		if w.depth++; w.depth > maxDepth {
			return storage.Invalid(w.name, "nested too deep", "at most %d levels", maxDepth)
		}
		defer func() { w.depth-- }()
		if t == '[' {
			return w.array(like)
		}
		return w.object(like)
	}
	return nil
}

func (w *writer) number(text string, like example) error {
	v, _, ok, wanted := w.find(like, kindInt, kindFloat)
	if !ok && wanted != kindNil {
		return w.invalid(json.Number(text), wanted)
	}
	if w.exact && !isInteger(text) {
		w.head(0, -1, 0xc4, len(text))
		w.out = append(w.out, text...)
		return nil
	}
	ok = ok && !w.free
	if ok && v.kind == kindFloat || !ok && strings.ContainsAny(text, ".eE") {
		bits := 64
		if ok {
			bits = v.bits
		}
		f, err := strconv.ParseFloat(text, bits)
		if err != nil && w.write { // JSON has larger numbers
			return w.invalid(json.Number(text), kindFloat)
		}
		w.float(f, bits)
		return nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		w.int(n)
		return nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		w.uint(n)
		return nil
	}
	if w.write {
		return w.invalid(json.Number(text), kindInt)
	}
	f, _ := strconv.ParseFloat(text, 64) // JSON has larger integers
	w.float(f, 64)
	return nil
}

// isInteger reports whether a number is an integer that fits into MessagePack.
func isInteger(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		_, err = strconv.ParseUint(text, 10, 64)
	}
	return err == nil
}

func (w *writer) float(f float64, bits int) {
	if bits == 32 {
		w.out = binary.BigEndian.AppendUint32(append(w.out, 0xca), math.Float32bits(float32(f)))
		return
	}
	w.out = binary.BigEndian.AppendUint64(append(w.out, 0xcb), math.Float64bits(f))
}

func (w *writer) uint(n uint64) { w.out = binary.BigEndian.AppendUint64(append(w.out, 0xcf), n) }

// int writes an integer in as few bytes as possible.
func (w *writer) int(n int64) {
	switch {
	case n >= -32 && n < 128:
		w.out = append(w.out, byte(n))
	case n >= 0 && n <= math.MaxUint8:
		w.out = append(w.out, 0xcc, byte(n))
	case n >= 0 && n <= math.MaxUint16:
		w.out = binary.BigEndian.AppendUint16(append(w.out, 0xcd), uint16(n))
	case n >= 0 && n <= math.MaxUint32:
		w.out = binary.BigEndian.AppendUint32(append(w.out, 0xce), uint32(n))
	case n >= 0:
		w.uint(uint64(n))
	case n >= math.MinInt8:
		w.out = append(w.out, 0xd0, byte(n))
	case n >= math.MinInt16:
		w.out = binary.BigEndian.AppendUint16(append(w.out, 0xd1), uint16(n))
	case n >= math.MinInt32:
		w.out = binary.BigEndian.AppendUint32(append(w.out, 0xd2), uint32(n))
	default:
		w.out = binary.BigEndian.AppendUint64(append(w.out, 0xd3), uint64(n))
	}
}

func (w *writer) text(t string, like example) error {
	if w.write {
		if v, _, ok, _ := w.find(like, kindText, kindTime); ok && v.kind == kindTime {
			at, err := time.Parse(time.RFC3339Nano, t)
			switch {
			case err == nil:
				w.moment(at)
				return nil
			case !w.free:
				return w.invalid(t, kindTime)
			}
		}
	}
	if _, _, ok, wanted := w.find(like, kindText); !ok && wanted != kindNil {
		return w.invalid(t, wanted)
	}
	w.string(t)
	return nil
}

func (w *writer) string(t string) {
	w.head(0xa0, 31, 0xd9, len(t))
	w.out = append(w.out, t...)
}

// moment writes a moment as the encoder of jobs does.
func (w *writer) moment(at time.Time) {
	seconds, nanos := uint64(at.Unix()), uint64(at.Nanosecond())
	switch {
	case seconds>>34 != 0:
		w.out = binary.BigEndian.AppendUint32(append(w.out, 0xc7, 12, 0xff), uint32(nanos))
		w.out = binary.BigEndian.AppendUint64(w.out, seconds)
	case seconds>>32 == 0 && nanos == 0:
		w.out = binary.BigEndian.AppendUint32(append(w.out, 0xd6, 0xff), uint32(seconds))
	default:
		w.out = binary.BigEndian.AppendUint64(append(w.out, 0xd7, 0xff), nanos<<34|seconds)
	}
}

// head writes the head of a value that has a size. A size of at most small goes into one byte with short. A
// larger one follows the code for the fewest bytes that it takes: code, or a code behind it.
func (w *writer) head(short byte, small int, code byte, size int) {
	narrow := code == 0xd9 || code == 0xc4 || code == 0xc7 // lists and maps have no size of one byte
	switch {
	case size <= small:
		w.out = append(w.out, short|byte(size))
	case narrow && size <= math.MaxUint8:
		w.out = append(w.out, code, byte(size))
	case size <= math.MaxUint16:
		if narrow {
			code++
		}
		w.out = binary.BigEndian.AppendUint16(append(w.out, code), uint16(size))
	default:
		if narrow {
			code++
		}
		w.out = binary.BigEndian.AppendUint32(append(w.out, code+1), uint32(size))
	}
}

// headed writes the values that body writes behind the head of a list or a map. body returns their number.
func (w *writer) headed(short, code byte, body func() (int, error)) error {
	begin := len(w.out)
	n, err := body()
	if err != nil {
		return err
	}
	head := writer{}
	head.head(short, 15, code, n)
	w.out = slices.Insert(w.out, begin, head.out...)
	return nil
}

// array writes a list, of which the opening bracket was read.
func (w *writer) array(like example) error {
	old, at, ok, wanted := w.find(like, kindArray)
	if !ok && wanted != kindNil {
		return w.invalid("a list", wanted)
	}
	elements := w.elementsOf(like.data, old.items, at)
	return w.headed(0x90, 0xdc, func() (n int, err error) {
		for w.in.More() {
			if err := w.item(strconv.Itoa(n), nil, elements.element(n)); err != nil {
				return 0, err
			}
			n++
		}
		_, err = w.token() // the bracket
		return n, err
	})
}

// item writes one value of a list or a map. first is its first token, or nil if that was not read yet.
func (w *writer) item(name string, first json.Token, like example) (err error) {
	if first == nil {
		if first, err = w.token(); err != nil {
			return err
		}
	}
	w.path = append(w.path, name)
	defer func() { w.path = w.path[:len(w.path)-1] }()
	return w.value(first, like)
}

// object writes an object, of which the opening brace was read, or the value that the object stands for.
func (w *writer) object(like example) error {
	name, more, err := w.key()
	if err != nil {
		return err
	}
	if more && w.write && len(name) > 1 && name[0] == '$' && name[1] != '$' {
		return w.stands(name, like)
	}
	old, at, ok, wanted := w.find(like, kindMap)
	if !ok && wanted != kindNil {
		return w.invalid("an object", wanted)
	}
	fields := w.fieldsOf(like.data, old, at)
	return w.headed(0x80, 0xde, func() (n int, err error) {
		for ; more && err == nil; n++ {
			if err = w.entry(name, fields); err == nil {
				name, more, err = w.key()
			}
		}
		return n, err
	})
}

// key reads the name of the next member of an object. It reports false at the closing brace.
func (w *writer) key() (name string, more bool, err error) {
	more = w.in.More()
	token, err := w.token()
	name, _ = token.(string)
	return name, more, err
}

// entry writes one entry of a map, of which the name was read.
func (w *writer) entry(name string, fields fields) error {
	if w.write && strings.HasPrefix(name, "$") {
		if name = name[1:]; !strings.HasPrefix(name, "$") {
			return noName("$" + name)
		}
	}
	if n, err := strconv.ParseInt(name, 10, 64); fields.keys == keysInt && err == nil {
		w.int(n)
	} else if n, err := strconv.ParseUint(name, 10, 64); fields.keys == keysInt && err == nil {
		w.uint(n)
	} else if fields.keys == keysInt && !w.free {
		return w.invalid(name, kindInt)
	} else {
		w.string(name)
	}
	return w.item(name, nil, fields.field(name))
}
