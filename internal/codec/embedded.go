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
	return slices.ContainsFunc(l.fields, func(f field) bool {
		return name != "" && (f.name == name || f.alias == name) && f.isBehind(pointer)
	})
}

// isBehind reports whether a field is one of an embedded pointer.
func (f *field) isBehind(pointer field) bool {
	n := len(pointer.Index)
	return len(f.Index) > n && slices.Equal(f.Index[:n], pointer.Index)
}

// isNil reports whether the value is the nil of MessagePack.
func (e *entry) isNil() bool { return string(e.value) == "\xc0" }

// embeddedPointer returns the problem of a struct with an embedded pointer that would come back as nil
// although it is not, because no field of it is stored, or the other way round.
func (s *shape) embeddedPointer(encoding string, v reflect.Value) *problem {
	for _, f := range s.layout.pointers {
		one, ok := f.of(v)
		if !ok || !one.CanInterface() {
			continue
		}
		stored := false
		if s.layout.array { // it stores all fields, even those of a nil
			stored = slices.ContainsFunc(s.layout.fields, func(of field) bool { return of.isBehind(f) })
		} else if !one.IsNil() {
			stored = s.storesBehind(encoding, f, v)
		}
		if stored == one.IsNil() {
			return errEmbedded(f, one)
		}
	}
	return nil
}

// storesBehind reports whether a struct is stored with a field behind an embedded pointer that is not nil.
func (s *shape) storesBehind(encoding string, pointer field, v reflect.Value) bool {
	for i, f := range s.layout.fields {
		if _, ok := f.of(v); ok && f.isBehind(pointer) && s.fields[i].isAlwaysStored(encoding, f) {
			return true
		}
	}
	if !v.CanInterface() { // an unexported struct within another one
		v, _ = pointer.of(v)
	} else if v.CanAddr() {
		v = v.Addr()
	}
	data, err := marshal(encoding, v.Interface())
	if err != nil { // the encoder of the whole value returns it too
		return true
	}
	in := reader{encoding: encoding, data: data}
	for items, _ := in.open(); items > 0 && in.more(items); items-- {
		name, _ := in.name()
		e := entry{value: in.skip()}
		if s.layout.isBehind(pointer, name) && (encoding == JSON || !e.isNil()) {
			return true
		}
	}
	return false
}

// isAlwaysStored reports whether a field is stored whatever its value is, and never as nil. It only saves time.
func (s *shape) isAlwaysStored(encoding string, f field) bool {
	if tag := f.Tag.Get(encoding); encoding == JSON {
		return !hasOption(tag, "omitempty") && !hasOption(tag, "omitzero")
	}
	kind := f.Type.Kind()
	return !f.omits && !s.encodes && (kind <= reflect.Float64 || kind == reflect.String)
}
