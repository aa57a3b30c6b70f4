package codec

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

// rewriting changes the fields of encoded structs, at any depth of a value.
type rewriting struct {
	concerns func(s *shape) bool // whether a value may hold such a struct
	// change changes the fields of a struct, after those within them are changed.
	change func(s *shape, encoding string, fields []entry) []entry
}

// entry is an item of an encoded list, or an entry of an encoded map or struct.
type entry struct {
	name       string // of a field
	key, value []byte // as they are encoded; a list has no keys
}

// rename changes the name of a field.
func (e *entry) rename(encoding, name string) {
	e.name = name
	e.key, _ = marshal(encoding, name) // no error: it is a text
}

// of returns data, an encoded value, with the changed fields. Data that does not fit the type stays as it
// is: its decoder reports what is wrong with it.
func (r *rewriting) of(s *shape, encoding string, data []byte) []byte {
	if !r.concerns(s) || Check(encoding, data) != nil {
		return data
	}
	return r.next(s, &reader{encoding: encoding, data: data})
}

// next returns the next value with the changed fields.
func (r *rewriting) next(s *shape, in *reader) []byte {
	if s = s.behindPointers(); s == nil || !r.concerns(s) {
		return in.skip()
	}
	begin := in.at
	items, isMap := in.open()
	if items == 0 {
		return in.skip()
	}
	var entries []entry
	isStruct := s.named != nil && isMap
	for in.more(items - len(entries)) {
		var e entry
		switch {
		case isStruct:
			e.name, e.key = in.name()
		case isMap && in.encoding == MessagePack: // the key of a map may be a struct
			e.key = r.next(s.key, in)
		case isMap:
			e.key = in.skip()
		}
		e.value = r.next(s.within(in.encoding, len(entries), e.name, isMap), in)
		entries = append(entries, e)
	}
	if isStruct {
		entries = r.change(s, in.encoding, entries)
	}
	return join(in.encoding, entries, isMap, in.at-begin)
}

// within returns the shape of an entry of an encoded value, nil for an entry that the type does not read.
func (s *shape) within(encoding string, i int, name string, isMap bool) *shape {
	switch {
	case s.named != nil && isMap:
		name = folded(encoding, name)
		if of, ok := s.named[name]; ok {
			return of
		}
		return s.was[name]
	case s.named != nil && encoding == MessagePack && i < len(s.fields): // it is written as an array
		return s.fields[i]
	case s.named == nil && isMap == (s.key != nil):
		return s.elem
	}
	return nil
}

// join returns an encoded list or map of about a size.
func join(encoding string, entries []entry, isMap bool, size int) []byte {
	var out bytes.Buffer
	out.Grow(size)
	begin, colon, comma, end := "", "", "", ""
	switch enc := msgpack.NewEncoder(&out); {
	case encoding == JSON && isMap:
		begin, colon, comma, end = "{", ":", ",", "}"
	case encoding == JSON:
		begin, comma, end = "[", ",", "]"
	case isMap:
		_ = enc.EncodeMapLen(len(entries)) // a buffer refuses nothing
	default:
		_ = enc.EncodeArrayLen(len(entries))
	}
	out.WriteString(begin)
	for i, e := range entries {
		if i > 0 {
			out.WriteString(comma)
		}
		if isMap {
			out.Write(e.key)
			out.WriteString(colon)
		}
		out.Write(e.value)
	}
	out.WriteString(end)
	return out.Bytes()
}

// reader reads the values within an encoded value that [Check] accepts, one after the other.
type reader struct {
	encoding string
	data     []byte
	at       int
}

// open enters the next value if that is a list or a map, and returns how many items or entries that has at
// most. It stays before a value that has none.
func (in *reader) open() (items int, isMap bool) {
	if in.encoding == MessagePack {
		next, _, items, isMap, _ := msgpackWalk{data: in.data}.head(in.at)
		if isMap {
			items /= 2
		}
		if items > 0 {
			in.at = next
		}
		return items, isMap
	}
	in.space()
	switch in.data[in.at] {
	case '{', '[':
		in.at++
		return len(in.data), in.data[in.at-1] == '{'
	}
	return 0, false
}

// more reports whether another item or entry follows, of which at most left do. It leaves a list or map behind
// its last one.
func (in *reader) more(left int) bool {
	if in.encoding == MessagePack {
		return left > 0
	}
	in.space()
	if c := in.data[in.at]; c != '}' && c != ']' {
		return true
	}
	in.at++
	return false
}

// name reads the name of a field, and returns it also as it is encoded.
func (in *reader) name() (name string, key []byte) {
	key = in.skip()
	if in.encoding == JSON {
		_ = json.Unmarshal(key, &name) // no error: it is a text
		return name, key
	}
	text, length, _, _, err := msgpackWalk{data: key}.head(0)
	_ = err // none: it was checked
	return string(key[text : text+length]), key
}

// skip reads the next value, and returns it as it is encoded.
func (in *reader) skip() []byte {
	in.space()
	begin := in.at
	if in.encoding == MessagePack {
		in.at, _ = msgpackWalk{data: in.data}.value(begin, 0)
	} else {
		in.at = endJSON(in.data, begin)
	}
	return in.data[begin:in.at]
}

// space reads what separates the values of JSON.
func (in *reader) space() {
	for in.encoding == JSON && strings.IndexByte(" \t\r\n,:", in.data[in.at]) >= 0 {
		in.at++
	}
}

// endJSON returns the index behind the value of JSON that begins at an index.
func endJSON(data []byte, begin int) int {
	depth, text := 0, false
	for at := begin; at < len(data); at++ {
		switch c := data[at]; {
		case !text && depth == 0 && at > begin && strings.IndexByte(" \t\r\n,:]}", c) >= 0:
			return at
		case c == '"':
			text = !text
		case text:
			if c == '\\' {
				at++
			}
		case c == '[', c == '{':
			depth++
		case c == ']', c == '}':
			depth--
		}
	}
	return len(data)
}
