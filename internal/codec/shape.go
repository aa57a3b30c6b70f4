package codec

import (
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/vmihailenco/msgpack/v5"
)

// shape is how an encoding writes and reads the values of a type. The shapes of a type and of the
// types inside it form a graph, which is made once.
type shape struct {
	typ     reflect.Type
	encodes bool // the type has an encoder of this encoding: its fields are its own matter
	textual bool // that encoder is MarshalText, whose output is a text of JSON
	decodes bool // the type has a decoder of this encoding

	layout layout            // of a struct
	fields []*shape          // of the fields of layout
	named  map[string]*shape // of the fields by the names that the decoder knows; nil for an ambiguous name
	was    map[string]*shape // of the fields by their earlier names
	key    *shape            // of a map
	elem   *shape            // of a map, slice, array or pointer
	low    int64             // lowest value of an integer
	high   uint64            // highest value of an integer; 0 for other types

	// These are the kinds of content that a value may hold at any depth.
	open     bool // itself or a value of any type, so that it may be nested without end
	keyed    bool // a map whose keys the encoding may make one
	text     bool // text that JSON would alter
	raw      bool // data that a part encodes by itself
	integers bool // integers that MessagePack reads
	arrays   bool // arrays that JSON reads
	anys     bool // fields of an interface type that are read
	mends    bool // values that MessagePack reads in another form than midge promises
	maps     bool // maps that MessagePack reads
	mapped   bool // maps, or structs that are written as maps, that MessagePack reads
	renames  bool // fields with earlier names
	embeds   bool // embedded pointers whose fields stand among others
	fades    bool // values that do not come back although others of their types do

	// These are set in the shape of a whole value only.
	nests   bool     // structs that are written as maps, and that MessagePack reads, are within it
	narrow  bool     // it may hold integers of less than 64 bits, or unsigned ones
	lost    *problem // why values do not come back whatever reads them
	interns *problem // why MessagePack cannot sort values, nor read them without their type
	refused *problem // lost, or why nothing can be decoded into the type
	endless *problem // why a decoder would not end
	clashes *problem // why an earlier name of a field is not its own
}

var msgpackShapes, jsonShapes sync.Map // shapes by type, remembered because types never change

// shapeOf returns the shape of values of a type; nil is the type of nil.
func shapeOf(encoding string, typ reflect.Type) *shape {
	shapes := &msgpackShapes
	switch {
	case typ == nil:
		return unknown
	case encoding == JSON:
		shapes = &jsonShapes
	case encoding != MessagePack:
		return unknown
	}
	known, ok := shapes.Load(typ)
	if !ok {
		known, _ = shapes.LoadOrStore(typ, makeShape(encoding, typ))
	}
	s, _ := known.(*shape)
	return s
}

// unknown is the shape of nil, and of values in an unknown encoding.
var unknown = &shape{typ: reflect.TypeFor[any]()}

func makeShape(encoding string, typ reflect.Type) *shape {
	g := shaper{encoding: encoding, known: make(map[shapeKey]*shape)}
	root := g.of(typ, false)
	endless := root.find((*shape).parts, (*shape).isEndless)
	for _, s := range g.known {
		s.renames = endless == nil && s.reaches((*shape).parts, func(s *shape) bool { return len(s.was) > 0 })
		s.embeds = s.reaches((*shape).parts, func(s *shape) bool { return len(s.layout.pointers) > 0 })
		s.open = s.mayNest(make(map[*shape]bool))
		s.fades = s.reaches((*shape).written, func(s *shape) bool { return s.mayFade(encoding) })
		s.keyed = s.reaches((*shape).written, func(s *shape) bool { return s.hasOwnKeys(encoding) })
		s.anys = s.reaches((*shape).read, isInterface)
		s.raw = s.reaches((*shape).written, func(s *shape) bool { return s.encodes && !s.textual || isInterface(s) })
		if encoding == JSON {
			s.text = s.reaches((*shape).written, mayHoldText)
			s.arrays = s.reaches((*shape).read, (*shape).isReadArray)
			continue
		}
		s.integers = s.reaches((*shape).read, (*shape).isInteger)
		s.maps = s.reaches((*shape).read, (*shape).isReadMap)
		s.mapped = s.maps || s.reaches((*shape).read, (*shape).isReadStruct)
		s.mends = s.reaches((*shape).read, func(s *shape) bool { return isInterface(s) || s.typ == timeType })
	}
	if whole := root.behindPointers(); whole != nil {
		root.nests = slices.ContainsFunc(whole.read(), func(part *shape) bool {
			return part.reaches((*shape).read, (*shape).isReadStruct)
		})
	}
	root.narrow = root.reaches((*shape).read, (*shape).isNarrow)
	if root.endless = endless; endless != nil {
		root.lost, root.refused = endless, endless
		return root
	}
	root.clashes = root.find((*shape).parts, func(s *shape) *problem {
		return cmp.Or(s.wrongTag(), s.clash(encoding))
	})
	root.lost = cmp.Or(
		root.find((*shape).written, func(s *shape) *problem { return s.own(encoding) }),
		root.find((*shape).read, (*shape).unsettable))
	if encoding == MessagePack {
		root.interns = root.find((*shape).written, (*shape).interned)
	}
	root.refused = cmp.Or(root.lost,
		root.find((*shape).read, func(s *shape) *problem { return s.unreadable(encoding) }),
		root.find((*shape).written, func(s *shape) *problem { return s.unsupported(encoding) }))
	return root
}

// shaper makes the shapes of a type and of the types inside it.
type shaper struct {
	encoding string
	known    map[shapeKey]*shape
}

// shapeKey names a shape. encoding/json finds methods of pointers only if it can take an address.
type shapeKey struct {
	typ         reflect.Type
	addressable bool
}

func (g *shaper) of(typ reflect.Type, addressable bool) *shape {
	addressable = addressable || g.encoding == MessagePack
	key := shapeKey{typ, addressable}
	if s, ok := g.known[key]; ok {
		return s
	}
	s := &shape{typ: typ}
	g.known[key] = s
	kind := typ.Kind()
	if kind != reflect.Pointer && kind != reflect.Interface { // these have the methods of their values
		s.encodes, s.textual = encodesAs(g.encoding, typ, addressable)
		s.decodes = decodesAs(g.encoding, typ)
	}
	if s.encodes && s.decodes {
		return s
	}
	switch kind {
	case reflect.Struct:
		g.fields(s, addressable)
	case reflect.Map:
		s.key, s.elem = g.of(typ.Key(), false), g.of(typ.Elem(), false)
	case reflect.Slice, reflect.Array:
		encodes, _ := encodesAs(g.encoding, typ.Elem(), true)
		if typ.Elem().Kind() != reflect.Uint8 || g.encoding == JSON && encodes { // otherwise bytes
			s.elem = g.of(typ.Elem(), addressable || kind == reflect.Slice)
		}
	case reflect.Pointer:
		s.elem = g.of(typ.Elem(), true)
	default:
		if s.isInteger() {
			s.bound()
		}
	}
	return s
}

// fields makes the shapes of a struct's fields.
func (g *shaper) fields(s *shape, addressable bool) {
	s.layout = layoutOf(s.typ, g.encoding)
	s.named, s.was = make(map[string]*shape), make(map[string]*shape)
	name := func(name string, of *shape) {
		if name = folded(g.encoding, name); name == "" {
			return
		}
		if other, taken := s.named[name]; taken && other != of {
			of = nil
		}
		s.named[name] = of
	}
	for i, f := range s.layout.fields {
		s.layout.fields[i].fades = f.mayFade(g.encoding)
		of := g.of(f.Type, addressable || f.behind)
		s.fields = append(s.fields, of)
		name(f.name, of)
		name(f.alias, of)
		for _, was := range earlier(f.StructField) {
			s.was[folded(g.encoding, was)] = of
		}
	}
	if g.encoding == MessagePack && !s.layout.endless {
		for _, f := range s.layout.embedded {
			name(f.name, g.of(f.Type, true))
		}
	}
}

// folded returns a name as a decoder compares it: JSON ignores its case, in any script.
func folded(encoding, name string) string {
	if encoding != JSON {
		return name
	}
	return strings.Map(func(letter rune) rune {
		for next := unicode.SimpleFold(letter); ; letter, next = next, unicode.SimpleFold(next) {
			if next <= letter { // the first of the letters that differ in their case
				return next
			}
		}
	}, name)
}

// written returns the shapes of the parts that are encoded one by one.
func (s *shape) written() []*shape {
	if s.encodes {
		return nil
	}
	return s.parts()
}

// read returns the shapes of the parts that are decoded one by one.
func (s *shape) read() []*shape {
	if s.decodes {
		return nil
	}
	return s.parts()
}

func (s *shape) parts() []*shape {
	parts := s.fields
	for _, one := range []*shape{s.key, s.elem} {
		if one != nil {
			parts = append(slices.Clip(parts), one)
		}
	}
	return parts
}

// reaches reports whether a value may hold a part that goal accepts.
func (s *shape) reaches(parts func(*shape) []*shape, goal func(*shape) bool) bool {
	seen := make(map[*shape]bool)
	var look func(s *shape) bool
	look = func(s *shape) bool {
		if seen[s] {
			return false
		}
		seen[s] = true
		return goal(s) || slices.ContainsFunc(parts(s), look)
	}
	return look(s)
}

// mayNest reports whether an encoder may come to a value of a type from a value of the same type, or
// to a value of any type. above holds true for the shapes on the way, and false for those that were
// looked at.
func (s *shape) mayNest(above map[*shape]bool) bool {
	if on, known := above[s]; known || isInterface(s) {
		return on || !known
	}
	above[s] = true
	defer func() { above[s] = false }()
	return slices.ContainsFunc(s.written(), func(part *shape) bool { return part.mayNest(above) })
}

// find returns the first problem of a value, or of a part of it.
func (s *shape) find(parts func(*shape) []*shape, look func(*shape) *problem) *problem {
	seen := make(map[*shape]bool)
	var at func(s *shape) *problem
	at = func(s *shape) *problem {
		if seen[s] {
			return nil
		}
		seen[s] = true
		if p := look(s); p != nil {
			return p
		}
		for i, part := range parts(s) {
			if p := at(part); p != nil {
				return p.in(s.step(i))
			}
		}
		return nil
	}
	return at(s)
}

// step returns the path to a part.
func (s *shape) step(part int) string {
	switch {
	case part < len(s.fields):
		return s.layout.fields[part].path
	case s.typ.Kind() == reflect.Pointer:
		return ""
	case part == 0 && s.key != nil:
		return "[key]"
	}
	return "[]"
}

func isInterface(s *shape) bool { return s.typ.Kind() == reflect.Interface }

// isEndless returns the problem of a type that a decoder would examine without end.
func (s *shape) isEndless() *problem {
	switch {
	case s.layout.endless:
		return s.layout.lost
	case s.typ.Kind() == reflect.Pointer && pointed(s.typ).Kind() == reflect.Pointer:
		return errEndless(s.typ)
	}
	return nil
}

// mayHoldText reports whether JSON writes values of the type as text, or in a way of their own.
func mayHoldText(s *shape) bool {
	kind := s.typ.Kind()
	return s.encodes || kind == reflect.String || kind == reflect.Map || kind == reflect.Interface
}

var timeType = reflect.TypeFor[time.Time]()

// These are the interfaces that the encodings search for, in their order.
var (
	jsonMarshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler     = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler   = reflect.TypeFor[encoding.TextUnmarshaler]()
	zeroer            = reflect.TypeFor[interface{ IsZero() bool }]()
	msgpackMarshalers = []reflect.Type{
		reflect.TypeFor[msgpack.CustomEncoder](), reflect.TypeFor[msgpack.Marshaler](),
		reflect.TypeFor[encoding.BinaryMarshaler](), textMarshaler,
	}
	jsonUnmarshalers = []reflect.Type{
		reflect.TypeFor[json.Unmarshaler](), textUnmarshaler,
	}
	msgpackUnmarshalers = []reflect.Type{
		reflect.TypeFor[msgpack.CustomDecoder](), reflect.TypeFor[msgpack.Unmarshaler](),
		reflect.TypeFor[encoding.BinaryUnmarshaler](), textUnmarshaler,
	}
)

// implements reports whether a type, or a pointer to it, has one of the interfaces.
func implements(typ reflect.Type, interfaces ...reflect.Type) bool {
	p := reflect.PointerTo(typ)
	for _, one := range interfaces {
		if typ.Implements(one) || p.Implements(one) {
			return true
		}
	}
	return false
}

// encodesAs reports whether a type has an encoder of an encoding, and whether that is MarshalText of
// JSON.
func encodesAs(encoding string, typ reflect.Type, addressable bool) (encodes, textual bool) {
	if encoding == MessagePack {
		return implements(typ, msgpackMarshalers...), false
	}
	has := func(one reflect.Type) bool {
		return typ.Implements(one) || addressable && reflect.PointerTo(typ).Implements(one)
	}
	if has(jsonMarshaler) {
		return true, false
	}
	return has(textMarshaler), has(textMarshaler)
}

// decodesAs reports whether a type has a decoder of an encoding.
func decodesAs(encoding string, typ reflect.Type) bool {
	if encoding == MessagePack {
		return implements(typ, msgpackUnmarshalers...)
	}
	return implements(typ, jsonUnmarshalers...)
}
