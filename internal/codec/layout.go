package codec

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// layout is how an encoding writes the fields of a struct. It follows typeFields of encoding/json,
// and getFields of github.com/vmihailenco/msgpack.
type layout struct {
	fields []field
	// embedded are the structs whose fields stand among the others. MessagePack also reads them
	// under their own names.
	embedded []field
	pointers []field // the embedded pointers, at any depth, whose fields, if any, stand among the others
	array    bool    // MessagePack writes the struct as an array
	endless  bool    // MessagePack would examine the type without end

	lost       *problem // the first field whose value is not written, or not read
	unsettable *problem // the first field into which nothing can be decoded
}

// field is an encoded field, also one of an embedded struct.
type field struct {
	reflect.StructField // its Index leads from the outermost struct

	name   string // its encoded name
	alias  string // another name, under which MessagePack reads it
	path   string // its name in Go, such as Base.ID
	tagged bool   // the name stands in a tag
	behind bool   // it is behind an embedded pointer
	omits  bool   // MessagePack leaves it out if it takes it for empty
	fades  bool   // the encoding leaves out a pointer to zero, as it does nil
}

// of returns the field of a struct. ok is false behind an embedded nil.
func (f *field) of(v reflect.Value) (one reflect.Value, ok bool) {
	if len(f.Index) == 1 {
		return v.Field(f.Index[0]), true
	}
	one, err := v.FieldByIndexErr(f.Index)
	return one, err == nil
}

// layoutOf returns the layout of a struct type.
func layoutOf(typ reflect.Type, encoding string) layout {
	if encoding == MessagePack {
		return msgpackLayout(typ, nil)
	}
	return jsonLayout(typ)
}

// add prefixes the fields of an embedded struct with the field that embeds it.
func (f *field) add(inner field) field {
	inner.Index = append(slices.Clone(f.Index), inner.Index...)
	inner.path = joined(f.path, inner.path)
	inner.behind = inner.behind || f.Type.Kind() == reflect.Pointer
	return inner
}

// fieldOf returns the field at an index of a struct. ok is false if the encoding leaves it out.
func fieldOf(typ reflect.Type, i int, encoding string) (f field, ok bool) {
	sf := typ.Field(i)
	tag := sf.Tag.Get(encoding)
	name, options, _ := strings.Cut(tag, ",")
	left := name == "-" && (encoding == MessagePack || tag == "-") // "-," names a field of JSON "-"
	if left || !sf.IsExported() && !sf.Anonymous {
		return field{}, false
	}
	if encoding == JSON && !validName(name) {
		name = ""
	}
	f = field{StructField: sf, name: cmp.Or(name, sf.Name), path: sf.Name, tagged: name != ""}
	if _, alias, has := strings.Cut(options, "alias:"); has && encoding == MessagePack {
		f.alias, _, _ = strings.Cut(alias, ",")
	}
	return f, true
}

// validName reports whether encoding/json accepts a name in a tag.
func validName(name string) bool {
	return !strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
}

// jsonLayout returns the layout of encoding/json: of the fields with one name the one that is
// embedded least deeply wins, then one with a tag. If two are equal in both, none is written.
func jsonLayout(typ reflect.Type) layout {
	l := layout{}
	l.collect(typ, nil)
	all := l.fields
	l.fields = nil
	wins := func(f, over field) bool {
		if c := cmp.Compare(len(f.Index), len(over.Index)); c != 0 {
			return c < 0
		}
		return f.tagged || !over.tagged
	}
	for i, f := range all {
		winner := slices.IndexFunc(all, func(g field) bool {
			return g.name == f.name && !slices.Equal(g.Index, f.Index) && wins(g, f)
		})
		if winner < 0 {
			l.fields = append(l.fields, all[i])
			continue
		}
		l.lost = cmp.Or(l.lost, errSameName(f, all[winner]))
	}
	return l
}

// collect adds all fields of a struct, and of the structs embedded in it, whatever their names.
func (l *layout) collect(typ reflect.Type, outer []reflect.Type) {
	outer = append(slices.Clip(outer), typ)
	for i := range typ.NumField() {
		f, ok := fieldOf(typ, i, JSON)
		if !ok {
			continue
		}
		within := f.Type
		if within.Kind() == reflect.Pointer && within.Name() == "" {
			within = within.Elem()
		}
		embeds := f.Anonymous && within.Kind() == reflect.Struct
		switch {
		case f.Anonymous && !f.IsExported() && !embeds:
			continue
		case f.tagged || !embeds:
			l.fields = append(l.fields, f)
			if f.behindUnexported() {
				l.unsettable = cmp.Or(l.unsettable, errUnsettable(f))
			}
		case slices.Contains(outer, within):
			l.lost = cmp.Or(l.lost, errEmbedsItself(f).in(f.path))
		default:
			inner := layout{}
			inner.collect(within, outer)
			l.inline(f, inner, JSON)
		}
	}
}

// inline adds the fields of a struct that f embeds.
func (l *layout) inline(f field, inner layout, encoding string) {
	l.embedded = append(l.embedded, f)
	for _, one := range inner.fields {
		l.fields = append(l.fields, f.add(one))
	}
	if f.Type.Kind() == reflect.Pointer {
		l.pointers = append(l.pointers, f)
	}
	for _, one := range inner.pointers {
		l.pointers = append(l.pointers, f.add(one))
	}
	l.endless = l.endless || inner.endless
	lost, unsettable := inner.lost.in(f.path), inner.unsettable.in(f.path)
	if len(inner.fields) > 0 && f.behindUnexported() {
		unsettable = errUnsettable(f)
	}
	if f.IsExported() && len(inner.fields) == 0 && lost == nil && hides(pointed(f.Type)) {
		lost = errNothingStored(f.Type, encoding).in(f.path)
	}
	l.lost, l.unsettable = cmp.Or(l.lost, lost), cmp.Or(l.unsettable, unsettable)
}

// behindUnexported reports whether nothing can be decoded into a field, because it is an embedded
// pointer to an unexported type.
func (f *field) behindUnexported() bool {
	return f.Anonymous && !f.IsExported() && f.Type.Kind() == reflect.Pointer
}

// msgpackLayout returns the layout of MessagePack. An embedded struct is written field by field
// unless a field before it has one of its names. Of two fields with one name both are written, and
// the later one is read.
func msgpackLayout(typ reflect.Type, outer []reflect.Type) layout {
	l := layout{}
	outer = append(slices.Clip(outer), typ)
	read := make(map[string]field) // the fields that are read, by name
	omits := false
	for i := range typ.NumField() {
		if sf := typ.Field(i); sf.Name == "_msgpack" {
			l.array = hasOption(sf.Tag.Get(MessagePack), "as_array") || hasOption(sf.Tag.Get(MessagePack), "asArray")
			omits = hasOption(sf.Tag.Get(MessagePack), "omitempty")
		}
		f, ok := fieldOf(typ, i, MessagePack)
		if !ok {
			continue
		}
		f.omits = omits || hasOption(f.Tag.Get(MessagePack), "omitempty")
		if inner, inlines := l.msgpackInner(f, outer, read); inlines {
			l.inline(f, inner, MessagePack)
			for _, one := range inner.fields {
				read[one.name] = f.add(one)
			}
			read[f.name] = f
			continue
		}
		own := f.Type.Kind() != reflect.Struct || !isPlain(f.Type)
		if f.Anonymous && !f.IsExported() && own { // it is not set, and its methods are not called
			l.unsettable = cmp.Or(l.unsettable, errUnsettable(f))
		}
		l.fields = append(l.fields, f)
		read[f.name] = f
		if f.alias != "" {
			read[f.alias] = f
		}
	}
	if len(outer) == 1 { // what is embedded is written as the struct around it is
		l.losses(read)
	}
	return l
}

// losses finds the fields of MessagePack that are written but not read, or not always written. read
// holds the fields that are read, by name.
func (l *layout) losses(read map[string]field) {
	for i, f := range l.fields {
		if l.array { // each field is written, in its place
			l.fields[i].omits = false
			continue
		}
		if other := read[f.name]; !slices.Equal(other.Index, f.Index) {
			l.lost = cmp.Or(l.lost, errSameName(f, other))
		}
		if f.omits && seemsEmpty(f.Type) {
			l.lost = cmp.Or(l.lost, errOmitted(f.path, f.Type))
		}
	}
}

// seemsEmpty reports whether MessagePack takes values of a type for empty that are not: without a
// method IsZero it checks the fields of a struct, although the encoder of the struct writes more.
func seemsEmpty(typ reflect.Type) bool {
	if typ.Kind() != reflect.Struct || typ.Implements(zeroer) || isPlain(typ) && !hides(typ) {
		return false
	}
	hidden, omits := false, false
	for _, f := range reflect.VisibleFields(typ) {
		tag := f.Tag.Get(MessagePack)
		omits = omits || f.Name == "_msgpack" && hasOption(tag, "omitempty")
		switch {
		case !f.IsExported():
			hidden = hidden || f.Type.Size() > 0
		case nameOf(f, MessagePack) == "-", f.Anonymous && isPlain(f.Type):
		case !omits && !hasOption(tag, "omitempty"):
			return false // it is always written
		}
	}
	return hidden
}

// msgpackInner returns the layout of a struct whose fields are written in place of the field that
// embeds it. inlines is false if f is written as a field.
func (l *layout) msgpackInner(
	f field, outer []reflect.Type, read map[string]field,
) (inner layout, inlines bool) {
	within, tag := pointed(f.Type), f.Tag.Get(MessagePack)
	forced := hasOption(tag, "inline")
	if !f.Anonymous || hasOption(tag, "noinline") || within.Kind() != reflect.Struct ||
		!forced && !isPlain(within) {
		return layout{}, false
	}
	if slices.Contains(outer, within) {
		return layout{endless: true, lost: errEmbedsItself(f)}, true
	}
	inner = msgpackLayout(within, outer)
	shadowed := func(one field) bool { _, taken := read[one.name]; return taken }
	if i := slices.IndexFunc(inner.fields, shadowed); i >= 0 {
		if !forced {
			return layout{}, false
		}
		one := inner.fields[i]
		l.lost = cmp.Or(l.lost, errSameName(f.add(one), read[one.name]))
		inner.fields = slices.DeleteFunc(inner.fields, shadowed)
	}
	return inner, true
}

// hasOption reports whether a tag has an option behind the name.
func hasOption(tag, option string) bool {
	_, options, _ := strings.Cut(tag, ",")
	return slices.Contains(strings.Split(options, ","), option)
}

// isPlain reports whether MessagePack writes and reads a struct field by field.
func isPlain(typ reflect.Type) bool {
	encodes, _ := encodesAs(MessagePack, typ, true)
	return !encodes && !decodesAs(MessagePack, typ)
}

// hides reports whether a struct has unexported fields with values, and no field that an encoding
// writes or that a tag leaves out.
func hides(typ reflect.Type, outer ...reflect.Type) bool {
	hidden := false
	for f := range typ.Fields() {
		switch {
		case f.Name == "_" || f.Type.Size() == 0:
		case f.Anonymous && pointed(f.Type).Kind() == reflect.Struct && f.Tag == "":
			hidden = hidden || !f.IsExported() || slices.Contains(outer, f.Type) || hides(pointed(f.Type), append(outer, f.Type)...)
		case f.IsExported():
			return false
		default:
			hidden = true
		}
	}
	return hidden
}
