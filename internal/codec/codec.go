// Package codec encodes and decodes the parameters of jobs, and reports why encoded data does not
// fit a type. Results and checkpoints are encoded in the same way.
package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/midgehq/midge/storage"
)

// These are the names of the encodings, as tasks record them. Both write only exported fields and
// tolerate fields that they do not know.
const (
	MessagePack = "msgpack"
	JSON        = "json"
)

// CheckEncoding refuses the name of an unknown encoding. what names it in the error.
func CheckEncoding(what, encoding string) error {
	if encoding != MessagePack && encoding != JSON {
		return storage.Invalid(what, encoding, "%q or %q", MessagePack, JSON)
	}
	return nil
}

// Parameters encodes and decodes the jobs of one type. It has examined the type once.
type Parameters struct {
	typ           reflect.Type
	msgpack, json *shape
	maps          bool // values may hold maps, whose entries MessagePack writes in no order
	renames       bool // values may hold fields that had other names
}

// ParametersOf examines a job type.
func ParametersOf(typ reflect.Type) Parameters {
	p := Parameters{typ: typ, maps: hasMaps(typ, make(map[reflect.Type]bool))}
	if typ.Kind() == reflect.Struct {
		p.typ = reflect.PointerTo(typ)
	}
	p.msgpack, p.json = shapeOf(MessagePack, p.typ), shapeOf(JSON, p.typ)
	p.renames = p.msgpack.renames || p.json.renames
	return p
}

// Verifier is a storage of a test kit. It is shown each job that is encoded on it.
type Verifier interface {
	Verify(p Parameters, encoding string, payload []byte)
}

// Prepared is a storage of a test kit, for jobs whose methods BeforeEnqueue have been called already.
type Prepared interface{ Prepared() }

// Again decodes a job and encodes it again. The result is payload if the job comes back as it
// was; differing orders of maps do not count.
func (p Parameters) Again(encoding string, payload []byte) (again []byte, err error) {
	job := reflect.New(p.typ.Elem()).Interface()
	if err := p.Decode(encoding, payload, job); err != nil {
		return nil, err
	}
	if again, err = p.Encode(encoding, job); err != nil {
		return nil, err
	}
	one, err1 := Canonical(encoding, payload)
	other, err2 := Canonical(encoding, again)
	if err1 == nil && err2 == nil && bytes.Equal(one, other) {
		return payload, nil
	}
	return again, errors.Join(err1, err2)
}

// Type returns the job type.
func (p Parameters) Type() reflect.Type { return pointed(p.typ) }

// shape returns the shape of a value, which is a job or a part of one.
func (p Parameters) shape(encoding string, v any) *shape {
	typ := reflect.TypeOf(v)
	switch {
	case typ == p.typ && encoding == MessagePack:
		return p.msgpack
	case typ == p.typ && encoding == JSON:
		return p.json
	}
	return shapeOf(encoding, typ)
}

// Check returns an *InvalidError if the type shows that jobs do not come back as they were, or
// cannot be decoded.
func (p Parameters) Check(encoding string) error {
	s := p.shape(encoding, reflect.Zero(p.typ).Interface())
	bad := s.refused
	if bad == nil && p.maps && encoding == MessagePack {
		bad = s.interns
	}
	if bad != nil {
		return bad.of("job type", p.Type().String(), p.typ)
	}
	return nil
}

// CheckType returns an *InvalidError if a type shows that its values do not come back as they were, or
// cannot be encoded or decoded.
func CheckType(encoding string, typ reflect.Type) error {
	if bad := shapeOf(encoding, reflect.PointerTo(typ)).refused; bad != nil {
		return bad.of("value", "of type "+typ.String(), typ)
	}
	return nil
}

// Encode encodes a job, or a part of one; equal values are encoded as equal bytes.
func (p Parameters) Encode(encoding string, job any) ([]byte, error) {
	job = Addressable(job)
	payload, err := p.shape(encoding, job).encode(encoding, job, false)
	if err == nil && p.maps && encoding == MessagePack {
		err = sortMaps(payload)
	}
	return payload, err
}

// Decode decodes a job into job, a pointer. It refuses an encoded nil, which is not a job with zero
// parameters. Every error is a *DecodeError.
func (p Parameters) Decode(encoding string, payload []byte, job any) error {
	if encoding == MessagePack && bytes.Equal(payload, []byte{0xc0}) ||
		encoding == JSON && bytes.Equal(bytes.TrimSpace(payload), []byte("null")) {
		return newDecodeError(encoding, payload, job, &malformedError{"nothing encoded"})
	}
	s := p.shape(encoding, job)
	if s.clashes != nil { // the type was registered for the other encoding
		return newDecodeError(encoding, payload, job, s.clashes.whole)
	}
	if s.renames {
		payload = todaysNames.of(s, encoding, payload)
	}
	return s.decode(encoding, payload, job)
}

// DecodeStrict is Decode that refuses a payload with a field that the type does not read.
func (p Parameters) DecodeStrict(encoding string, payload []byte, job any) error {
	if err := p.Decode(encoding, payload, job); err != nil {
		return err
	}
	if unread := p.Unread(encoding, payload); len(unread) > 0 {
		problem := fmt.Sprintf("got a field %q, which %v does not have", unread[0], pointed(p.typ))
		return newDecodeError(encoding, payload, job, &malformedError{problem})
	}
	return nil
}

// Encode encodes v. A panic in the encoder of a field is an error.
func Encode(encoding string, v any) ([]byte, error) {
	v = Addressable(v)
	return shapeOf(encoding, reflect.TypeOf(v)).encode(encoding, v, false)
}

// EncodeShown encodes v as JSON that people look at: text that is not UTF-8 shows U+FFFD.
func EncodeShown(v any) ([]byte, error) {
	v = Addressable(v)
	b, err := shapeOf(JSON, reflect.TypeOf(v)).encode(JSON, v, true)
	return bytes.ToValidUTF8(b, []byte("\ufffd")), err
}

// encode encodes v, a value of the type that s describes. With anyText it accepts text that is not
// UTF-8.
func (s *shape) encode(encoding string, v any, anyText bool) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil {
			b, err = nil, fmt.Errorf("encode %T as %s: %w", v, encoding, err)
		}
	}()
	if s.lost != nil || s.open || s.keyed || s.embeds || s.fades {
		if p := s.checkValue(encoding, v); p != nil {
			return nil, p.of("value", "", reflect.TypeOf(v))
		}
	}
	if b, err = marshal(encoding, v); err != nil {
		if p := s.findRefused(encoding, v); p != nil {
			err = p.of("value", "", reflect.TypeOf(v))
		}
		return nil, err
	}
	if len(b) > maxDepth || s.raw && encoding == MessagePack { // each level takes at least one byte
		err = s.deepField(encoding, v, check(encoding, b))
		if malformed := (*malformedError)(nil); errors.As(err, &malformed) {
			err = errMalformed(malformed).of("value", "", reflect.TypeOf(v))
		}
	}
	if err == nil && !anyText && encoding == JSON {
		if p := s.checkText(v, b); p != nil {
			err = p.of("value", "", reflect.TypeOf(v))
		}
	}
	return b, err
}

// marshal encodes v, for which an encoder has an end.
func marshal(encoding string, v any) ([]byte, error) {
	switch encoding {
	case MessagePack:
		return encodeMsgpack(v)
	case JSON:
		return json.Marshal(v)
	}
	return nil, CheckEncoding("encoding", encoding)
}

// Decode decodes data into v, a pointer. Every error is a *DecodeError.
func Decode(encoding string, data []byte, v any) error {
	return shapeOf(encoding, reflect.TypeOf(v)).decode(encoding, data, v)
}

// DecodeShown decodes JSON of [EncodeShown] into v, a pointer. Its errors are those of
// json.Unmarshal.
func DecodeShown(data []byte, v any) error {
	s := shapeOf(JSON, reflect.TypeOf(v))
	if s.endless != nil {
		return s.endless.of("type", "", reflect.TypeOf(v))
	}
	return unmarshalJSON(data, v, s.anys)
}

// decode decodes data into v, a pointer to the type that s describes.
func (s *shape) decode(encoding string, data []byte, v any) error {
	if err := s.decodeAs(encoding, data, v); err != nil {
		return newDecodeError(encoding, data, v, err)
	}
	return nil
}

func (s *shape) decodeAs(encoding string, data []byte, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if err := CheckEncoding("encoding", encoding); err != nil {
		return err
	}
	if s.endless != nil {
		return s.endless.of("type", "", reflect.TypeOf(v))
	}
	if err := check(encoding, data); err != nil {
		return s.deepField(encoding, v, err)
	}
	if encoding == JSON {
		if err := unmarshalJSON(data, v, s.anys); err != nil {
			return err
		}
		return s.checkArrays(data)
	}
	if s.embeds {
		data = withoutNils.of(s, encoding, data)
	}
	if err := s.checkPlaces(data); err != nil {
		return err
	}
	if err := decodeMsgpack(data, v); err != nil {
		return err
	}
	s.mend(reflect.ValueOf(v), 0)
	return s.checkIntegers(data)
}

// unmarshalJSON is json.Unmarshal. With anys, numbers in parts of any type keep all their digits.
func unmarshalJSON(data []byte, v any, anys bool) error {
	if !anys {
		return json.Unmarshal(data, v)
	}
	if !json.Valid(data) { // the decoder would not read all of it
		return json.Unmarshal(data, new(any))
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	return in.Decode(v)
}

// Canonical returns encoded data with the fields of structs and the entries of maps sorted by name.
func Canonical(encoding string, data []byte) ([]byte, error) {
	if encoding == MessagePack {
		data = bytes.Clone(data)
		return data, sortMaps(data)
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber() // a number is compared as it is written, however large
	var v any
	if err := in.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// Addressable returns v, or a pointer to a copy of v if that is a struct, so that encoders with
// pointer receivers are found in its fields.
func Addressable(v any) any {
	value := reflect.ValueOf(v)
	if value.Kind() != reflect.Struct {
		return v
	}
	p := reflect.New(value.Type())
	p.Elem().Set(value)
	return p.Interface()
}

// EncodesItself reports whether a type, or a pointer to it, has an encoder of its own.
func EncodesItself(typ reflect.Type) bool {
	return implements(typ, msgpackMarshalers...) || implements(typ, jsonMarshaler)
}

// decodesItself reports whether a type, or a pointer to it, has a decoder of its own.
func decodesItself(typ reflect.Type) bool {
	return decodesAs(MessagePack, typ) || decodesAs(JSON, typ)
}

// maxDepth bounds the nesting of arrays, maps and structs in encoded data. A decoder whose
// recursion is too deep ends the process, and no recover prevents that.
const maxDepth = 100

func errTooMany() error {
	return storage.Invalid("value", fmt.Sprintf("of more than %d parts", storage.MaxPayloadCap),
		"at most %d bytes of them", storage.MaxPayloadCap)
}

// Check returns an error if data is not exactly one value of an encoding, with a bounded depth.
// Its text quotes nothing of data.
func Check(encoding string, data []byte) error {
	if err := CheckEncoding("encoding", encoding); err != nil {
		return err
	}
	if err := check(encoding, data); err != nil {
		return err
	}
	if encoding == JSON && !json.Valid(data) {
		return &malformedError{"syntax error"}
	}
	return nil
}

// check checks data that is to be decoded, now or later, without decoding it.
func check(encoding string, data []byte) error {
	if encoding == MessagePack {
		return checkMsgpack(data)
	}
	depth, text := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			text = !text
		case text:
			if c == '\\' {
				i++
			}
		case c == '[', c == '{':
			if depth++; depth > maxDepth {
				return &deepError{stepsJSON(data[:i])}
			}
		case c == ']', c == '}':
			depth--
		}
	}
	return nil
}

// DecodeError is the reason why encoded data could not be decoded. Its text quotes nothing of the
// data, which may be secret; errors.As finds the cause.
type DecodeError struct {
	Encoding string
	Problem  string
	into     reflect.Type
	cause    error
}

// newDecodeError explains why data could not be decoded into v.
func newDecodeError(encoding string, data []byte, v any, cause error) *DecodeError {
	e := &DecodeError{Encoding: encoding, into: reflect.TypeOf(v).Elem(), cause: cause}
	var (
		ofJSON    *json.UnmarshalTypeError
		syntax    *json.SyntaxError
		malformed *malformedError
		invalid   *storage.InvalidError
		outside   *mismatch
	)
	switch {
	case errors.As(cause, &outside):
		e.Problem = outside.Error()
	case errors.As(cause, &ofJSON):
		given := givenOf(ofJSON.Value, ofJSON.Type)
		e.Problem = (&mismatch{field: ofJSON.Field, given: given, into: ofJSON.Type, cause: cause}).Error()
	case errors.As(cause, &syntax):
		e.Problem = fmt.Sprintf("syntax error at byte %d", syntax.Offset)
	case errors.As(cause, &malformed):
		e.Problem = malformed.problem
	case errors.As(cause, &invalid):
		e.Problem = invalid.Error()
	default:
		e.Problem = findMismatch(encoding, data, e.into, cause).Error()
	}
	return e
}

// Error names the type, the encoding and the problem.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("%v from %s: %s", e.into, storage.PrintableText(e.Encoding, 64), e.Problem)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.cause }

// malformedError reports encoded data with a broken structure.
type malformedError struct{ problem string }

func (e *malformedError) Error() string { return e.problem }
