package codec

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/midgehq/midge/storage"
)

// renames says which fields of a struct had earlier names, and which fields hold structs with such
// fields. Its keys are the current names in one encoding. A list is described by its elements.
type renames struct {
	was    map[string][]string // the earlier names of a field, the oldest first
	within map[string]*renames
}

// CheckRenames refuses an earlier name that is also a name of another field of the struct.
func CheckRenames(typ reflect.Type) error {
	for _, encoding := range []string{MessagePack, JSON} {
		taken := make(map[string]string)
		for _, f := range reflect.VisibleFields(typ) {
			if f.IsExported() && !f.Anonymous {
				taken[nameOf(f, encoding)] = f.Name
			}
		}
		for _, f := range reflect.VisibleFields(typ) {
			for _, name := range earlier(f) {
				if other, ok := taken[name]; ok && other != f.Name {
					return storage.Invalid("tag of "+typ.String()+"."+f.Name, string(f.Tag), "earlier names that no other field has")
				}
				taken[name] = f.Name
			}
		}
	}
	return nil
}

// earlier returns the earlier names of a field, from its tag `midge:"was=older,was=old"`.
func earlier(f reflect.StructField) (names []string) {
	for part := range strings.SplitSeq(f.Tag.Get("midge"), ",") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(part), "was="); ok && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// nameOf returns the name that an encoding writes for a field.
func nameOf(f reflect.StructField, encoding string) string {
	name, _, _ := strings.Cut(f.Tag.Get(encoding), ",")
	if name == "" {
		return f.Name
	}
	return name
}

// OldestName returns the first name that a field had in an encoding.
func OldestName(f reflect.StructField, encoding string) string {
	return append(earlier(f), nameOf(f, encoding))[0]
}

// renamesOf examines a type. It returns nil where nothing in it was renamed.
func renamesOf(typ reflect.Type, encoding string, seen map[reflect.Type]bool) *renames {
	if seen[typ] {
		return nil // a type within itself is not examined again
	}
	seen[typ] = true
	defer delete(seen, typ)
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return renamesOf(typ.Elem(), encoding, seen)
	case reflect.Struct:
	default:
		return nil
	}
	if EncodesItself(typ) {
		return nil
	}
	r := &renames{was: make(map[string][]string), within: make(map[string]*renames)}
	for _, f := range reflect.VisibleFields(typ) {
		if !f.IsExported() || f.Anonymous {
			continue
		}
		name := nameOf(f, encoding)
		if was := earlier(f); was != nil {
			r.was[name] = was
		}
		if within := renamesOf(f.Type, encoding, seen); within != nil {
			r.within[name] = within
		}
	}
	if len(r.was)+len(r.within) == 0 {
		return nil
	}
	return r
}

// Oldest returns encoded data of a type, the parameters or a part of them, with the first names of
// its fields, in the order of [Canonical].
func (p Parameters) Oldest(typ reflect.Type, encoding string, data []byte) ([]byte, error) {
	if p.renamed == nil {
		return Canonical(encoding, data)
	}
	data, err := renamesOf(typ, encoding, make(map[reflect.Type]bool)).apply(encoding, data, true)
	if err != nil {
		return nil, err
	}
	return Canonical(encoding, data)
}

// apply returns data with the current names, or with the oldest. Data without renamed fields stays
// as it is.
func (r *renames) apply(encoding string, data []byte, oldest bool) ([]byte, error) {
	switch {
	case r == nil:
		return data, nil
	case encoding == JSON:
		return rename[json.RawMessage](r, data, oldest, json.Unmarshal, json.Marshal)
	}
	return rename[msgpack.RawMessage](r, data, oldest, msgpack.Unmarshal, msgpack.Marshal)
}

// rename does the work of apply for one encoding. R is the type of a part that stays encoded.
func rename[R ~[]byte](
	r *renames, data []byte, oldest bool, decode func([]byte, any) error, encode func(any) ([]byte, error),
) ([]byte, error) {
	var list []R
	if decode(data, &list) == nil && list != nil {
		for i := range list {
			one, err := rename[R](r, list[i], oldest, decode, encode)
			if err != nil {
				return nil, err
			}
			list[i] = one
		}
		return encode(list)
	}
	var fields map[string]R
	if decode(data, &fields) != nil || fields == nil {
		return data, nil //nolint:nilerr // its decoder says what is wrong with it
	}
	for _, name := range slices.Sorted(maps.Keys(r.was)) {
		was := r.was[name]
		if oldest {
			move(fields, name, was[0])
			continue
		}
		for _, old := range slices.Backward(was) {
			move(fields, old, name)
		}
	}
	for name, within := range r.within {
		if was := r.was[name]; oldest && was != nil {
			name = was[0]
		}
		part, ok := fields[name]
		if !ok {
			continue
		}
		one, err := rename[R](within, part, oldest, decode, encode)
		if err != nil {
			return nil, err
		}
		fields[name] = one
	}
	return encode(fields)
}

// move renames a field, unless a field has the new name already.
func move[R any](fields map[string]R, from, to string) {
	value, ok := fields[from]
	if _, taken := fields[to]; ok && !taken {
		fields[to] = value
		delete(fields, from)
	}
}
