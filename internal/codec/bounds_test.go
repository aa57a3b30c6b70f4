package codec

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

type graded struct{ Level uint8 }

// bounded has integers of many types, wherever integers can be.
type bounded struct {
	graded
	Tiny   int8
	Short  int16
	Half   uint32
	Signed int64
	Whole  uint64
	Span   time.Duration
	Bytes  []byte
	List   []int16
	ByNum  map[uint8]int8
	Next   *bounded
	Many   []bounded
	Named  uint16 `msgpack:"n"`
	Own    selfMade
}

// selfMade has its own decoder.
type selfMade int8

func (s *selfMade) UnmarshalText(text []byte) error { *s = selfMade(len(text)); return nil }

func (s selfMade) MarshalText() ([]byte, error) { return make([]byte, 300), nil }

func TestAnIntegerThatDoesNotFitItsFieldIsRefused(t *testing.T) {
	for want, was := range map[string]any{
		`"Tiny", want int8`:           map[string]any{"Tiny": 300},
		`"Short", want int16`:         map[string]any{"Tiny": -128, "Short": -32769},
		`"Half", want uint32`:         map[string]any{"Half": uint64(1) << 32},
		`"Signed", want int64`:        map[string]any{"Signed": uint64(math.MaxInt64) + 1},
		`"Whole", want uint64`:        map[string]any{"Whole": -1},
		`"Span", want time.Duration`:  map[string]any{"Span": uint64(math.MaxUint64)},
		`"Level", want uint8`:         map[string]any{"Level": 256},
		`"List", want int16`:          map[string]any{"List": []int{1, 1 << 15}},
		`"ByNum", want uint8`:         map[string]any{"ByNum": map[int]int{256: 1}},
		`"ByNum", want int8`:          map[string]any{"ByNum": map[int]int{1: 128}},
		`"Next.Next.Tiny", want int8`: map[string]any{"Next": map[string]any{"Next": map[string]any{"Tiny": -129}}},
		`"Many.n", want uint16`:       map[string]any{"Many": []any{map[string]any{"n": 1}, map[string]any{"n": 1 << 16}}},
	} {
		data, err := Encode("msgpack", was)
		if err != nil {
			t.Fatal(err)
		}
		err = Decode("msgpack", data, new(bounded))
		if text := "codec.bounded from msgpack: got integer out of range for field " + want; !isDecodeError(err) || err.Error() != text {
			t.Errorf("got %v, want %s", err, text)
		}
	}
}

func TestIntegersAtTheirBoundsFit(t *testing.T) {
	for _, want := range []bounded{
		{},
		{
			graded: graded{math.MaxUint8}, Tiny: math.MaxInt8, Short: math.MaxInt16, Half: math.MaxUint32, Signed: math.MaxInt64,
			Whole: math.MaxUint64, Span: math.MaxInt64, Bytes: []byte{0, 255}, List: []int16{math.MaxInt16, math.MinInt16},
			ByNum: map[uint8]int8{255: 127, 0: -128}, Named: math.MaxUint16,
			Next: &bounded{Tiny: math.MinInt8, Short: math.MinInt16, Signed: math.MinInt64, Span: math.MinInt64},
			Many: []bounded{{Tiny: -1}, {Tiny: -33, Whole: 1 << 63}},
		},
	} {
		data, err := Encode("msgpack", want)
		if err != nil {
			t.Fatal(err)
		}
		var got bounded
		if err := Decode("msgpack", data, &got); err != nil {
			t.Errorf("got %v, want it to fit", err)
		}
		if fmt.Sprintf("%+v", got.List) != fmt.Sprintf("%+v", want.List) || got.Whole != want.Whole || got.Level != want.Level {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// outer hides a field of its embedded struct. Which of both fields the decoder fills does not
// matter.
type outer struct {
	Level int64
	graded
}

func TestNamesThatCollideAreNotLookedAt(t *testing.T) {
	for _, v := range []any{new(outer), new(struct {
		graded
		Level int64
	})} {
		data, err := Encode("msgpack", map[string]any{"Level": 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if err := Decode("msgpack", data, v); err != nil {
			t.Errorf("%T: got %v, want 1<<20 in an int64", v, err)
		}
	}
}

func TestOnlyWhatMayNotFitIsLookedAt(t *testing.T) {
	if s := shapeOf(MessagePack, reflect.TypeFor[struct {
		Text  string
		At    time.Time
		Bytes [16]byte
		Any   any
	}]()); s.integers || s.narrow {
		t.Errorf("without integers: got %+v, want nothing to look at", s)
	}
	if s := shapeOf(MessagePack, reflect.TypeFor[struct{ N int64 }]()); !s.integers || s.narrow {
		t.Errorf("with an int64: got %+v, want nothing narrow", s)
	}
}

func BenchmarkDecode(b *testing.B) {
	type wide struct {
		ID, To, Subject string
		User, Count     int64
	}
	type narrow struct {
		ID, To, Subject string
		User            int64
		Count           int32
	}
	for name, v := range map[string]any{
		"wide":   &wide{"a", "b@example.org", "hello", 7, 1},
		"large":  &wide{"a", "b@example.org", "hello", 1 << 60, 1},
		"narrow": &narrow{"a", "b@example.org", "hello", 7, 1},
	} {
		data, err := Encode("msgpack", v)
		if err != nil {
			b.Fatal(err)
		}
		unchecked := &shape{typ: reflect.TypeOf(v)}
		for _, s := range []*shape{unchecked, shapeOf(MessagePack, reflect.TypeOf(v))} {
			b.Run(fmt.Sprintf("%s/checked=%t", name, s != unchecked), func(b *testing.B) {
				for b.Loop() {
					if err := s.decode("msgpack", data, v); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// inOrder and levelOnly are written as arrays.
type (
	inOrder struct {
		_msgpack struct{} `msgpack:",as_array"` //nolint:unused // the encoder reads it
		Name     string
		Tiny     int8
		Within   levelOnly
		Rate     float64
	}
	levelOnly struct {
		_msgpack struct{} `msgpack:",as_array"` //nolint:unused // the encoder reads it
		Level    uint8
	}
)

func TestAnIntegerOfAnArrayThatDoesNotFitItsFieldIsRefused(t *testing.T) {
	for want, was := range map[string][]any{
		`"Tiny", want int8`:          {"a", 300, []any{1}, 1},
		`"Within.Level", want uint8`: {"a", 1, []any{256}, 1},
		`"Rate", want float64`:       {"a", 1, []any{255}, uint64(1) << 63},
	} {
		data, err := Encode("msgpack", was)
		if err != nil {
			t.Fatal(err)
		}
		var got inOrder
		err = Decode("msgpack", data, &got)
		if text := "got integer out of range for field " + want; !isDecodeError(err) || !strings.HasSuffix(err.Error(), text) {
			t.Errorf("got %+v, %v; want %s", got, err, text)
		}
	}
	data, err := Encode("msgpack", []any{"a", -128, []any{255}, 1 << 53})
	if err != nil {
		t.Fatal(err)
	}
	var got inOrder
	if err := Decode("msgpack", data, &got); err != nil || got.Tiny != -128 || got.Within.Level != 255 || got.Rate != 1<<53 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestAnIntegerThatAFloatReadsWithTheWrongSignIsRefused has integers that the decoder reads as negative ones.
func TestAnIntegerThatAFloatReadsWithTheWrongSignIsRefused(t *testing.T) {
	type floats struct {
		F64   float64
		F32   float32
		To    *float64
		List  []float64
		Fixed [2]float32
		ByNum map[string]float64
	}
	const large = uint64(10_000_000_000_000_000_000)
	for want, was := range map[string]any{
		`"F64", want float64`: map[string]any{"F64": large}, `"F32", want float32`: map[string]any{"F32": large},
		`"To", want float64`: map[string]any{"To": large}, `"List", want float64`: map[string]any{"List": []any{1, large}},
		`"Fixed", want float32`: map[string]any{"Fixed": []any{large, 1}},
		`"ByNum", want float64`: map[string]any{"ByNum": map[string]any{"a": large}},
	} {
		data, err := Encode("msgpack", was)
		if err != nil {
			t.Fatal(err)
		}
		var got floats
		err = Decode("msgpack", data, &got)
		if text := "got integer out of range for field " + want; !isDecodeError(err) || !strings.HasSuffix(err.Error(), text) {
			t.Errorf("got %+v, %v; want %s", got, err, text)
		}
	}
	data, err := Encode("msgpack", map[string]any{"F64": uint64(math.MaxInt64), "F32": -1, "List": []any{1e19, -7, 1.5}})
	if err != nil {
		t.Fatal(err)
	}
	var got floats
	if err := Decode("msgpack", data, &got); err != nil || got.F64 != math.MaxInt64 || got.F32 != -1 || got.List[0] != 1e19 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// arrayed has arrays wherever arrays can be.
type arrayed struct {
	Pair  [2]int
	Bytes [2]byte
	Deep  [][1][1]string
	By    map[string]*[1]bool `json:"by" msgpack:"by"`
	Next  *arrayed
	Own   [1]ownArray
}

// ownArray has its own decoder.
type ownArray [1]int

func (o *ownArray) UnmarshalText(text []byte) error { o[0] = len(text); return nil }

func (o ownArray) MarshalText() ([]byte, error) { return []byte("text"), nil }

// A list that is longer than its array does not fit, in either encoding. A shorter list does, and so does nil.
func TestAListThatIsLongerThanItsArrayIsRefused(t *testing.T) {
	for field, value := range map[string]any{
		"Pair": []int{1, 2, 3}, "Bytes": []int{1, 2, 3}, "Deep": [][][]string{{{"a"}}, {{"b"}, {"c"}}}, "by": map[string][]bool{"x": {true, true}},
		"Next.Next.Pair": []int{1, 2, 3}, "Own": []string{"a", "b"},
	} {
		names := strings.Split(field, ".")
		was := map[string]any{names[len(names)-1]: value}
		for _, outer := range slices.Backward(names[:len(names)-1]) {
			was = map[string]any{outer: was, "Pair": []int{1}}
		}
		for _, encoding := range []string{MessagePack, JSON} {
			data, err := Encode(encoding, was)
			if err != nil {
				t.Fatal(err)
			}
			err = Decode(encoding, data, new(arrayed))
			if want := fmt.Sprintf("for field %q", field); !isDecodeError(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: got %v, want an error %s", encoding, data, err, want)
			}
		}
	}
	fits := `{"pair":[1],"Bytes":null,"Deep":[[["]"]],[]],"by":{"[1,2]":[true],"n":null},"Other":[1,2,3],"Next":{"Pair":[1,2]},"Own":["a"]}`
	if err := Decode(JSON, []byte(fits), new(arrayed)); err != nil {
		t.Error(err)
	}
}
