package codec

import (
	"bytes"
	"maps"
	"math"
	"reflect"
	"slices"
)

// displaced returns the problem of a struct with the encoder or decoder of an embedded type, which
// knows nothing of the other fields. The method itself does not show where it comes from. So an
// example with all fields set is encoded and decoded: a field is lost if the data do not change with
// it, or if it comes back empty.
func (s *shape) displaced(encoding string) (lost *problem) {
	coders := embeddedCoders(s.typ, encoding)
	if len(coders) == 0 {
		return nil
	}
	defer func() { _ = recover() }() // a method that cannot take the example proves nothing
	example, others := filled(s.typ, encoding, coders)
	data, err := marshal(encoding, example.Interface())
	if err != nil {
		return nil
	}
	back := reflect.New(s.typ)
	reads := (&shape{typ: s.typ}).decodeAs(encoding, data, back.Interface()) == nil
	for _, f := range others {
		without := reflect.New(s.typ)
		without.Elem().Set(example.Elem())
		without.Elem().FieldByIndex(f.Index).SetZero()
		less, err := marshal(encoding, without.Interface())
		unwritten := err == nil && bytes.Equal(less, data)
		v, err := back.Elem().FieldByIndexErr(f.Index)
		unread := reads && (err != nil || v.IsZero())
		if unwritten || unread {
			return errPromoted(f.Name, other(coders, f.Index[0]), encoding)
		}
	}
	return displacedCoder(example, encoding, coders)
}

// displacedCoder returns the problem of a struct whose encoder is that of one embedded value, as both
// write the same, although another embedded value has an encoder too. That value is no part of the
// example.
func displacedCoder(example reflect.Value, encoding string, coders map[int]reflect.Type) *problem {
	all := slices.Sorted(maps.Keys(coders))
	data := encodedBy(encoding, example, example)
	for _, at := range all {
		one := example.Elem().Field(at)
		if one.Kind() != reflect.Pointer {
			one = one.Addr()
		}
		if len(all) == 1 || data == nil || !one.CanInterface() || !bytes.Equal(data, encodedBy(encoding, example, one)) {
			continue
		}
		for _, beside := range all {
			if f := example.Type().Elem().Field(beside); beside != at && nameOf(f, encoding) != "-" {
				return errPromoted(f.Name, coders[at], encoding)
			}
		}
	}
	return nil
}

// encodedBy returns the output of v for the method by which an encoding encodes a value of the type
// of as, nil if v has no such method.
func encodedBy(encoding string, as, v reflect.Value) []byte {
	methods := msgpackMarshalers
	if encoding == JSON {
		methods = []reflect.Type{jsonMarshaler, textMarshaler}
	}
	i := slices.IndexFunc(methods, as.Type().Implements)
	if i < 0 || methods[i].Method(0).Type.NumIn() > 0 || !v.Type().Implements(methods[i]) { // one writes to an encoder
		return nil
	}
	return v.MethodByName(methods[i].Method(0).Name).Call(nil)[0].Bytes()
}

// embeddedCoders returns the types of the embedded fields that encode or decode themselves, by their
// indexes.
func embeddedCoders(typ reflect.Type, encoding string) map[int]reflect.Type {
	coders := make(map[int]reflect.Type)
	for i := range typ.NumField() {
		f := typ.Field(i)
		encodes, _ := encodesAs(encoding, f.Type, true)
		if f.Anonymous && (encodes || decodesAs(encoding, f.Type)) {
			coders[i] = f.Type
		}
	}
	return coders
}

// other returns the type of an embedded field, if possible of another one than that at an index.
func other(coders map[int]reflect.Type, index int) reflect.Type {
	for _, i := range slices.Sorted(maps.Keys(coders)) {
		if i != index {
			return coders[i]
		}
	}
	return coders[index]
}

// filled returns a pointer to an example of a struct, and its fields with a value that an encoding
// should write, apart from those inside embedded fields that encode themselves.
func filled(
	typ reflect.Type, encoding string, coders map[int]reflect.Type,
) (example reflect.Value, others []reflect.StructField) {
	example = reflect.New(typ)
	for _, f := range reflect.VisibleFields(typ) {
		v, err := example.Elem().FieldByIndexErr(f.Index)
		if err != nil { // behind an embedded nil
			continue
		}
		Fill(v, math.MaxInt64)
		_, coder := coders[f.Index[0]]
		apart := coder && (len(f.Index) > 1 || len(coders) == 1)
		if !apart && f.IsExported() && nameOf(f, encoding) != "-" && !v.IsZero() {
			others = append(others, f)
		}
	}
	return example, others
}
