package codec

import (
	"reflect"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
)

// CheckRenames refuses, in the job type and the structs within it, a tag that names no earlier name, and an
// earlier name that is also a name of another field of its struct in an encoding.
func (p Parameters) CheckRenames(encoding string) error {
	if bad := p.shape(encoding, reflect.Zero(p.typ).Interface()).clashes; bad != nil {
		return bad.whole
	}
	return nil
}

// wrongTag returns the problem of a struct with a tag that has no effect.
func (s *shape) wrongTag() *problem {
	if s.typ.Kind() != reflect.Struct || s.encodes && s.decodes { // such a type reads its fields itself
		return nil
	}
	for f := range s.typ.Fields() {
		tag, ok := f.Tag.Lookup("midge")
		if !ok {
			continue
		}
		var want string
		switch names := earlier(f); {
		case len(names) <= strings.Count(tag, ","): // some part of it is no name
			want = "only earlier names of the field, such as `midge:\"was=oldest,was=old\"`"
		case names[len(names)-1] == nameOf(f, MessagePack) && names[len(names)-1] == nameOf(f, JSON):
			want = "another name at the end: the field has this one"
		case !s.hasField(MessagePack, f) && !s.hasField(JSON, f):
			want = "no earlier names of a field that is not stored under a name of its own"
		default:
			continue
		}
		return &problem{whole: storage.Invalid("tag midge of "+s.typ.String()+"."+f.Name, tag, "%s", want)}
	}
	return nil
}

// hasField reports whether an encoding writes a field of a struct under its name.
func (s *shape) hasField(encoding string, f reflect.StructField) bool {
	same := func(one field) bool { return slices.Equal(one.Index, f.Index) }
	return slices.ContainsFunc(layoutOf(s.typ, encoding).fields, same)
}

// clash returns the problem of a struct in which a field has an earlier name that another field has, or had.
func (s *shape) clash(encoding string) *problem {
	all := s.layout.fields
	if encoding == MessagePack { // it reads embedded structs under their own names too
		all = append(slices.Clip(all), s.layout.embedded...)
	}
	for _, f := range s.layout.fields {
		for _, name := range earlier(f.StructField) {
			has := func(of field) bool {
				names := append(earlier(of.StructField), of.name, of.alias)
				same := func(other string) bool { return folded(encoding, other) == folded(encoding, name) }
				return !slices.Equal(of.Index, f.Index) && slices.ContainsFunc(names, same)
			}
			if slices.ContainsFunc(all, has) {
				return &problem{whole: storage.Invalid("tag of "+s.typ.String()+"."+f.path, string(f.Tag),
					"earlier names that no other field has")}
			}
		}
	}
	return nil
}

// earlier returns the earlier names of a field, from its tag `midge:"was=older,was=old"`.
func earlier(f reflect.StructField) (names []string) {
	for part := range strings.SplitSeq(f.Tag.Get("midge"), ",") {
		name, ok := strings.CutPrefix(strings.TrimSpace(part), "was=")
		if ok && name != "" && !strings.HasPrefix(name, " ") {
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

// Oldest returns encoded data of a type, the parameters or a part of them, with the first names of
// its fields, in the order of [Canonical].
func (p Parameters) Oldest(typ reflect.Type, encoding string, data []byte) ([]byte, error) {
	if p.renames {
		data = oldestNames.of(shapeOf(encoding, reflect.PointerTo(typ)), encoding, data)
	}
	return Canonical(encoding, data)
}

// todaysNames and oldestNames rewrite the names of renamed fields at every depth, apart from types that
// both encode and decode themselves.
var (
	todaysNames = rewriting{concerns: hasRenames, change: (*shape).todaysNames}
	oldestNames = rewriting{concerns: hasRenames, change: (*shape).oldestNames}
)

func hasRenames(s *shape) bool { return s.renames }

// todaysNames renames the fields of an encoded struct that have earlier names. A field that is stored under
// several names has the value of the newest one, and of the last entry of that.
func (s *shape) todaysNames(encoding string, fields []entry) []entry {
	for _, f := range s.layout.fields {
		was := earlier(f.StructField)
		taken := was != nil && s.isAmong(encoding, f, fields)
		for _, old := range slices.Backward(was) {
			old = folded(encoding, old)
			if _, today := s.named[old]; today {
				continue
			}
			stored := func(e entry) bool { return folded(encoding, e.name) == old }
			if taken {
				fields = slices.DeleteFunc(fields, stored)
				continue
			}
			for i, e := range fields {
				if stored(e) {
					fields[i].rename(encoding, f.name)
					taken = true
				}
			}
		}
	}
	return fields
}

// isAmong reports whether an encoded struct has a field under a name of today.
func (s *shape) isAmong(encoding string, f field, fields []entry) bool {
	return slices.ContainsFunc(fields, func(e entry) bool {
		name := folded(encoding, e.name)
		return e.name == f.name || f.alias != "" && e.name == f.alias ||
			s.named[name] != nil && name == folded(encoding, f.name)
	})
}

// oldestNames renames the fields of an encoded struct to their first names.
func (s *shape) oldestNames(encoding string, fields []entry) []entry {
	oldest := make(map[string]string)
	for _, f := range s.layout.fields {
		if was := earlier(f.StructField); was != nil {
			oldest[f.name] = was[0]
		}
	}
	for i, e := range fields {
		if name, ok := oldest[e.name]; ok {
			fields[i].rename(encoding, name)
		}
	}
	return fields
}
