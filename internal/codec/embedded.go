package codec

import (
	"reflect"
	"slices"
)

// Both encodings write the fields of an embedded pointer among the others. It comes back as nil if there are
// none of them in the data, and MessagePack writes each field of a nil pointer as nil.

// withoutNils leaves out of MessagePack the fields with which its decoder would replace an embedded nil: those of
// an embedded pointer of which all that is stored is nil.
var withoutNils = rewriting{
	concerns: func(s *shape) bool { return s.embeds && !s.decodes },
	change: func(s *shape, _ string, fields []entry) []entry {
		for _, pointer := range s.layout.pointers {
			behind := func(e entry) bool { return s.layout.isBehind(pointer, e.name) }
			if !slices.ContainsFunc(fields, func(e entry) bool { return behind(e) && !e.isNil() }) {
				fields = slices.DeleteFunc(fields, behind)
			}
		}
		return fields
	},
}

// isBehind reports whether a name is that of a field behind an embedded pointer.
func (l *layout) isBehind(pointer field, name string) bool {
	n := len(pointer.Index)
	return slices.ContainsFunc(l.fields, func(f field) bool {
		named := name != "" && (f.name == name || f.alias == name)
		return named && len(f.Index) > n && slices.Equal(f.Index[:n], pointer.Index)
	})
}

// isNil reports whether the value is the nil of MessagePack.
func (e *entry) isNil() bool { return string(e.value) == "\xc0" }

// embeddedPointer returns the problem of a struct with an embedded pointer that would come back as nil
// although it is not, because no field of it is stored, or the other way round.
func (s *shape) embeddedPointer(encoding string, v reflect.Value) *problem {
	for _, f := range s.layout.pointers {
		one, ok := f.of(v)
		if !ok || !one.CanInterface() || s.layout.array != one.IsNil() {
			continue
		}
		if s.layout.array || storesNothing(encoding, one) {
			return errEmbedded(f, one)
		}
	}
	return nil
}

// storesNothing reports whether an embedded pointer is stored as nil is.
func storesNothing(encoding string, v reflect.Value) bool {
	data, err := marshal(encoding, v.Interface())
	if err != nil {
		return false
	}
	in := reader{encoding: encoding, data: data}
	for items, _ := in.open(); items > 0 && in.more(items); items-- {
		_, _ = in.name()
		if one := (entry{value: in.skip()}); (encoding == JSON || !one.isNil()) {
			return false
		}
	}
	return true
}
