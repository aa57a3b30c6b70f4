package midge

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/storage"
)

// Unique keeps equal tasks of a kind from being enqueued beside each other in one queue. Enqueueing
// an equal task returns the existing task, with [Task].Existing set. The zero value compares all
// parameters for as long as a task lives. Parameters are compared by the names of their fields, in
// whatever order a type declares them.
//
// A Unique is declared on the type by [Options], or is an [Option] of one call. Equality is decided
// when a task is enqueued; no later change of the task or of the type changes its key.
//
// Encoded values are compared. A nil slice or map and an empty one are two values, in both
// encodings. With JSON one moment in two zones is two values, because the offset is a part of the
// text; MessagePack stores the moment alone. A window of For counts from the enqueueing, also of a
// task that is due later.
type Unique struct {
	// For is how long, from its enqueueing, a task keeps equal tasks out, whatever happens to the
	// task: at least a millisecond. With 0 it does so for its life, see Life.
	For time.Duration
	// Life means that a task keeps equal tasks out until it has ended: completed, dead, cancelled
	// or deleted. That is also the meaning of a zero Unique. Life and For together are refused,
	// because a key is held either until the task has ended or for a time, and no storage does
	// both.
	Life bool
	// By names the fields to compare. Default, also for an empty list: all parameters.
	By []string
	// Key is compared instead of the parameters. It is hashed, and never shown.
	Key string
	// Refuse makes the call return a *[DependencyError] instead of the existing task.
	Refuse bool
}

// check returns an *InvalidError if u does not suit the job type.
func (u Unique) check(d *definition) error {
	if err := checkSpan("Unique.For", u.For, "0"); err != nil {
		return err
	}
	if u.Life && u.For != 0 {
		return storage.Invalid("Unique", "with Life and For", "Life until the task has ended, or For a time")
	}
	if u.Key != "" && len(u.By) > 0 {
		return storage.Invalid("Unique", "with Key and By", "one of them")
	}
	seen := make(map[string]bool, len(u.By))
	for _, name := range u.By {
		if f, ok := d.typ.FieldByName(name); !ok || !f.IsExported() || seen[name] {
			return storage.Invalid("Unique.By", name, "an exported field of %v, each once", d.typ)
		}
		seen[name] = true
	}
	return nil
}

// set sets the unique key of an insert.
func (u Unique) set(in *storage.Insert, d *definition, job any) error {
	if err := u.check(d); err != nil {
		return err
	}
	by, values, err := u.values(in, d, job)
	if err != nil {
		return fmt.Errorf("unique key: %w", err)
	}
	in.Unique = storage.Unique{Mode: storage.UniqueLife, For: ceilMicrosecond(u.For)}
	if u.For > 0 {
		in.Unique.Mode = storage.UniqueWindow
	}
	// The mode is part of the key, so that a task that is unique for a time does not keep out a
	// task that is unique for its life.
	parts := append([][]byte{[]byte(d.oldest()), []byte(in.Unique.Mode), []byte(by)}, values...)
	in.Unique.Key = storage.UniqueKey(parts...)
	in.OnConflict = storage.Skip
	if u.Refuse {
		in.OnConflict = storage.Refuse
	}
	return nil
}

// values returns the compared values, and a word for the way in which they are compared.
func (u Unique) values(in *storage.Insert, d *definition, job any) (by string, values [][]byte, err error) {
	switch {
	case u.Key != "":
		return "key", [][]byte{[]byte(u.Key)}, nil
	case len(u.By) == 0:
		value, err := d.codec.Oldest(d.typ, in.Encoding, in.Payload)
		return "parameters", [][]byte{[]byte(in.Encoding), value}, err
	}
	v := reflect.Indirect(reflect.ValueOf(codec.Addressable(job)))
	var fields [][2]string // the oldest name and the encoded value of each field
	for _, name := range u.By {
		field, err := v.FieldByIndexErr(fieldIndex(d.typ, name))
		if err != nil {
			return "", nil, storage.Invalid("Unique.By", name, "a field that is there: its embedded struct is nil")
		}
		value, err := d.encodePart(string(d.options.Encoding), field.Addr().Interface())
		if err == nil {
			value, err = d.codec.Oldest(field.Type(), in.Encoding, value)
		}
		if err != nil {
			return "", nil, err
		}
		f, _ := d.typ.FieldByName(name)
		fields = append(fields, [2]string{codec.OldestName(f, in.Encoding), string(value)})
	}
	slices.SortFunc(fields, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	for _, f := range fields {
		values = append(values, []byte(f[0]), []byte(f[1]))
	}
	return "fields", values, nil
}

func fieldIndex(typ reflect.Type, name string) []int {
	f, _ := typ.FieldByName(name)
	return f.Index
}
