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

// Unique keeps equal tasks of a kind from being enqueued beside each other in one
// queue: the call gives the task that is there already, and says so by
// [Task].Existing. The zero value compares all parameters for as long as a task
// lives. Parameters are compared by the names of their fields, in whatever order a type
// declares them.
//
// A Unique is declared on the type by [Options], or is an [Option] of one call. What
// is equal is decided when a task is enqueued: no later change of it, nor of the
// type, moves its key.
type Unique struct {
	// For is how long from its enqueueing a task keeps equal ones out, whatever
	// becomes of it: at least a millisecond. 0 is as Life says.
	For time.Duration
	// Life says that a task keeps equal ones out until it has ended: completed, dead,
	// cancelled or deleted. It is so without Life too where For is 0. Life and For
	// together are refused: a key is held either until its task has ended or for a time, and no
	// storage does both.
	Life bool
	// By names the fields to compare. Default: all parameters.
	By []string
	// Key is compared instead of parameters; it is hashed, never shown.
	Key string
	// Refuse makes the call a *[DependencyError] instead of giving the task that is
	// there.
	Refuse bool
}

// check gives an *InvalidError where u does not suit the job type.
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

// set gives an insert its unique key.
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
	// The mode is part of the key, so that a window does not keep out what is unique
	// for its life.
	parts := append([][]byte{[]byte(d.oldest()), []byte(in.Unique.Mode), []byte(by)}, values...)
	in.Unique.Key = storage.UniqueKey(parts...)
	in.OnConflict = storage.Skip
	if u.Refuse {
		in.OnConflict = storage.Refuse
	}
	return nil
}

// values gives what is compared, and the name of the way in which it is.
func (u Unique) values(in *storage.Insert, d *definition, job any) (by string, values [][]byte, err error) {
	switch {
	case u.Key != "":
		return "key", [][]byte{[]byte(u.Key)}, nil
	case len(u.By) == 0:
		value, err := d.codec.Oldest(d.typ, in.Encoding, in.Payload)
		return "parameters", [][]byte{[]byte(in.Encoding), value}, err
	}
	v := reflect.Indirect(reflect.ValueOf(codec.Addressable(job)))
	var fields [][2]string // their oldest names, and what they hold
	for _, name := range u.By {
		field, err := v.FieldByIndexErr(fieldIndex(d.typ, name))
		if err != nil {
			return "", nil, storage.Invalid("Unique.By", name, "a field that is there: its embedded struct is nil")
		}
		value, err := d.encode(field.Addr().Interface())
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
