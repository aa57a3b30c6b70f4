package midge

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/midgehq/midge/storage"
)

// Encoding names how a job's parameters are written. It is recorded with each task,
// so that tasks of both encodings can stand in one queue and a kind can change from
// one to the other while tasks of it wait. A task's result and checkpoint have the
// encoding of its parameters.
type Encoding string

// The encodings. Both write exported fields alone, tolerate fields that they do not
// know, and write equal values as equal bytes, with the keys of maps sorted.
const (
	// MessagePack is the default: small and fast. Fields are renamed, or left out,
	// by the tag `msgpack:"name"`; json tags mean nothing to it. A time.Time keeps
	// its instant but not its zone: it is read in the local one. What stands in a field
	// of an interface type comes back as another: an int as an int64.
	MessagePack Encoding = "msgpack"
	// JSON is encoding/json, for parameters that people or other languages read. A
	// time.Time keeps its offset but not the name of its zone.
	JSON Encoding = "json"
)

// undecodableError says what of something encoded could not be read. Its text quotes nothing of the
// payload, which may be secret; the cause is there for errors.As.
type undecodableError struct {
	encoding string
	into     reflect.Type
	what     string
	cause    error
}

// undecodable explains why data could not be read into v.
func undecodable(encoding string, data []byte, v any, cause error) *undecodableError {
	e := &undecodableError{encoding: encoding, into: reflect.TypeOf(v).Elem(), cause: cause}
	var (
		misfits   *json.UnmarshalTypeError
		syntax    *json.SyntaxError
		malformed *malformedError
		invalid   *InvalidError
		outside   *misfit
	)
	switch {
	case errors.As(cause, &outside):
		e.what = outside.Error()
	case errors.As(cause, &misfits):
		kind, _, _ := strings.Cut(misfits.Value, " ") // behind it the value itself
		e.what = (&misfit{field: misfits.Field, given: kind, into: misfits.Type, cause: cause}).Error()
	case errors.As(cause, &syntax):
		e.what = fmt.Sprintf("syntax error at byte %d", syntax.Offset)
	case errors.As(cause, &malformed):
		e.what = malformed.what
	case errors.As(cause, &invalid):
		e.what = invalid.Error()
	default:
		e.what = findMisfit(Encoding(encoding), data, e.into, cause).Error()
	}
	return e
}

func (e *undecodableError) Error() string {
	return fmt.Sprintf("%v from %s: %s", e.into, storage.PrintableText(e.encoding, 64), e.what)
}

func (e *undecodableError) Unwrap() error { return e.cause }

// malformedError is a payload whose very structure is wrong.
type malformedError struct{ what string }

func (e *malformedError) Error() string { return e.what }

// encode writes v. A panic in a field's own encoder is an error.
func encode(encoding string, v any) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, fmt.Errorf("encode %T as %s: panic: %v", v, encoding, p)
		}
	}()
	v = addressable(v)
	switch Encoding(encoding) {
	case MessagePack:
		b, err = encodeMsgpack(v)
	case JSON:
		b, err = json.Marshal(v)
	default:
		return nil, checkEncoding("encoding", Encoding(encoding))
	}
	if err == nil && len(b) > maxDepth { // a level takes a byte at least
		err = check(Encoding(encoding), b)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %T as %s: %w", v, encoding, err)
	}
	return b, nil
}

// maxDepth bounds how many arrays, maps and structs of something encoded stand within each
// other. A decoder's recursion ends the process where it is too deep, which no recover
// prevents.
const maxDepth = 100

func errTooDeep() error {
	return storage.Invalid("nesting", "too deep", "at most %d levels", maxDepth)
}

// check looks at what is to be decoded, or was encoded and will be, without decoding it.
func check(encoding Encoding, data []byte) error {
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

// addressable gives a pointer to a struct, so that encoders with pointer receivers are
// found in its fields.
func addressable(v any) any {
	value := reflect.ValueOf(v)
	if value.Kind() != reflect.Struct {
		return v
	}
	p := reflect.New(value.Type())
	p.Elem().Set(value)
	return p.Interface()
}

// Decode reads the parameters of a task into job, a pointer to its type, by the
// encoding recorded with the task: for those who look at tasks, such as the match
// functions of [Queue.RequeueAll] or a page for operators. The error says what does not
// fit; nothing of the payload is quoted.
func Decode(t storage.Task, job any) error {
	if err := checkPointer(job); err != nil {
		return fmt.Errorf("midge: decode %s: %w", t.Ref, err)
	}
	if err := decodeJob(t.Encoding, t.Payload, job, shapeOf(reflect.TypeOf(job))); err != nil {
		return fmt.Errorf("midge: decode %s: %w", t.Ref, err)
	}
	return nil
}

// checkPointer checks what is to be decoded into.
func checkPointer(v any) error {
	if p := reflect.ValueOf(v); p.Kind() != reflect.Pointer || p.IsNil() {
		return storage.Invalid("value", fmt.Sprintf("of type %T", v), "a pointer that is not nil")
	}
	return nil
}

// decode reads data into v, a pointer. Every error is an *undecodableError.
func decode(encoding string, data []byte, v any) error {
	return decodeShaped(encoding, data, v, shapeOf(reflect.TypeOf(v)))
}

// decodeShaped is decode where the shape of what v points to is known.
func decodeShaped(encoding string, data []byte, v any, s *shape) error {
	err := decodeAs(Encoding(encoding), data, v)
	if err == nil && Encoding(encoding) == MessagePack {
		err = s.fits(data)
	}
	if err != nil {
		return undecodable(encoding, data, v, err)
	}
	return nil
}

func decodeAs(encoding Encoding, data []byte, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if err := checkEncoding("encoding", encoding); err != nil {
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

func checkEncoding(what string, e Encoding) error {
	if e != MessagePack && e != JSON {
		return storage.Invalid(what, string(e), "%q or %q", MessagePack, JSON)
	}
	return nil
}
