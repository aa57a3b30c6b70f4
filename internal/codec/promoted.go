package codec

import (
	"bytes"
	"reflect"
)

// displaced returns the problem of a struct with the encoder or decoder of an embedded type, which
// knows nothing of the other fields. The method itself does not tell where it comes from. So an
// example with all fields set is encoded and decoded: a field is lost if the data do not change with
// it, or if it comes back empty.
func (s *shape) displaced(encoding string) (lost *problem) {
	coders, by := embeddedCoders(s.typ, encoding)
	if by == nil {
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
			return errPromoted(f.Name, by, encoding)
		}
	}
	return nil
}

// embeddedCoders returns the indexes of the embedded fields that encode or decode themselves, and the
// type of one of them.
func embeddedCoders(typ reflect.Type, encoding string) (at map[int]bool, one reflect.Type) {
	at = make(map[int]bool)
	for i := range typ.NumField() {
		f := typ.Field(i)
		encodes, _ := encodesAs(encoding, f.Type, true)
		if f.Anonymous && (encodes || decodesAs(encoding, f.Type)) {
			at[i], one = true, f.Type
		}
	}
	return at, one
}

// filled returns a pointer to an example of a struct, and its fields with a value that an encoding
// should write, apart from those of the embedded fields at some indexes.
func filled(
	typ reflect.Type, encoding string, apart map[int]bool,
) (example reflect.Value, others []reflect.StructField) {
	example = reflect.New(typ)
	for _, f := range reflect.VisibleFields(typ) {
		v, err := example.Elem().FieldByIndexErr(f.Index)
		if err != nil { // behind an embedded nil
			continue
		}
		Fill(v)
		if !apart[f.Index[0]] && f.IsExported() && nameOf(f, encoding) != "-" && !v.IsZero() {
			others = append(others, f)
		}
	}
	return example, others
}
