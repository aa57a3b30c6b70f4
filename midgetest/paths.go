package midgetest

import (
	"bytes"
	"encoding/json"
	"errors"
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
	if encoding == codec.JSON { // numbers keep their digits
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		err = d.Decode(&v)
		return v, err
	}
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
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			inside := append(slices.Clone(steps), name)
			all = append(all, path{inside, v[name]})
			all = append(all, pathsIn(inside, v[name])...)
		}
	case []any:
		if len(v) > 0 {
			all = pathsIn(append(slices.Clone(steps), "[]"), v[0])
		}
	}
	return all
}

// removed encodes parameters without the value at a path.
func removed(encoding string, data []byte, steps []string) ([]byte, error) {
	v, err := generic(encoding, data)
	if err != nil {
		return nil, err
	}
	at := v
	for _, step := range steps[:len(steps)-1] {
		switch inside := at.(type) {
		case map[string]any:
			at = inside[step]
		case []any:
			at = inside[0]
		}
	}
	inside, ok := at.(map[string]any)
	if !ok {
		return nil, errors.New("no field")
	}
	delete(inside, steps[len(steps)-1])
	return codec.Encode(encoding, v)
}

// exampleOf returns a job whose fields are not zero, the same job each time.
func exampleOf(typ reflect.Type) reflect.Value {
	v := reflect.New(typ)
	fill(v.Elem(), 0)
	return v
}

// fillDepth bounds recursive types.
const fillDepth = 8

// fill sets a value and all values inside it that can be set. Numbers get their highest value, so
// that a narrower type cannot decode them.
func fill(v reflect.Value, depth int) {
	switch {
	case depth > fillDepth || !v.CanSet():
		return
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 3, 1, 12, 30, 15, 0, time.UTC)))
		return
	case v.Kind() != reflect.Pointer && codec.EncodesItself(v.Type()):
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(math.MaxInt64 >> (64 - v.Type().Bits()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(math.MaxUint64 >> (64 - v.Type().Bits()))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1.5)
	case reflect.String:
		v.SetString("text")
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf("text"))
		}
	default:
		fillInside(v, depth+1)
	}
}

// fillInside fills a value that holds other values.
func fillInside(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth <= fillDepth {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), depth)
		}
	case reflect.Slice:
		if depth <= fillDepth {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), depth)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), depth)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth)
		fill(value, depth)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth)
		}
	default: // functions and channels are no parameters
	}
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
	case map[string]any:
		return "object"
	case nil:
		return "nothing"
	}
	return "number"
}
