package midge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
)

// This file has the promise about values in one function, check: a value comes back the same, or is
// refused by an *InvalidError.

var bothEncodings = []midge.Encoding{midge.MessagePack, midge.JSON}

// carry is a job that carries a value of one type, and carryJSON its twin in the other encoding.
type (
	carry[T any]     struct{ V T }
	carryJSON[T any] struct{ V T }
)

func (carry[T]) Kind() string               { return "carry" }
func (carryJSON[T]) Kind() string           { return "carry" }
func (carryJSON[T]) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

// carrying returns the job that carries v.
func carrying[T any](encoding midge.Encoding, v T) any {
	if encoding == midge.JSON {
		return carryJSON[T]{v}
	}
	return carry[T]{v}
}

// handleCarried registers a function for the jobs that carry values of T.
func handleCarried[T any](r *midge.Runner, encoding midge.Encoding, fn func(ctx context.Context, v T) error) error {
	if encoding == midge.JSON {
		return midge.Handle(r, func(ctx context.Context, j carryJSON[T]) error { return fn(ctx, j.V) })
	}
	return midge.Handle(r, func(ctx context.Context, j carry[T]) error { return fn(ctx, j.V) })
}

// fate is the outcome of a value that was enqueued within a job.
type fate[T any] struct {
	registered, enqueued error
	ran                  bool
	got                  T
	reason               string // why the task waits
}

// fateOf enqueues a job that carries v, and runs it if it was accepted.
func fateOf[T any](t *testing.T, encoding midge.Encoding, v T) (f fate[T]) {
	t.Helper()
	bubble(t, func(b *bench) {
		r := b.newRunner(b.store, midge.RunnerConfig{Logger: zap.NewNop()}, nil)
		f.registered = handleCarried(r, encoding, func(_ context.Context, got T) error {
			f.ran, f.got = true, got
			return nil
		})
		task, err := b.client.Enqueue(b.ctx, carrying(encoding, v))
		if f.enqueued = err; err != nil || f.registered != nil {
			return
		}
		b.runner = r
		go func() { b.done <- r.Run(b.ctx) }()
		b.after(time.Second)
		if left, err := b.store.Task(b.Context(), task.Ref); err == nil {
			f.reason = left.Reason
		}
	})
	return f
}

// check returns how a fate breaks the promise, "" if it keeps it.
func (f fate[T]) check(encoding midge.Encoding, v T) string {
	switch {
	case f.enqueued != nil && !errors.As(f.enqueued, new(*midge.InvalidError)):
		return fmt.Sprintf("Enqueue returned %v, want an *InvalidError", f.enqueued)
	case f.enqueued != nil:
		return ""
	case f.registered != nil:
		return fmt.Sprintf("Enqueue accepted the value, but Handle returned %v", f.registered)
	case !f.ran:
		return "Enqueue accepted the value, but the job never ran: " + f.reason
	}
	return difference("V", encoding, reflect.ValueOf(&v).Elem(), reflect.ValueOf(&f.got).Elem()) // T may be any
}

// wantsEither checks that a value comes back the same or is refused.
func wantsEither[T any](t *testing.T, name string, v T, encodings ...midge.Encoding) {
	t.Helper()
	for _, encoding := range encodings {
		if problem := fateOf(t, encoding, v).check(encoding, v); problem != "" {
			t.Errorf("%s, %s: %s", name, encoding, problem)
		}
	}
}

// difference returns where a value that came back differs from the value that was stored, "" if
// nowhere. Fields that are not stored by Go's rules do not count: unexported ones, and fields with
// the tag "-" of the encoding. An empty slice or map equals a nil one.
func difference(path string, encoding midge.Encoding, want, got reflect.Value) string {
	if !want.IsValid() || !got.IsValid() {
		if want.IsValid() != got.IsValid() {
			return fmt.Sprintf("%s came back as %v, want %v", path, got, want)
		}
		return ""
	}
	if want.Kind() == reflect.Interface || got.Kind() == reflect.Interface {
		return differenceInAny(path, encoding, inner(want), inner(got))
	}
	if want.Type() == reflect.TypeFor[time.Time]() {
		return differenceOfTimes(path, encoding, want, got)
	}
	unequal := func() string { return fmt.Sprintf("%s came back as %#v, want %#v", path, got, want) }
	switch want.Kind() {
	case reflect.Pointer:
		if want.IsNil() || got.IsNil() {
			if want.IsNil() != got.IsNil() {
				return unequal()
			}
			return ""
		}
		return difference(path, encoding, want.Elem(), got.Elem())
	case reflect.Slice, reflect.Array:
		if want.Len() != got.Len() {
			return unequal()
		}
		for i := range want.Len() {
			if d := difference(fmt.Sprintf("%s[%d]", path, i), encoding, want.Index(i), got.Index(i)); d != "" {
				return d
			}
		}
	case reflect.Map:
		return differenceOfMaps(path, encoding, want, got)
	case reflect.Struct:
		return differenceOfStructs(path, encoding, want, got)
	default:
		if !reflect.DeepEqual(want.Interface(), got.Interface()) {
			return unequal()
		}
	}
	return ""
}

// inner returns the value of an interface.
func inner(v reflect.Value) reflect.Value {
	for v.IsValid() && v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

func differenceOfTimes(path string, encoding midge.Encoding, want, got reflect.Value) string {
	w, g := want.Interface().(time.Time), got.Interface().(time.Time)
	if !w.Equal(g) || w.IsZero() != g.IsZero() {
		return fmt.Sprintf("%s came back as %v, want %v", path, g, w)
	}
	if encoding == midge.JSON && w.Format(time.RFC3339Nano) != g.Format(time.RFC3339Nano) {
		return fmt.Sprintf("%s came back as %v, want %v", path, g, w)
	}
	if encoding == midge.MessagePack && g.Location() != time.UTC {
		return fmt.Sprintf("%s came back in the zone %v, want UTC", path, g.Location())
	}
	return ""
}

func differenceOfMaps(path string, encoding midge.Encoding, want, got reflect.Value) string {
	if want.Len() != got.Len() {
		return fmt.Sprintf("%s came back with %d keys, want %d: %v, want %v", path, got.Len(), want.Len(), got, want)
	}
	others := got.MapKeys()
	for _, key := range want.MapKeys() {
		at := fmt.Sprintf("%s[%v]", path, key)
		same := func(other reflect.Value) bool { return difference("", encoding, key, other) == "" } // a moment changes its zone
		i := slices.IndexFunc(others, same)
		if i < 0 {
			return at + " did not come back"
		}
		if d := difference(at, encoding, want.MapIndex(key), got.MapIndex(others[i])); d != "" {
			return d
		}
	}
	return ""
}

func differenceOfStructs(path string, encoding midge.Encoding, want, got reflect.Value) string {
	typ := want.Type()
	exported := 0
	for i := range typ.NumField() {
		f := typ.Field(i)
		if !f.IsExported() && (!f.Anonymous || f.Type.Kind() != reflect.Struct) {
			continue
		}
		exported++
		if f.Tag.Get(string(encoding)) == "-" {
			continue
		}
		if d := difference(path+"."+f.Name, encoding, want.Field(i), got.Field(i)); d != "" {
			return d
		}
	}
	if exported == 0 && typ.NumField() > 0 && want.CanInterface() && !reflect.DeepEqual(want.Interface(), got.Interface()) {
		return fmt.Sprintf("%s came back as %+v, want %+v", path, got, want)
	}
	return ""
}

// differenceInAny compares values of interface types: numbers by their value and by the type that
// the encoding has for them, lists and maps by their elements.
func differenceInAny(path string, encoding midge.Encoding, want, got reflect.Value) string {
	unequal := func() string { return fmt.Sprintf("%s came back as %#v, want %#v", path, got, want) }
	if !want.IsValid() || !got.IsValid() {
		if want.IsValid() != got.IsValid() {
			return unequal()
		}
		return ""
	}
	if number, ok := wantedNumber(encoding, want); ok {
		if reflect.TypeOf(number) != got.Type() || !sameNumber(number, got.Interface()) {
			return fmt.Sprintf("%s came back as %T(%v), want %T(%v)", path, got.Interface(), got, number, number)
		}
		return ""
	}
	if want.Type() == got.Type() {
		return difference(path, encoding, want, got)
	}
	return unequal()
}

// wantedNumber returns the number as which a number of an any comes back: as MessagePack an int64
// if it fits, else a uint64; a float as it was; as JSON a json.Number.
func wantedNumber(encoding midge.Encoding, v reflect.Value) (number any, ok bool) {
	switch {
	case v.CanInt() && encoding == midge.MessagePack:
		return v.Int(), true
	case v.CanUint() && encoding == midge.MessagePack && v.Uint() <= math.MaxInt64:
		return int64(v.Uint()), true
	case v.CanUint() && encoding == midge.MessagePack:
		return v.Uint(), true
	case v.Kind() == reflect.Float64 && encoding == midge.MessagePack:
		return v.Float(), true
	case v.CanInt():
		return json.Number(strconv.FormatInt(v.Int(), 10)), true
	case v.CanUint():
		return json.Number(strconv.FormatUint(v.Uint(), 10)), true
	case v.Kind() == reflect.Float64:
		return json.Number(strconv.FormatFloat(v.Float(), 'g', -1, 64)), true
	}
	return nil, false
}

// sameNumber reports whether two numbers of one type have the same value.
func sameNumber(want, got any) bool {
	w, ok := want.(json.Number)
	if !ok {
		return want == got
	}
	a, okA := new(big.Rat).SetString(string(w))
	b, okB := new(big.Rat).SetString(string(got.(json.Number)))
	return okA && okB && a.Cmp(b) == 0
}

// named is a struct with one field, and coded a value that encodes itself as text.
type (
	named struct{ Name string }
	coded struct{ n int64 }
)

func (c coded) MarshalText() ([]byte, error)     { return strconv.AppendInt(nil, c.n, 10), nil }
func (c *coded) UnmarshalText(text []byte) error { return json.Unmarshal(text, &c.n) }

func TestAMapOfEachKindOfKeyIsReadOrRefused(t *testing.T) {
	one := 1
	wantsEither(t, "integers", map[int64]string{-1: "a", 1 << 40: "b"}, bothEncodings...)
	wantsEither(t, "small integers", map[uint8]string{0: "a", 255: "b"}, bothEncodings...)
	wantsEither(t, "booleans", map[bool]string{true: "a", false: "b"}, bothEncodings...)
	wantsEither(t, "floats", map[float64]string{0.5: "a", 1e300: "b"}, bothEncodings...)
	wantsEither(t, "arrays", map[[2]int]string{{1, 2}: "a"}, bothEncodings...)
	wantsEither(t, "arrays of bytes", map[[2]byte]string{{1, 2}: "a"}, bothEncodings...)
	wantsEither(t, "structs", map[named]string{{"a"}: "a"}, bothEncodings...)
	wantsEither(t, "texts of their own", map[coded]string{{1}: "a", {2}: "b"}, bothEncodings...)
	wantsEither(t, "bytes of their own", map[binary]string{{1}: "a", {2}: "b"}, bothEncodings...)
	wantsEither(t, "addresses", map[netip.Addr]string{netip.MustParseAddr("192.0.2.1"): "a"}, bothEncodings...)
	wantsEither(t, "any", map[any]string{"a": "a", [1]int{1}: "b"}, bothEncodings...)
	wantsEither(t, "pointers", map[*int]string{&one: "a"}, midge.JSON)
	wantsEither(t, "complex numbers", map[complex128]string{1: "a"}, bothEncodings...)
}

// The type of a value in an any is known by the value alone. A job reads each of them in some form,
// or Enqueue refuses it: none of them waits for a day and dies.
func TestAValueInAnAnyIsReadOrRefused(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, v := range map[string]any{
		"a struct": named{"a"}, "a pointer": &named{"a"}, "numbers by number": map[int]string{1: "a"}, "texts by bool": map[bool]string{true: "a"},
		"texts by any": map[any]string{"a": "b", 1: "c"}, "a moment": at, "bytes": []byte{1, 2}, "a text of its own": coded{7}, "an error": errBroken,
		"a list of structs": []named{{"a"}}, "an array": [2]int{1, 2}, "texts by a struct": map[named]string{{"a"}: "b"},
		"texts by a moment": map[time.Time]string{at: "a"}, "texts by texts": map[coded]string{{1}: "a"}, "hidden": cents{7},
	} {
		for _, encoding := range bothEncodings {
			f := fateOf(t, encoding, v)
			if f.enqueued != nil {
				wantsInvalid(t, name, f.enqueued, "")
			} else if !f.ran {
				t.Errorf("%s, %s: Enqueue accepted the value, but the job never ran: %s", name, encoding, f.reason)
			}
		}
	}
}

// omitting is a struct whose field is left out if it is empty.
type omitting[T any] struct {
	V T `json:",omitempty" msgpack:",omitempty"`
}

func TestOmitEmptyLosesNothing(t *testing.T) {
	wantsEither(t, "an address", omitting[netip.Addr]{netip.IPv6Loopback()}, bothEncodings...)
	wantsEither(t, "a text of its own", omitting[coded]{coded{7}}, bothEncodings...)
	wantsEither(t, "a big number", &omitting[big.Int]{*big.NewInt(7)}, bothEncodings...)
	wantsEither(t, "a moment", omitting[time.Time]{time.Unix(7, 0)}, bothEncodings...)
	wantsEither(t, "a struct", omitting[named]{named{"a"}}, bothEncodings...)
	wantsEither(t, "an array", omitting[[1]coded]{[1]coded{{7}}}, bothEncodings...)
	wantsEither(t, "a pointer", omitting[*coded]{&coded{}}, bothEncodings...)
	wantsEither(t, "an any", omitting[any]{"a"}, bothEncodings...)
}
