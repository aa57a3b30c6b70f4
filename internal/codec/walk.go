package codec

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/midgehq/midge/storage"
)

// walk is a walk over a value that is to be encoded, along the parts that its encoder writes. It searches for
// values that do not come back, or for which the encoder has no end, unless texts or refused is set.
type walk struct {
	encoding string
	texts    bool // it searches for text that is not UTF-8
	refused  bool // it searches for the value that the encoder has refused
	untyped  bool // it is within an any, which is read as no type
	left     int  // how many parts it may still check
	level    int  // how many lists, maps and structs it is within
}

// walkDepth ends a walk along a cycle. It is well beyond maxDepth, because pointers and interfaces
// add no level to the encoded data, whose depth is checked exactly.
const walkDepth = 10 * maxDepth

// checkValue refuses a value that contains itself or is nested too deep, for which no encoder ends,
// values of interface types and embedded pointers that do not come back, and keys of maps that become one.
func (s *shape) checkValue(encoding string, v any) *problem {
	if s.lost != nil {
		return s.lost
	}
	w := walk{encoding: encoding, left: storage.MaxPayloadCap}
	return w.value(s, reflect.ValueOf(v), 0)
}

// replacement is what encoding/json writes for bytes of a text that are not UTF-8.
var replacement = []byte(`\ufffd`)

// checkText refuses a value whose encoded data has other text than the value.
func (s *shape) checkText(v any, data []byte) *problem {
	valid := !s.raw || utf8.Valid(data)
	if !s.text || valid && (bytes.IndexByte(data, '\\') < 0 || !bytes.Contains(data, replacement)) {
		return nil
	}
	w := walk{encoding: JSON, texts: true, left: storage.MaxPayloadCap}
	p := w.value(s, reflect.ValueOf(v), 0)
	if p == nil && !valid {
		p = errText()
	}
	return p
}

// findRefused returns the part of a value that its encoder has refused, or nil if it finds none.
func (s *shape) findRefused(encoding string, v any) *problem {
	if s == unknown {
		return nil
	}
	w := walk{encoding: encoding, refused: true, left: storage.MaxPayloadCap}
	return w.value(s, reflect.ValueOf(v), 0)
}

// value checks a value and the parts that are written of it.
func (w *walk) value(s *shape, v reflect.Value, depth int) *problem {
	w.left--
	switch {
	case depth > walkDepth:
		return errNested()
	case w.left < 0:
		return &problem{whole: errTooMany()}
	case w.encoding == JSON && s.typ == timeType && !w.texts && !w.refused:
		return checkMoment(v)
	case w.texts && s.encodes:
		return checkMarshaled(v)
	case w.refused && s.encodes:
		return w.ownError(v)
	case s.encodes || !w.looksInto(s):
		return nil
	}
	switch v.Kind() {
	case reflect.Interface:
		switch {
		case v.IsNil(), w.encoding == MessagePack && s.typ == errorType: // it is written, and read, as its text
			return nil
		case !w.texts && s.typ.NumMethod() > 0:
			return errInterface(s.typ)
		}
		return w.inAny(v.Interface(), depth)
	case reflect.Pointer:
		switch inside := v.Elem(); {
		case v.IsNil():
			return nil
		case depth > 0 && !w.untyped && s.mayFade(w.encoding) && inside.IsNil():
			return errNilBehind(s.typ)
		}
		return w.value(s.elem, v.Elem(), depth+1)
	case reflect.Struct:
		return w.fields(s, v, depth)
	case reflect.Map:
		return w.entries(s, v, depth)
	case reflect.Slice, reflect.Array:
		return w.items(s, v, depth)
	case reflect.String:
		if w.texts && !utf8.ValidString(v.String()) {
			return errText()
		}
	default:
		if w.refused {
			return w.refuses(v)
		}
	}
	return nil
}

// refuses returns the problem of a value that has no parts and that the encoder refuses.
func (w *walk) refuses(v reflect.Value) *problem {
	switch v.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return errUnsupported(v.Type(), w.encoding)
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); w.encoding == JSON && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return errNotFinite(f)
		}
	default:
	}
	return nil
}

// ownError returns the error of a value's own encoder as a problem. It calls the encoder again, because
// encoders do not name the fields whose errors they return.
func (w *walk) ownError(v reflect.Value) *problem {
	if v.CanAddr() {
		v = v.Addr()
	}
	if _, err := marshal(w.encoding, v.Interface()); err != nil {
		return &problem{cause: err}
	}
	return nil
}

// enter enters a list, a map or a struct. It reports whether that is nested too deep, if it has parts.
func (w *walk) enter() bool {
	w.level++
	return w.level > maxDepth
}

// fields checks the fields of a struct.
func (w *walk) fields(s *shape, v reflect.Value, depth int) *problem {
	if w.enter() && (w.encoding == JSON || slices.ContainsFunc(s.layout.fields, always)) {
		return errNested()
	}
	for i, of := range s.fields {
		f := &s.layout.fields[i]
		if !f.fades && !w.looksInto(of) {
			continue
		}
		one, ok := f.of(v)
		if !ok {
			continue
		}
		if f.fades && isZeroBehind(one) {
			return errZeroBehind(f.Type).in(f.path)
		}
		if p := w.leftOut(f, one); p != nil {
			return p
		}
		if p := w.value(of, one, depth+1); p != nil {
			return p.in(f.path)
		}
	}
	w.level--
	if w.texts || w.refused || w.untyped {
		return nil
	}
	return s.embeddedPointer(w.encoding, v)
}

// leftOut returns the problem of a value of an interface type that omitempty of MessagePack leaves out.
func (w *walk) leftOut(f *field, v reflect.Value) *problem {
	if !f.omits || v.Kind() != reflect.Interface || v.IsNil() {
		return nil
	}
	switch v = v.Elem(); {
	case seemsEmpty(v.Type()) && !v.IsZero():
		return errOmitted(f.path, v.Type())
	case !w.untyped && isLeftOut(v):
		return errLeftOut(f.path, v.Type())
	}
	return nil
}

// always reports whether MessagePack writes a field whatever its value is.
func always(f field) bool { return !f.omits }

// looksInto reports whether values of a type may hold what the walk searches for.
func (w *walk) looksInto(s *shape) bool {
	return w.refused || w.texts && s.text || !w.texts && (s.open || s.keyed || s.embeds || s.fades)
}

// items checks the items of a list, which may be bytes.
func (w *walk) items(s *shape, v reflect.Value, depth int) *problem {
	if s.elem == nil {
		return nil
	}
	if w.enter() && v.Len() > 0 {
		return errNested()
	}
	for i := range v.Len() {
		if p := w.value(s.elem, v.Index(i), depth+1); p != nil {
			return p.in("[]")
		}
	}
	w.level--
	return nil
}

var errorType = reflect.TypeFor[error]()

// inAny checks a value in a field of an interface type. The first cases only save time.
func (w *walk) inAny(v any, depth int) *problem {
	switch v := v.(type) {
	case nil, bool, int, int64:
		return nil
	case float64:
		if w.refused {
			return w.refuses(reflect.ValueOf(v))
		}
		return nil
	case string:
		if w.texts && !utf8.ValidString(v) {
			return errText()
		}
		return nil
	case map[string]any:
		if w.left--; w.left > 0 && depth < walkDepth {
			return w.inMap(v, depth+1)
		}
	}
	s := shapeOf(w.encoding, reflect.TypeOf(v))
	if bad := cmp.Or(s.lost, s.interns); bad != nil {
		return bad
	}
	defer func(outside bool) { w.untyped = outside }(w.untyped)
	w.untyped = true
	return w.value(s, reflect.ValueOf(v), depth+1)
}

// inMap checks the entries of the usual map.
func (w *walk) inMap(m map[string]any, depth int) *problem {
	if w.enter() && len(m) > 0 {
		return errNested()
	}
	for name, v := range m {
		if w.texts && !utf8.ValidString(name) {
			return errText().in("[key]")
		}
		if p := w.inAny(v, depth+1); p != nil {
			return p.in("[]")
		}
	}
	w.level--
	return nil
}

// entries checks the entries of a map.
func (w *walk) entries(s *shape, v reflect.Value, depth int) *problem {
	if m, ok := reflect.TypeAssert[map[string]any](v); ok { // this saves allocations
		return w.inMap(m, depth)
	}
	if w.enter() && v.Len() > 0 {
		return errNested()
	}
	if w.refused && !s.key.isKey(w.encoding) {
		return errUnsupported(s.typ, w.encoding)
	}
	var keys map[any]bool
	if !w.texts && s.hasOwnKeys(w.encoding) {
		keys = make(map[any]bool, v.Len())
	}
	for i := v.MapRange(); i.Next(); {
		p := w.key(s, i.Key(), depth+1)
		if p == nil && keys != nil {
			p = w.ownKey(s, i.Key(), keys)
		}
		if p != nil {
			return p.in("[key]")
		}
		if p := w.value(s.elem, i.Value(), depth+1); p != nil {
			return p.in("[]")
		}
	}
	w.level--
	return nil
}

// isKey reports whether an encoding has maps with keys of the type.
func (s *shape) isKey(encoding string) bool {
	kind := s.typ.Kind()
	return encoding == MessagePack || kind == reflect.String || kind >= reflect.Int && kind <= reflect.Uintptr ||
		s.typ.Implements(textMarshaler)
}

// isReadKey reports whether JSON reads the keys of the type that it writes.
func (s *shape) isReadKey() bool {
	return s.typ.Kind() == reflect.String || !s.typ.Implements(textMarshaler) || s.readsText()
}

// key checks a key of a map. Its text in JSON is the key itself if that is a text, whatever
// methods it has.
func (w *walk) key(s *shape, key reflect.Value, depth int) *problem {
	if !w.texts && (!w.refused || w.encoding == MessagePack) {
		return w.value(s.key, key, depth)
	}
	switch text, err := keyText(key); {
	case w.refused && err != nil:
		return &problem{cause: err}
	case w.texts && !utf8.Valid(text):
		return errText()
	}
	return nil
}

// keyText returns the text of a key in JSON.
func keyText(key reflect.Value) (text []byte, err error) {
	m, marshals := reflect.TypeAssert[encoding.TextMarshaler](key)
	switch {
	case key.Kind() == reflect.String:
		return []byte(key.String()), nil
	case marshals && (key.Kind() != reflect.Pointer || !key.IsNil()):
		return m.MarshalText()
	case key.CanInt():
		return strconv.AppendInt(nil, key.Int(), 10), nil
	case key.CanUint():
		return strconv.AppendUint(nil, key.Uint(), 10), nil
	}
	return nil, nil
}

// hasOwnKeys reports whether a map has keys that an encoding may write alike, or that no map of an
// any can have, or that JSON reads by a method but does not write by one. Other numbers and texts are
// none of these.
func (s *shape) hasOwnKeys(encoding string) bool {
	if s.key == nil {
		return false
	}
	kind := s.key.typ.Kind()
	if encoding == JSON {
		return s.key.encodes && kind != reflect.String || s.key.readsText()
	}
	return s.key.encodes || kind != reflect.String && kind > reflect.Float64
}

// ownKey checks a key of such a map. keys are the keys before it, as they are encoded.
func (w *walk) ownKey(s *shape, key reflect.Value, keys map[any]bool) *problem {
	data, err := keyText(key)
	if w.encoding == MessagePack {
		p := reflect.New(key.Type())
		p.Elem().Set(key)
		data, err = encodeMsgpack(p.Interface())
	}
	if err != nil { // the encoder of the whole value returns it too
		return nil
	}
	read := any(string(data)) // the decoder compares it with other keys by this
	if w.encoding == MessagePack && (w.untyped || isInterface(s.key)) {
		var back any
		if decodeMsgpack(data, &back) == nil {
			read = back
		}
		if back != nil && !reflect.TypeOf(back).Comparable() {
			return errKey(key.Type())
		}
	}
	if keys[read] {
		return errSameKey(s.typ)
	}
	keys[read] = true
	if w.encoding == JSON && !w.untyped && !readsBack(key, data) {
		return errKeyText(key.Type())
	}
	return nil
}

// readsText reports whether JSON reads a key of a map by a method.
func (s *shape) readsText() bool { return reflect.PointerTo(s.typ).Implements(textUnmarshaler) }

// readsBack reports whether a key of a map, which JSON may have written without a method, is read from its text
// by its method.
func readsBack(key reflect.Value, text []byte) bool {
	back := reflect.New(key.Type())
	u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](back)
	marshals := key.Kind() != reflect.String && key.Type().Implements(textMarshaler) // its methods are trusted
	return !ok || marshals || u.UnmarshalText(text) == nil && back.Elem().Equal(key)
}

// checkMarshaled checks the text that a value returns of itself.
func checkMarshaled(v reflect.Value) *problem {
	if v.Kind() != reflect.Pointer && v.CanAddr() {
		v = v.Addr()
	}
	var text []byte
	switch m := v.Interface().(type) {
	case json.Marshaler:
		text, _ = m.MarshalJSON() // the encoder would have returned an error
	case encoding.TextMarshaler:
		text, _ = m.MarshalText()
	}
	if !utf8.Valid(text) {
		return errText()
	}
	return nil
}
