package codec

import (
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
	if !s.isOpaque() {
		s.unread(&reader{encoding: encoding, data: payload}, "", found)
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// isOpaque reports whether nobody can know which fields are read.
func (s *shape) isOpaque() bool { return s == nil || s.decodes || s.named == nil && s.elem == nil }

// unread searches the next value for fields that are not read.
func (s *shape) unread(in *reader, path string, found func(path string)) {
	items, isMap := 0, false
	if s = s.behindPointers(); !s.isOpaque() {
		items, isMap = in.open()
	}
	if items == 0 {
		in.skip()
		return
	}
	for i := 0; in.more(items - i); i++ {
		switch {
		case s.named != nil && isMap:
			name, _ := in.name()
			of, ok := s.named[folded(in.encoding, name)]
			if !ok {
				found(joined(path, name))
			}
			of.unread(in, joined(path, name), found)
		case s.named == nil:
			if isMap {
				s.key.unread(in, path+"[]", found)
			}
			s.elem.unread(in, path+"[]", found)
		case in.encoding == MessagePack && i < len(s.fields): // of a struct that is written as an array
			s.fields[i].unread(in, joined(path, s.layout.fields[i].name), found)
		default:
			in.skip()
		}
	}
}
