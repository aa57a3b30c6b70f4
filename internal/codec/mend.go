package codec

import (
	"math"
	"reflect"
	"time"
)

// mend brings the decoded parts of a value into the form that midge promises of MessagePack, whose decoder
// reads moments in the local zone, and an integer of an any as an int64 or a uint64, as it was
// written: moments are in UTC, and integers that fit are int64. depth bounds the walk if the caller of the
// decoder has passed a value that contains itself.
func (s *shape) mend(v reflect.Value, depth int) {
	switch {
	case !s.mends || depth > walkDepth:
	case s.typ == timeType:
		if at, ok := reflect.TypeAssert[*time.Time](v.Addr()); ok {
			*at = at.UTC()
		}
	case v.Kind() == reflect.Interface:
		if !v.IsNil() && v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(mended(v.Interface(), depth)))
		}
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			s.elem.mend(v.Elem(), depth+1)
		}
	case v.Kind() == reflect.Struct:
		for i, of := range s.fields {
			if !of.mends {
				continue
			}
			if one, ok := s.layout.fields[i].of(v); ok {
				of.mend(one, depth+1)
			}
		}
	case v.Kind() == reflect.Map:
		s.mendMap(v, depth)
	default:
		for i := range v.Len() {
			s.elem.mend(v.Index(i), depth+1)
		}
	}
}

// mendMap replaces the entries of a map, which cannot be set in place.
func (s *shape) mendMap(v reflect.Value, depth int) {
	if m, ok := reflect.TypeAssert[map[string]any](v); ok { // this saves allocations
		mended(m, depth)
		return
	}
	into := v
	if s.key.mends && !v.IsNil() {
		into = reflect.MakeMapWithSize(v.Type(), v.Len())
	}
	for i := v.MapRange(); i.Next(); {
		key, value := reflect.New(s.key.typ).Elem(), reflect.New(s.elem.typ).Elem()
		key.Set(i.Key())
		value.Set(i.Value())
		s.key.mend(key, depth+1)
		s.elem.mend(value, depth+1)
		into.SetMapIndex(key, value)
	}
	v.Set(into)
}

// mended returns the promised form of a value of an any.
func mended(v any, depth int) any {
	switch v := v.(type) {
	case uint64:
		if v <= math.MaxInt64 {
			return int64(v)
		}
	case time.Time:
		return v.UTC()
	case string, int64, bool, float64, nil:
	case []any:
		for i := range v {
			v[i] = mended(v[i], depth+1)
		}
	case map[string]any:
		for key := range v {
			v[key] = mended(v[key], depth+1)
		}
	default:
		p := reflect.New(reflect.TypeOf(v))
		p.Elem().Set(reflect.ValueOf(v))
		shapeOf(MessagePack, reflect.TypeOf(v)).mend(p.Elem(), depth+1)
		return p.Elem().Interface()
	}
	return v
}
