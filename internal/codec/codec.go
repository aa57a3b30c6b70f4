// Package codec encodes and decodes the parameters of jobs, and says why encoded data does not fit
// a type. Results and checkpoints are encoded in the same way.
package codec

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

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
	bounds *bounds
	maps   bool // values may hold maps, whose entries MessagePack writes in no order
	// renamed holds the fields that had other names, by encoding; nil where there are none.
	renamed map[string]*renames
	names   map[string]map[string]bool // names of the fields that are read, by encoding
}

// ParametersOf examines a job type.
func ParametersOf(typ reflect.Type) Parameters {
	p := Parameters{bounds: boundsOf(typ), maps: hasMaps(typ, make(map[reflect.Type]bool))}
	p.names = make(map[string]map[string]bool)
	for _, encoding := range []string{MessagePack, JSON} {
		p.names[encoding] = namesOf(typ, encoding)
		if r := renamesOf(typ, encoding, make(map[reflect.Type]bool)); r != nil {
			p.renamed = map[string]*renames{MessagePack: p.renamed[MessagePack], encoding: r}
		}
	}
	return p
}

// Encode encodes a job, or a part of one; equal values give equal bytes.
func (p Parameters) Encode(encoding string, job any) ([]byte, error) {
	payload, err := Encode(encoding, job)
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
	if r := p.renamed[encoding]; r != nil && check(encoding, payload) == nil {
		renamed, err := r.apply(encoding, payload, false)
		if err != nil {
			return newDecodeError(encoding, payload, job, err)
		}
		payload = renamed
	}
	return p.bounds.decode(encoding, payload, job)
}

// Encode encodes v. A panic in the encoder of a field is an error.
func Encode(encoding string, v any) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, fmt.Errorf("encode %T as %s: panic: %v", v, encoding, p)
		}
	}()
	v = Addressable(v)
	switch encoding {
	case MessagePack:
		b, err = encodeMsgpack(v)
	case JSON:
		b, err = json.Marshal(v)
	default:
		return nil, CheckEncoding("encoding", encoding)
	}
	if err == nil && len(b) > maxDepth { // each level takes at least one byte
		err = check(encoding, b)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %T as %s: %w", v, encoding, err)
	}
	return b, nil
}

// Decode decodes data into v, a pointer. Every error is a *DecodeError.
func Decode(encoding string, data []byte, v any) error {
	return boundsOf(reflect.TypeOf(v)).decode(encoding, data, v)
}

// decode decodes data into v, a pointer to the type that b describes.
func (b *bounds) decode(encoding string, data []byte, v any) error {
	err := decodeAs(encoding, data, v)
	if err == nil && encoding == MessagePack {
		err = b.check(data)
	}
	if err != nil {
		return newDecodeError(encoding, data, v, err)
	}
	return nil
}

func decodeAs(encoding string, data []byte, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if err := CheckEncoding("encoding", encoding); err != nil {
		return err
	}
	if err := check(encoding, data); err != nil {
		return err
	}
	if encoding == MessagePack {
		return decodeMsgpack(data, v)
	}
	return json.Unmarshal(data, v)
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
	switch reflect.New(typ).Interface().(type) {
	case msgpack.CustomEncoder, msgpack.Marshaler, json.Marshaler,
		encoding.BinaryMarshaler, encoding.TextMarshaler:
		return true
	}
	return false
}

// decodesItself reports whether a type, or a pointer to it, has a decoder of its own.
func decodesItself(typ reflect.Type) bool {
	switch reflect.New(typ).Interface().(type) {
	case msgpack.CustomDecoder, msgpack.Unmarshaler, json.Unmarshaler,
		encoding.BinaryUnmarshaler, encoding.TextUnmarshaler:
		return true
	}
	return false
}

// maxDepth bounds the nesting of arrays, maps and structs in encoded data. A decoder whose
// recursion is too deep ends the process, and no recover prevents that.
const maxDepth = 100

func errTooDeep() error {
	return storage.Invalid("nesting", "too deep", "at most %d levels", maxDepth)
}

// Check returns an error where data is not exactly one value of an encoding, with a bounded depth.
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
				return errTooDeep()
			}
		case c == ']', c == '}':
			depth--
		}
	}
	return nil
}

// DecodeError says why encoded data could not be decoded. Its text quotes nothing of the data,
// which may be secret; errors.As finds the cause.
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
		kind, _, _ := strings.Cut(ofJSON.Value, " ") // the value itself follows
		e.Problem = (&mismatch{field: ofJSON.Field, given: kind, into: ofJSON.Type, cause: cause}).Error()
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
