package codec

import (
	"reflect"
	"slices"
)

// In the place of a map, and there only, the MessagePack decoder skips the head of an extension and reads a map
// from its body, whose depth and sizes no check has bounded. In the place of a struct it reads a list by position.
// checkPlaces refuses both.

// isExtension reports whether a code of MessagePack is that of an extension.
func isExtension(c byte) bool { return c >= 0xc7 && c <= 0xc9 || c >= 0xd4 && c <= 0xd8 }

// isList reports whether a code of MessagePack is that of a list.
func isList(c byte) bool { return c >= 0x90 && c <= 0x9f || c == 0xdc || c == 0xdd }

// isReadMap reports whether the decoder reads values of the type as maps, unless a function of the library
// has registered another decoder.
func (s *shape) isReadMap() bool { return s.key != nil && !s.decodes }

// isReadStruct reports whether the decoder reads values of the type as structs that are written as maps.
func (s *shape) isReadStruct() bool { return s.named != nil && !s.decodes && !s.layout.array }

// checkPlaces returns a *mismatch for the first extension in the place of a map, or of a name of a field, and for
// the first list in the place of a struct.
func (s *shape) checkPlaces(data []byte) error {
	if !s.mapped || len(data) == 0 {
		return nil
	}
	whole := s.behindPointers()
	extensions := s.maps && slices.ContainsFunc(data, isExtension) // such a byte may also be of another value
	lists := whole.isReadStruct() && isList(data[0]) || s.nests && slices.ContainsFunc(data, isList)
	if !extensions && !lists {
		return nil
	}
	if bad := whole.misplaced(&reader{encoding: MessagePack, data: data}); bad != nil {
		return bad
	}
	return nil
}

// misplaced searches for such an extension or list in the next value.
func (s *shape) misplaced(in *reader) (bad *mismatch) {
	if s = s.behindPointers(); s == nil || !s.mapped {
		in.skip()
		return nil
	}
	switch c := in.data[in.at]; {
	case s.isReadMap() && isExtension(c) && !s.isRegisteredMap():
		return &mismatch{given: "extension", into: s.typ}
	case s.isReadStruct() && isList(c) && !s.isRegisteredList():
		return &mismatch{given: "array", into: s.typ}
	}
	items, isMap := in.open()
	if items == 0 {
		in.skip()
		return nil
	}
	for i := 0; i < items && bad == nil; i++ {
		name := ""
		switch {
		case isMap && s.named != nil && isExtension(in.data[in.at]): // it may stand for any text
			return &mismatch{given: "extension", into: reflect.TypeFor[string]()}
		case isMap && s.named != nil:
			name, _ = in.name()
		case isMap:
			bad = s.key.misplaced(in)
		}
		if bad == nil {
			bad = s.within(MessagePack, i, name, isMap).misplaced(in)
		}
		if bad != nil {
			bad.field = joined(name, bad.field)
		}
	}
	return bad
}

// isRegisteredMap reports whether a function of the library has registered an encoder of a map type, and so a
// decoder.
func (s *shape) isRegisteredMap() bool {
	data, err := marshal(MessagePack, reflect.MakeMap(s.typ).Interface())
	return !s.encodes && (err != nil || string(data) != "\x80")
}

// isRegisteredList reports whether a function of the library has registered an encoder that writes values of a
// struct type as lists, and so a decoder.
func (s *shape) isRegisteredList() bool {
	data, err := marshal(MessagePack, reflect.New(s.typ).Interface())
	return err == nil && len(data) > 0 && isList(data[0])
}
