package midge_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
)

// This file makes random types and random values of them. Whatever they are, a value that a job
// stores comes back the same, or is refused by an *InvalidError.

// word is a text with a name, and plain hides its content from both encodings.
type (
	word  string
	plain struct{ n int }
)

// randomLeaves are the types at the leaves of random types, each with a function that makes a value
// other than the zero value.
var randomLeaves = []struct {
	typ reflect.Type
	of  func(random *rand.Rand) any
}{
	{reflect.TypeFor[bool](), func(*rand.Rand) any { return true }},
	{reflect.TypeFor[int](), func(r *rand.Rand) any { return int(r.Int64()>>r.IntN(60)) | 1 }},
	{reflect.TypeFor[int8](), func(r *rand.Rand) any { return int8(r.IntN(256)) | 1 }},
	{reflect.TypeFor[int32](), func(r *rand.Rand) any { return int32(r.Uint32()) | 1 }},
	{reflect.TypeFor[uint16](), func(r *rand.Rand) any { return uint16(r.IntN(1<<16)) | 1 }},
	{reflect.TypeFor[uint64](), func(r *rand.Rand) any { return r.Uint64() | 1 }},
	{reflect.TypeFor[float32](), func(r *rand.Rand) any { return float32(r.NormFloat64()) }},
	{reflect.TypeFor[float64](), func(r *rand.Rand) any { return r.NormFloat64() * 1e9 }},
	{reflect.TypeFor[string](), func(r *rand.Rand) any { return randomText(r) }},
	{reflect.TypeFor[word](), func(r *rand.Rand) any { return word(randomText(r)) }},
	{reflect.TypeFor[[]byte](), func(r *rand.Rand) any { return []byte("\xff" + randomText(r)) }},
	{reflect.TypeFor[time.Time](), func(r *rand.Rand) any { return randomMoment(r) }},
	{reflect.TypeFor[netip.Addr](), func(r *rand.Rand) any { return netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(256))}) }},
	{reflect.TypeFor[*big.Int](), func(r *rand.Rand) any { return big.NewInt(r.Int64() | 1) }},
	{reflect.TypeFor[any](), func(r *rand.Rand) any { return []any{randomTree(r, 2)} }},
	{reflect.TypeFor[struct{}](), func(*rand.Rand) any { return struct{}{} }},
	{reflect.TypeFor[named](), func(r *rand.Rand) any { return named{randomText(r)} }},
	{reflect.TypeFor[coded](), func(r *rand.Rand) any { return coded{r.Int64N(1e6) + 1} }},
	{reflect.TypeFor[cents](), func(r *rand.Rand) any { return cents{r.Int64N(1e6) + 1} }},
	{reflect.TypeFor[binary](), func(r *rand.Rand) any { return binary{byte(r.IntN(255)) + 1} }},
	{reflect.TypeFor[plain](), func(r *rand.Rand) any { return plain{r.IntN(100) + 1} }},
	{reflect.TypeFor[reminder](), func(r *rand.Rand) any { return reminder{time.Unix(7, 0), randomText(r)} }},
	{reflect.TypeFor[meeting](), func(r *rand.Rand) any { return meeting{r.IntN(100) + 1, r.IntN(100) + 101} }},
	{reflect.TypeFor[stop](), func(r *rand.Rand) any { return stop{&base{r.IntN(100) + 1}} }},
	{reflect.TypeFor[fmt.Stringer](), func(*rand.Rand) any { return time.Second }},
	{reflect.TypeFor[error](), func(*rand.Rand) any { return errBroken }},
}

// safeLeaves is how many of the first leaves can be stored in both encodings.
const safeLeaves = 18

// randomText returns a text that is UTF-8 nine times in ten.
func randomText(random *rand.Rand) string {
	alphabet := []string{"é", "\u65e5", "😀", "\ufffd", "a", "\"", "\\", "u", "\x00", "<", "\u2028", "\xff", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80"}
	letters := 11
	if random.IntN(10) == 0 {
		letters = len(alphabet)
	}
	text := "a"
	for range random.IntN(6) {
		text += alphabet[random.IntN(letters)]
	}
	return text
}

// randomMoment returns a moment in a zone of whole minutes, in the years of both encodings.
func randomMoment(random *rand.Rand) time.Time {
	zone := time.FixedZone("", (random.IntN(24*60)-12*60)*60)
	edges := []time.Time{
		time.Unix(0, 0), time.Unix(-1, 999), time.Unix(1<<32, 1), time.Unix(1<<34, 1), time.Date(1, 1, 2, 0, 0, 0, 1, time.UTC),
		time.Date(9999, 12, 30, 23, 59, 59, 999999999, time.UTC),
	}
	if random.IntN(4) == 0 {
		return edges[random.IntN(len(edges))].In(zone)
	}
	return time.Unix(random.Int64N(1<<36)-1<<35, random.Int64N(1e9)).In(zone)
}

// randomTree returns a random value as an any holds it.
func randomTree(random *rand.Rand, depth int) any {
	kind := random.IntN(9)
	if depth == 0 {
		kind = random.IntN(6)
	}
	bits := random.Uint64() >> random.IntN(64)
	switch kind {
	case 0:
		return int64(bits)
	case 1:
		return bits
	case 2:
		return -int64(bits >> 1)
	case 3:
		return int32(bits)
	case 4:
		return random.NormFloat64() * math.Pow(10, float64(random.IntN(40)-20))
	case 5:
		return randomText(random)
	case 6:
		list := make([]any, random.IntN(3))
		for i := range list {
			list[i] = randomTree(random, depth-1)
		}
		return list
	default:
		table := map[string]any{}
		for range random.IntN(3) {
			table[randomText(random)] = randomTree(random, depth-1)
		}
		return table
	}
}

// randomTags are tags of random fields; two fields can have one name.
var randomTags = []reflect.StructTag{
	"", "", "", `json:"x"`, `msgpack:"x"`, `json:"y,omitempty" msgpack:"y,omitempty"`, `json:"-" msgpack:"-"`, `json:"F0"`, `msgpack:"F1"`,
}

// randomType returns a random type. With safe it has no leaf that cannot be stored, and no tag.
func randomType(random *rand.Rand, depth int, safe bool) reflect.Type {
	kind := random.IntN(9)
	if depth == 0 {
		kind = 0
	}
	switch kind {
	case 1:
		return reflect.SliceOf(randomType(random, depth-1, safe))
	case 2:
		return reflect.ArrayOf(1+random.IntN(2), randomType(random, depth-1, safe))
	case 3:
		keys := []reflect.Type{reflect.TypeFor[string](), reflect.TypeFor[word](), reflect.TypeFor[int](), reflect.TypeFor[uint8]()}
		if !safe {
			keys = append(keys, reflect.TypeFor[any](), reflect.TypeFor[time.Time](), reflect.TypeFor[coded](), reflect.TypeFor[[2]int]())
		}
		return reflect.MapOf(keys[random.IntN(len(keys))], randomType(random, depth-1, safe))
	case 4:
		if of := randomType(random, depth-1, safe); of.Kind() != reflect.Pointer && of.Kind() != reflect.Interface {
			return reflect.PointerTo(of) // JSON has one null for all pointers in a row
		}
	case 5, 6, 7:
		fields := make([]reflect.StructField, 1+random.IntN(4))
		for i := range fields {
			fields[i] = reflect.StructField{Name: fmt.Sprint("F", i), Type: randomType(random, depth-1, safe)}
			if !safe {
				fields[i].Tag = randomTags[random.IntN(len(randomTags))]
			}
		}
		return reflect.StructOf(fields)
	}
	if safe || random.IntN(5) > 0 {
		return randomLeaves[random.IntN(safeLeaves)].typ
	}
	return randomLeaves[random.IntN(len(randomLeaves))].typ
}

// randomValue returns a random value of a type. Nothing in it is nil or zero, so that a loss shows.
func randomValue(random *rand.Rand, typ reflect.Type) reflect.Value {
	v := reflect.New(typ).Elem()
	for _, leaf := range randomLeaves {
		if leaf.typ == typ {
			v.Set(reflect.ValueOf(leaf.of(random)))
			return v
		}
	}
	switch typ.Kind() {
	case reflect.Slice:
		v.Set(reflect.MakeSlice(typ, 1+random.IntN(2), 3))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).Set(randomValue(random, typ.Elem()))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(typ))
		for range 1 + random.IntN(2) {
			v.SetMapIndex(randomKey(random, typ.Key()), randomValue(random, typ.Elem()))
		}
	case reflect.Pointer:
		v.Set(reflect.New(typ.Elem()))
		v.Elem().Set(randomValue(random, typ.Elem()))
	default: // a struct
		for i := range v.NumField() {
			v.Field(i).Set(randomValue(random, typ.Field(i).Type))
		}
	}
	return v
}

// randomKey returns a random key of a map.
func randomKey(random *rand.Rand, typ reflect.Type) reflect.Value {
	switch {
	case typ.Kind() == reflect.Interface:
		return reflect.ValueOf([]any{int64(7), "a", [1]int{7}, named{"a"}}[random.IntN(4)])
	case typ.Kind() == reflect.Uint8:
		return reflect.ValueOf(byte(random.IntN(256)))
	}
	return randomValue(random, typ)
}

// storers are the calls by which a job stores a value, and readers read it back.
var (
	storers = map[string]func(ctx context.Context, v any) error{
		"SetResult": midge.SetResult, "Checkpoint": midge.Checkpoint, "Progress": midge.Progress,
	}
	readers = map[string]func(task midge.Task, v any) error{
		"SetResult": midge.DecodeResult, "Checkpoint": midge.DecodeCheckpoint, "Progress": midge.DecodeProgress,
	}
)

// randomStore stores each value by a running job, and reads it back. refusable reports whether a
// value may be refused.
func randomStore(t *testing.T, encoding midge.Encoding, values []reflect.Value, refusable func(reflect.Value) bool) {
	t.Helper()
	bubble(t, func(b *bench) {
		errs := make([]map[string]error, len(values))
		b.runner = b.newRunner(b.store, midge.RunnerConfig{Logger: zap.NewNop()}, nil)
		must(handleCarried(b.runner, encoding, func(ctx context.Context, i int) error {
			errs[i] = make(map[string]error)
			for call, store := range storers {
				errs[i][call] = store(ctx, values[i].Interface())
			}
			return nil
		}))
		go func() { b.done <- b.runner.Run(b.ctx) }()
		for i, v := range values {
			ref := must1(b.client.Enqueue(b.ctx, carrying(encoding, i), midge.KeepFor(time.Hour))).Ref
			b.after(time.Millisecond)
			task := b.task(ref)
			for call, read := range readers {
				err := errs[i][call]
				problem := storedProblem(encoding, call, v, err, func(v any) error { return read(task, v) })
				if err != nil && !refusable(v) {
					problem = fmt.Sprintf("got %v, want it accepted", err)
				}
				if problem != "" {
					b.Fatalf("%s, %s of a %v: %s", encoding, call, v.Type(), problem)
				}
			}
		}
	})
}

// storedProblem returns how a call broke the promise for a value that a job stored.
func storedProblem(encoding midge.Encoding, call string, v reflect.Value, err error, read func(v any) error) string {
	if err != nil {
		if !errors.As(err, new(*midge.InvalidError)) {
			return fmt.Sprintf("got %v, want an *InvalidError", err)
		}
		return ""
	}
	got := reflect.New(v.Type())
	if err := read(got.Interface()); err != nil {
		return fmt.Sprintf("it cannot be read: %v", err)
	}
	if call == "Progress" {
		if encoding = midge.JSON; holdsBadText(v) { // it is shown with U+FFFD
			return ""
		}
	}
	return difference("v", encoding, v, got.Elem())
}

// TestRandomValuesComeBackOrAreRefused has random types, of which many lose something.
func TestRandomValuesComeBackOrAreRefused(t *testing.T) {
	for i, encoding := range bothEncodings {
		random := rand.New(rand.NewPCG(2, uint64(i)))
		var values []reflect.Value
		for range 400 {
			typ := randomType(random, 3, false)
			if typ.Kind() == reflect.Interface {
				typ = reflect.SliceOf(typ) // a call sees the value in the interface, not the interface
			}
			values = append(values, randomValue(random, typ))
		}
		randomStore(t, encoding, values, func(reflect.Value) bool { return true })
	}
}

// TestRandomValuesOfSafeTypesAreAccepted has random types that lose nothing, so that a refusal of
// everything would not pass.
func TestRandomValuesOfSafeTypesAreAccepted(t *testing.T) {
	for i, encoding := range bothEncodings {
		random := rand.New(rand.NewPCG(3, uint64(i)))
		var values []reflect.Value
		for range 200 {
			values = append(values, randomValue(random, randomType(random, 3, true)))
		}
		randomStore(t, encoding, values, func(v reflect.Value) bool {
			return encoding == midge.JSON && holdsBadText(v)
		})
	}
}

// holdsBadText reports whether a value holds a text that is not UTF-8.
func holdsBadText(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && holdsBadText(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if holdsBadText(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if holdsBadText(key) || holdsBadText(v.MapIndex(key)) {
				return true
			}
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if holdsBadText(field) {
				return true
			}
		}
	default:
	}
	return false
}
