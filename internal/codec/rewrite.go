package codec

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
)

// rewriting changes the fields of encoded structs, at any depth of a value.
type rewriting struct {
	concerns func(s *shape) bool // whether a value may hold such a struct
	// before changes the fields before those within them are changed, and after does so afterwards; nil
	// changes nothing.
	before, after func(s *shape, encoding string, fields []entry) []entry
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
// is: its decoder says what is wrong with it.
func (r *rewriting) of(s *shape, encoding string, data []byte) []byte {
	if s = s.behindPointers(); s == nil || !r.concerns(s) {
		return data
	}
	entries, isMap := split(encoding, data)
	if len(entries) == 0 {
		return data
	}
	isStruct := s.named != nil && isMap
	if isStruct && r.before != nil {
		entries = r.before(s, encoding, entries)
	}
	for i, e := range entries {
		if !isStruct && encoding == MessagePack { // the key of a map may be a struct
			entries[i].key = r.of(s.key, encoding, e.key)
		}
		entries[i].value = r.of(s.within(encoding, i, e.name, isMap), encoding, e.value)
	}
	if isStruct && r.after != nil {
		entries = r.after(s, encoding, entries)
	}
	return join(encoding, entries, isMap)
}

// within returns the shape of an entry of an encoded value, nil for one that the type does not read.
func (s *shape) within(encoding string, i int, name string, isMap bool) *shape {
	switch {
	case s.named != nil && isMap:
		return s.named[folded(encoding, name)]
	case s.named != nil && encoding == MessagePack && i < len(s.fields): // it is written as an array
		return s.fields[i]
	case s.named == nil && isMap == (s.key != nil):
		return s.elem
	}
	return nil
}

// split returns the entries of an encoded list or map, and none of another value.
func split(encoding string, data []byte) (entries []entry, isMap bool) {
	if encoding == MessagePack {
		return splitMsgpack(data)
	}
	var list []json.RawMessage
	if json.Unmarshal(data, &list) == nil {
		for _, one := range list {
			entries = append(entries, entry{value: one})
		}
		return entries, false
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(data, &fields) // another value has no entries
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		entries = append(entries, entry{value: fields[name]})
		entries[len(entries)-1].rename(JSON, name)
	}
	return entries, true
}

func splitMsgpack(data []byte) (entries []entry, isMap bool) {
	w := msgpackWalk{data: data}
	at, _, items, isMap, err := w.head(0)
	for err == nil && items > 0 {
		var e entry
		value := at
		if isMap {
			if value, err = w.value(at, 0); err != nil {
				return nil, false
			}
			text, length, _, _, _ := w.head(at)
			e.name, e.key = string(data[text:text+length]), data[at:value]
			items--
		}
		if at, err = w.value(value, 0); err != nil {
			return nil, false
		}
		e.value = data[value:at]
		entries = append(entries, e)
		items--
	}
	return entries, isMap
}

// join is the opposite of split.
func join(encoding string, entries []entry, isMap bool) []byte {
	var out bytes.Buffer
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
