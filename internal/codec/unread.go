package codec

import (
	"encoding/json"
	"slices"

	"github.com/midgehq/midge/storage"
)

// Unread returns the paths of the fields of a stored job that its type does not read, so that their
// values are ignored, sorted and each once, in a printable form of bounded length. It finds none within a type
// with a decoder of its own. A path leads through the names of today.
// Decode must have decoded the payload already.
func (p Parameters) Unread(encoding string, payload []byte) (fields []string) {
	found := func(path string) { fields = append(fields, storage.PrintableText(path, storage.MaxName)) }
	s := p.msgpack // nil for a raw job
	if encoding == JSON {
		s = p.json
	}
	if s != nil && s.renames {
		payload = todaysNames.of(s, encoding, payload) // what is renamed then, and nothing else, is read
	}
	if encoding == JSON {
		s.unreadJSON(payload, "", found)
	} else {
		s.unreadMsgpack(msgpackWalk{data: payload}, 0, "", found)
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// isOpaque reports whether nobody can tell which fields are read.
func (s *shape) isOpaque() bool { return s == nil || s.decodes || s.named == nil && s.elem == nil }

// unreadMsgpack looks for fields that are not read in the value at a position, and returns the
// position after it.
func (s *shape) unreadMsgpack(w msgpackWalk, at int, path string, found func(path string)) (end int) {
	s = s.behindPointers()
	next, body, items, isMap, _ := w.head(at) // no error: the decoder has read it
	if s.isOpaque() || items == 0 {
		if items > 0 {
			next, _ = w.value(at, 0)
		}
		return next + body
	}
	for i, end := 0, next; ; i++ {
		switch {
		case i == items:
			return end
		case s.named == nil && isMap && i%2 == 0: // the key
			end = s.key.unreadMsgpack(w, end, path+"[]", found)
		case s.named == nil:
			end = s.elem.unreadMsgpack(w, end, path+"[]", found)
		case isMap:
			text, length, _, _, _ := w.head(end)
			name := string(w.data[text : text+length])
			of, ok := s.named[name]
			if !ok {
				found(joined(path, name))
			}
			end = of.unreadMsgpack(w, text+length, joined(path, name), found)
			i++
		case i < len(s.fields): // of a struct that is written as an array
			end = s.fields[i].unreadMsgpack(w, end, joined(path, s.layout.fields[i].name), found)
		default:
			end, _ = w.value(end, 0)
		}
	}
}

// unreadJSON does the same for JSON.
func (s *shape) unreadJSON(data []byte, path string, found func(path string)) {
	if s = s.behindPointers(); s.isOpaque() {
		return
	}
	var list []json.RawMessage
	if s.key == nil && s.elem != nil {
		_ = json.Unmarshal(data, &list) // what does not fit has no fields
	}
	for _, one := range list {
		s.elem.unreadJSON(one, path+"[]", found)
	}
	if s.key == nil && s.named == nil {
		return
	}
	var stored map[string]json.RawMessage
	_ = json.Unmarshal(data, &stored)
	for name, one := range stored {
		if s.key != nil {
			s.elem.unreadJSON(one, path+"[]", found)
			continue
		}
		of, ok := s.named[folded(JSON, name)]
		if !ok {
			found(joined(path, name))
		}
		of.unreadJSON(one, joined(path, name), found)
	}
}
