package codec

import (
	"reflect"
	"slices"
	"time"
)

// Some values do not come back although others of their types do, because what is stored of them is what
// is stored of another value.

// mayFade reports whether values of a type, apart from the parts inside it, are of that kind: pointers to what
// may be nil, pointers that an option leaves out, and moments of JSON.
func (s *shape) mayFade(encoding string) bool {
	switch s.typ.Kind() {
	case reflect.Pointer:
		switch s.elem.typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
			return !s.elem.encodes
		default:
			return false
		}
	case reflect.Struct:
		fades := func(f field) bool { return f.fades }
		return encoding == JSON && s.typ == timeType || slices.ContainsFunc(s.layout.fields, fades)
	default:
		return false
	}
}

// mayFade reports whether an encoding leaves out a pointer to a zero value, as it does nil.
func (f *field) mayFade(encoding string) bool {
	omits := f.omits || encoding == JSON && hasOption(f.Tag.Get(JSON), "omitzero")
	return omits && f.Type.Kind() == reflect.Pointer && f.Type.Implements(zeroer)
}

// isZeroBehind reports whether a pointer to a type with a method IsZero is not nil, but is zero by that.
func isZeroBehind(v reflect.Value) bool {
	if v.IsNil() || !v.CanInterface() {
		return false
	}
	z, ok := reflect.TypeAssert[interface{ IsZero() bool }](v)
	return ok && z.IsZero()
}

// isLeftOut reports whether omitempty of MessagePack leaves out a value of an any, although it is not nil.
// [seemsEmpty] is about structs without a method IsZero.
func isLeftOut(v reflect.Value) bool {
	kind := v.Kind()
	nilable := kind == reflect.Pointer || kind == reflect.Map || kind == reflect.Slice
	if nilable && v.IsNil() || !v.CanInterface() {
		return false
	}
	if z, ok := reflect.TypeAssert[interface{ IsZero() bool }](v); ok {
		return z.IsZero()
	}
	switch kind {
	case reflect.Pointer, reflect.Struct:
		return false
	case reflect.Array, reflect.Map, reflect.Slice:
		return v.Len() == 0
	case reflect.Float32, reflect.Float64: // also a negative zero
		return v.Float() == 0
	default:
		return v.IsZero()
	}
}

// checkMoment refuses a moment in a zone with seconds, as zones had before 1900: RFC 3339 leaves them out, so
// that JSON would read another moment.
func checkMoment(v reflect.Value) *problem {
	at, _ := reflect.TypeAssert[time.Time](v)
	if _, offset := at.Zone(); offset%60 != 0 {
		return errZone()
	}
	return nil
}
