package codec

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/midgehq/midge/storage"
)

// problem is the reason why a value, or every value of a type, does not come back as it was.
type problem struct {
	path      string // of the field, such as Lines[].Price; "" for the whole value
	got, want string
	lost      string // the encoding that loses the value, "" if it is refused for another reason
	endless   bool   // path leads into a value that is nested too deep, so that its beginning is enough
	whole     error  // of a value that no field alone makes wrong; the other parts are then empty
	cause     error  // of the type's own encoder; only path goes with it
}

// in returns the problem as that of the value that holds the field.
func (p *problem) in(path string) *problem {
	if p == nil || p.whole != nil {
		return p
	}
	outer := *p
	if outer.path = joined(path, p.path); p.endless {
		outer.path = beginning(outer.path)
	}
	return &outer
}

// pathSteps bounds the path into a value that is nested too deep.
const pathSteps = 8

// beginning returns the first steps of a path.
func beginning(path string) string {
	steps := 0
	for i := range path {
		if i > 0 && (path[i] == '.' || path[i] == '[') {
			steps++
		}
		if steps == pathSteps {
			return path[:i] + "…"
		}
	}
	return path
}

// joined joins two paths.
func joined(outer, inner string) string {
	if outer == "" || inner == "" || inner[0] == '[' {
		return outer + inner
	}
	return outer + "." + inner
}

// of returns the problem as an error about a value of a type. what and name stand for the value in an
// error about all of it; the default of name is its fault.
func (p *problem) of(what, name string, typ reflect.Type) error {
	switch {
	case p.whole != nil:
		return p.whole
	case p.cause != nil && p.path == "":
		return p.cause
	case p.cause != nil:
		return fmt.Errorf("field %s of %v: %w", p.path, pointed(typ), p.cause)
	case p.path == "":
		return storage.Invalid(what, cmp.Or(name, p.got), "%s", p.want)
	}
	want := p.want
	if p.lost != "" {
		want += fmt.Sprintf("; `%s:\"-\"` leaves a field out", p.lost)
	}
	return storage.Invalid(fmt.Sprintf("field %s of %v", p.path, pointed(typ)), p.got, "%s", want)
}

// encoders names the methods by which a type encodes itself.
var encoders = map[string]string{
	MessagePack: "MarshalMsgpack, MarshalBinary or MarshalText",
	JSON:        "MarshalJSON or MarshalText",
}

func errNothingStored(typ reflect.Type, encoding string) *problem {
	typ = pointed(typ)
	want := fmt.Sprintf("exported fields in it, or %s with the method that reads it back: "+
		"%s stores nothing else of a type", encoders[encoding], encoding)
	other := JSON
	if encoding == JSON {
		other = MessagePack
	}
	inOther, _ := encodesAs(other, typ, true)
	switch encodes, _ := encodesAs(encoding, typ, true); {
	case encodes && encoding == JSON && !typ.Implements(jsonMarshaler) && !typ.Implements(textMarshaler):
		want = "pointers, or MarshalJSON or MarshalText with a value receiver: " +
			"json finds no method of a pointer for a value in a map, an array or an any"
	case !encodes && inOther && decodesAs(other, typ):
		want += fmt.Sprintf(", and calls none of its methods, as Options.Encoding %s does", other)
	}
	return &problem{got: fmt.Sprintf("of type %v", typ), want: want, lost: encoding}
}

func errSameName(lost, kept field) *problem {
	return &problem{
		path: lost.path, got: fmt.Sprintf("stored as %s, as field %s is", lost.name, kept.path),
		want: "a stored name of its own: of two fields with one name at most one comes back",
	}
}

func errEmbedsItself(f field) *problem {
	return &problem{
		got:  fmt.Sprintf("an embedded %v within itself", f.Type),
		want: "a field with a name: an embedded type cannot hold itself",
	}
}

func errOmitted(path string, typ reflect.Type) *problem {
	return &problem{
		path: path, got: fmt.Sprintf("a %v with the option omitempty", typ),
		want: "no such option, or a method IsZero of the type: msgpack takes each of these values for empty",
	}
}

func errLeftOut(path string, typ reflect.Type) *problem {
	return &problem{
		path: path, got: fmt.Sprintf("an empty %v with the option omitempty", typ),
		want: "no such option, or nil: msgpack leaves it out, so that it comes back as nil",
	}
}

func errEmbedded(f field, v reflect.Value) *problem {
	got := "an embedded %v of which nothing is stored"
	if v.IsNil() {
		got = "an embedded nil %v within an array"
	}
	return &problem{
		path: f.path, got: fmt.Sprintf(got, f.Type),
		want: "the struct itself instead of a pointer, or a field with a name: " +
			"this one does not come back as it was",
	}
}

func errUnsettable(f field) *problem {
	want := "an exported type, or a field with a name"
	if pointed(f.Type).Kind() == reflect.Struct {
		want += ", or the struct itself instead of a pointer"
	}
	return &problem{
		path: f.path, got: fmt.Sprintf("an embedded %v", f.Type),
		want: want + ": nothing can be decoded into this one",
	}
}

func errInterface(typ reflect.Type) *problem {
	return &problem{
		got: fmt.Sprintf("of type %v", typ), want: "a type that can be decoded, such as a struct or any: " +
			"no value can be decoded into an interface with methods",
	}
}

func errSameKey(typ reflect.Type) *problem {
	return &problem{
		got: fmt.Sprintf("two keys of %v that are stored alike", typ), want: "keys that differ as they are stored: of two only one comes back",
	}
}

func errKey(typ reflect.Type) *problem {
	return &problem{
		got: fmt.Sprintf("of type %v", typ), want: "a text, a number, a bool or a moment: " +
			"msgpack reads other keys of an any as values that no map can have as a key",
	}
}

func errKeyText(typ reflect.Type) *problem {
	return &problem{
		got: fmt.Sprintf("of type %v", typ), want: "a key that UnmarshalText reads as it is: " +
			"JSON writes a text itself, whatever MarshalText returns, and a number without MarshalText in digits",
	}
}

func errUnreadKey(typ reflect.Type) *problem {
	return &problem{
		path: "[key]", got: fmt.Sprintf("of type %v", typ),
		want: "a text, an integer, or a type with UnmarshalText: JSON reads no other keys",
	}
}

func errMalformed(why *malformedError) *problem {
	return &problem{
		got:  "a part that encodes itself badly: " + why.problem,
		want: "exactly one value of each part, also of a RawMessage",
	}
}

func errInterned(f field) *problem {
	return &problem{
		path: f.path, got: "the option intern in a type with a map or an any, or within an any",
		want: "no such option: entries are sorted, and an any is read without its type, " +
			"so that its numbers would stand for other texts or none",
	}
}

func errNilBehind(typ reflect.Type) *problem {
	return &problem{
		got: fmt.Sprintf("a %v to nil", typ),
		want: "nil itself, or what is not nil, such as an empty list: " +
			"a pointer to nil comes back as nil",
	}
}

func errZeroBehind(typ reflect.Type) *problem {
	return &problem{
		got: fmt.Sprintf("a %v to zero with the option omitempty or omitzero", typ),
		want: "no such option, or nil: its method IsZero makes the encoding leave it out, " +
			"so that it comes back as nil",
	}
}

func errZone() *problem {
	return &problem{
		got:  "a moment in a zone with seconds",
		want: "a zone of whole minutes, such as UTC: JSON leaves out the seconds, which makes it another moment",
	}
}

func errEndless(typ reflect.Type) *problem {
	return &problem{got: fmt.Sprintf("of type %v", typ), want: "a type that is not a pointer to itself"}
}

func errPromoted(name string, by reflect.Type, encoding string) *problem {
	return &problem{
		path: name, got: fmt.Sprintf("beside an embedded %v", by),
		want: fmt.Sprintf("a name for the embedded field, or methods of the type itself: "+
			"the methods promoted from %v (%s) store or read nothing else", by, encoders[encoding]),
		lost: encoding,
	}
}

func errNested() *problem {
	return &problem{got: "nested too deep", want: fmt.Sprintf("at most %d levels", maxDepth), endless: true}
}

func errUnsupported(typ reflect.Type, encoding string) *problem {
	return &problem{
		got: fmt.Sprintf("of type %v", typ), want: "a type that " + encoding + " can store", lost: encoding,
	}
}

func errNotFinite(f float64) *problem {
	return &problem{got: fmt.Sprint(f), want: "a finite number, as JSON has no other one; MessagePack stores it"}
}

func errText() *problem {
	return &problem{
		got:  "text that is not UTF-8",
		want: "UTF-8, as JSON holds no other text; a []byte holds any bytes, as do strings with MessagePack",
	}
}

// own returns why values of a type lose something, apart from the parts inside it.
func (s *shape) own(encoding string) *problem {
	switch {
	case s.typ.Kind() != reflect.Struct:
		return nil
	case !s.encodes && s.layout.lost != nil:
		return s.layout.lost
	case !s.encodes && s.isEmpty() && !s.registered(encoding):
		return errNothingStored(s.typ, encoding)
	case s.encodes || s.decodes:
		return s.displaced(encoding)
	}
	return nil
}

// unreadable returns why nothing can be decoded into a type, apart from the parts inside it.
func (s *shape) unreadable(encoding string) *problem {
	switch {
	case isInterface(s) && s.typ.NumMethod() > 0:
		return errInterface(s.typ)
	case encoding == JSON && s.key != nil && s.key.isKey(JSON) && !s.key.isReadKey():
		return errUnreadKey(s.key.typ)
	case s.typ.Kind() == reflect.Struct && !s.decodes && s.isEmpty() && s.encodes:
		return errNothingStored(s.typ, encoding)
	}
	return nil
}

// interned returns the problem of a struct with a field whose texts MessagePack numbers in their order.
func (s *shape) interned() *problem {
	for _, f := range s.layout.fields {
		if hasOption(f.Tag.Get(MessagePack), "intern") {
			return errInterned(f)
		}
	}
	return nil
}

// unsupported returns why an encoding has no values of a type, apart from the parts inside it.
func (s *shape) unsupported(encoding string) *problem {
	switch s.typ.Kind() {
	case reflect.Func, reflect.Chan, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
	case reflect.Map:
		if s.key == nil || s.key.isKey(encoding) {
			return nil
		}
	default:
		return nil
	}
	if s.encodes {
		return nil
	}
	return errUnsupported(s.typ, encoding)
}

// unsettable returns why a field of a struct cannot be decoded.
func (s *shape) unsettable() *problem {
	if s.decodes {
		return nil
	}
	return s.layout.unsettable
}

// isEmpty reports whether an encoding finds no field in a struct, although it has some.
func (s *shape) isEmpty() bool { return len(s.layout.fields) == 0 && hides(s.typ) }

// registered reports whether an encoder was registered for a struct by a function of the MessagePack
// library. Without one, a struct that hides its fields is an empty map.
func (s *shape) registered(encoding string) bool {
	if encoding != MessagePack {
		return false
	}
	defer func() { _ = recover() }()
	data, err := marshal(encoding, reflect.New(s.typ).Interface())
	return err != nil || string(data) != "\x80" && string(data) != "\x90" // a map or an array without items
}
