package midgetest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/codec"
)

// path is the position of a field in encoded parameters. The step "[]" leads into the first element
// of a list.
type path struct {
	steps []string
	value any
}

// String returns the path, such as Lines[].SKU.
func (p path) String() string {
	return strings.ReplaceAll(strings.Join(p.steps, "."), ".[]", "[]")
}

// name returns the name of the field at the end of the path.
func (p path) name() string {
	named := slices.DeleteFunc(slices.Clone(p.steps), func(step string) bool { return step == "[]" })
	if len(named) == 0 {
		return ""
	}
	return named[len(named)-1]
}

// generic decodes parameters into maps and lists.
func generic(encoding string, data []byte) (v any, err error) {
	err = codec.Decode(encoding, data, &v)
	return v, err
}

// pathsOf returns the paths of parameters, sorted.
func pathsOf(encoding string, data []byte) ([]path, error) {
	v, err := generic(encoding, data)
	if err != nil {
		return nil, err
	}
	return pathsIn(nil, v), nil
}

func pathsIn(steps []string, v any) (all []path) {
	if list, ok := v.([]any); ok && len(list) > 0 {
		return pathsIn(append(slices.Clone(steps), "[]"), list[0])
	}
	fields := fieldsOf(v)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		inside := append(slices.Clone(steps), name)
		all = append(all, path{inside, fields[name]})
		all = append(all, pathsIn(inside, fields[name])...)
	}
	return all
}

// fieldsOf returns the entries of a map by the texts of their keys, and nil for any other value. MessagePack
// has maps whose keys are no texts.
func fieldsOf(v any) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		return v
	case map[any]any:
		fields := make(map[string]any, len(v))
		for key, value := range v {
			fields[fmt.Sprint(key)] = value
		}
		return fields
	}
	return nil
}

// differing describes the first difference between two encodings of a job.
func differing(encoding string, data, other []byte) string {
	was, err1 := codec.Exact(encoding, data)
	is, err2 := codec.Exact(encoding, other)
	if err1 != nil || err2 != nil {
		return fmt.Sprintf("got %q, want %q", other, data)
	}
	values := make(map[string]any)
	for _, p := range pathsIn(nil, is) {
		values[p.String()] = p.value
	}
	for _, p := range slices.Backward(pathsIn(nil, was)) { // the innermost field first
		switch got := values[p.String()]; {
		case reflect.DeepEqual(got, p.value):
		case reflect.TypeOf(got) == reflect.TypeOf(p.value):
			return fmt.Sprintf("got %v for field %s, want %v", readable(got), p, readable(p.value))
		default:
			return fmt.Sprintf("got %T %v for field %s, want %T %v", got, readable(got), p, p.value, readable(p.value))
		}
	}
	return fmt.Sprintf("got %q, want %q", other, data)
}

// readable returns a value that prints as people read it.
func readable(v any) any {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return v
}

// removed encodes parameters without the value at a path.
func removed(encoding string, data []byte, steps []string) ([]byte, error) {
	v, err := generic(encoding, data)
	if err != nil {
		return nil, err
	}
	at := v
	for _, step := range steps[:len(steps)-1] {
		if list, ok := at.([]any); ok {
			at = list[0]
		} else {
			at = fieldsOf(at)[step]
		}
	}
	last := steps[len(steps)-1]
	switch inside := at.(type) {
	case map[string]any:
		delete(inside, last)
	case map[any]any:
		maps.DeleteFunc(inside, func(key, _ any) bool { return fmt.Sprint(key) == last })
	default:
		return nil, errors.New("no field")
	}
	return codec.Encode(encoding, v)
}

// exampleOf returns a job whose fields are not zero, the same job each time.
func exampleOf(typ reflect.Type) reflect.Value {
	v := reflect.New(typ)
	codec.Fill(v.Elem(), math.MinInt64) // which no unsigned type holds, and no narrower one
	return v
}

// nameOf returns a word for the kind of a value.
func nameOf(v any) string {
	switch v.(type) {
	case string:
		return "text"
	case bool:
		return "bool"
	case []byte:
		return "bytes"
	case time.Time:
		return "time"
	case []any:
		return "list"
	case map[string]any, map[any]any:
		return "object"
	case nil:
		return "nothing"
	}
	return "number"
}
