package codec

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// namesOf returns the names of stored fields that a job type reads, including earlier names. It
// returns nil where the type has its own decoder, and nobody can tell. Names of JSON are in lower
// case, because its decoder ignores case.
func namesOf(typ reflect.Type, encoding string) map[string]bool {
	if typ.Kind() != reflect.Struct || decodesItself(typ) {
		return nil
	}
	names := make(map[string]bool)
	for _, f := range reflect.VisibleFields(typ) {
		if !f.IsExported() && !f.Anonymous {
			continue
		}
		own := append(earlier(f), nameOf(f, encoding))
		if _, alias, ok := strings.Cut(f.Tag.Get(encoding), "alias:"); ok {
			alias, _, _ = strings.Cut(alias, ",")
			own = append(own, alias)
		}
		for _, name := range own {
			if encoding == JSON {
				name = strings.ToLower(name)
			}
			names[name] = true
		}
	}
	return names
}

// Unread returns the fields of a stored job that its type does not read, so that their values are
// ignored. Decode must have decoded the payload already.
func (p Parameters) Unread(encoding string, payload []byte) (fields []string) {
	names := p.names[encoding]
	switch {
	case names == nil:
	case encoding == JSON:
		var stored map[string]json.RawMessage
		if json.Unmarshal(payload, &stored) != nil {
			return nil
		}
		for field := range stored {
			if !names[strings.ToLower(field)] {
				fields = append(fields, field)
			}
		}
		slices.Sort(fields)
	default:
		msgpackFields(payload, func(field string, _, _ []byte) bool {
			if !names[field] {
				fields = append(fields, field)
			}
			return true
		})
	}
	return fields
}
