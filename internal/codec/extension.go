package codec

import (
	"reflect"
	"slices"
)

// In the place of a map, and there only, the MessagePack decoder skips the head of an extension and reads a map
// from its body, whose depth and sizes no check has bounded. checkExtensions refuses such extensions.

// isExtension reports whether a code of MessagePack is that of an extension.
func isExtension(c byte) bool { return c >= 0xc7 && c <= 0xc9 || c >= 0xd4 && c <= 0xd8 }

// isReadMap reports whether the decoder reads values of the type as maps, unless a function of the library
// has registered another decoder.
func (s *shape) isReadMap() bool { return s.key != nil && !s.decodes }

// checkExtensions returns a *mismatch for the first extension in the place of a map, or of a name of a field.
func (s *shape) checkExtensions(data []byte) error {
	if !s.mapped || !slices.ContainsFunc(data, isExtension) { // such a byte may also be of another value
		return nil
	}
	if bad := s.extension(&reader{encoding: MessagePack, data: data}); bad != nil {
		return bad
	}
	return nil
}

// extension searches for such an extension in the next value.
func (s *shape) extension(in *reader) (bad *mismatch) {
	if s = s.behindPointers(); s == nil || !s.mapped {
		in.skip()
		return nil
	}
	if s.isReadMap() && isExtension(in.data[in.at]) && !s.isRegisteredMap() {
		return &mismatch{given: "extension", into: s.typ}
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
			bad = s.key.extension(in)
		}
		if bad == nil {
			bad = s.within(MessagePack, i, name, isMap).extension(in)
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
