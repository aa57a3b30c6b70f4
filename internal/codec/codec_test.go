package codec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

type inner struct {
	Name string
	Next *inner
}

// kitchen has a field of every kind of parameter.
type kitchen struct {
	Text     string
	Bytes    []byte
	Int      int
	Small    int8
	Big      uint64
	Float    float64
	Truth    bool
	Moment   time.Time
	Took     time.Duration
	List     []string
	Fixed    [2]int
	Map      map[string]int
	ByNumber map[int]string
	Inner    inner
	Pointer  *inner
	Any      any
	Number   big.Int  // its pointer type has the encoder
	Cost     *big.Rat // it has an encoder
	Renamed  string   `json:"-" msgpack:"r"`
}

func example() kitchen {
	return kitchen{
		Text: "grüße\x00\n", Bytes: []byte{0, 255}, Int: -1 << 40, Small: -128, Big: math.MaxUint64, Float: math.Pi, Truth: true,
		Moment: time.Date(2026, 3, 8, 2, 30, 0, 123456789, time.UTC), Took: 90 * time.Second, List: []string{"a", ""},
		Fixed: [2]int{1, 2}, Map: map[string]int{"b": 2, "a": 1}, ByNumber: map[int]string{3: "c", -1: "a"},
		Inner: inner{"in", nil}, Pointer: &inner{"out", &inner{}}, Any: map[string]any{"k": "v"},
		Number: *big.NewInt(7), Cost: big.NewRat(1, 3),
	}
}

func TestRoundTrip(t *testing.T) {
	for _, encoding := range []string{MessagePack, JSON} {
		for name, want := range map[string]kitchen{"filled": example(), "zero": {}} {
			b, err := Encode(encoding, want)
			if err != nil {
				t.Fatalf("%s %s: %v", encoding, name, err)
			}
			var got kitchen
			if err := Decode(encoding, b, &got); err != nil {
				t.Fatalf("%s %s: %v", encoding, name, err)
			}
			if !got.Moment.Equal(want.Moment) || got.Moment.IsZero() != want.Moment.IsZero() {
				t.Errorf("%s %s: got moment %v, want %v", encoding, name, got.Moment, want.Moment)
			}
			got.Moment = want.Moment
			if got.Number.Cmp(&want.Number) != 0 || (want.Cost != nil && got.Cost.Cmp(want.Cost) != 0) {
				t.Errorf("%s %s: got numbers %v and %v", encoding, name, &got.Number, got.Cost)
			}
			got.Number, got.Cost = want.Number, want.Cost
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s:\n got %+v\nwant %+v", encoding, name, got, want)
			}
		}
	}
}

// The zone of a time is not kept: jobs can rely only on the instant.
func TestTimesKeepTheirInstant(t *testing.T) {
	type job struct{ At time.Time }
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	for _, encoding := range []string{MessagePack, JSON} {
		for _, want := range []time.Time{
			{},
			time.Unix(0, 0), time.Unix(-1, 1), time.Date(2026, 10, 25, 2, 30, 0, 0, paris), time.Now(),
			time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		} {
			b, err := Encode(encoding, &job{want})
			if err != nil {
				t.Fatal(err)
			}
			var got job
			if err := Decode(encoding, b, &got); err != nil || !got.At.Equal(want) {
				t.Errorf("%s: got %v, %v; want %v", encoding, got.At, err, want)
			}
		}
	}
}

func TestIntegersOfAnyAreWide(t *testing.T) {
	var got struct{ V any }
	b, err := Encode("msgpack", &struct{ V any }{7})
	if err != nil {
		t.Fatal(err)
	}
	if err := Decode("msgpack", b, &got); err != nil || got.V != int64(7) {
		t.Errorf("got %T %v, %v; want an int64", got.V, got.V, err)
	}
}

func TestEqualJobsAreEqualBytes(t *testing.T) {
	type job struct {
		Nested map[string]map[int]any
		List   []any
	}
	make1 := func() job {
		j := job{Nested: map[string]map[int]any{}}
		for i := range 20 {
			j.Nested[strings.Repeat("k", i)] = map[int]any{i: map[string]int{"x": 1, "y": 2, "z": 3}, -i - 1: i, 300 * (i + 1): "v"}
		}
		j.List = []any{map[int]int{1: 2, 3: 4, 5: 6}}
		return j
	}
	of := ParametersOf(reflect.TypeFor[job]())
	want, err := of.Encode("msgpack", make1())
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if got, err := of.Encode("msgpack", make1()); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got other bytes for an equal job, %v", err)
		}
	}
	var back job
	if err := Decode("msgpack", want, &back); err != nil || len(back.Nested) != 20 || len(back.Nested["k"]) != 3 {
		t.Errorf("got %+v, %v; want all entries", back, err)
	}
}

func isDecodeError(err error) bool { return errors.As(err, new(*DecodeError)) }

// panicky panics when it is encoded or decoded.
type panicky struct{ X int }

func (*panicky) MarshalMsgpack() ([]byte, error) { panic("at the writer's") }
func (*panicky) UnmarshalMsgpack([]byte) error   { panic("at the reader's") }
func (*panicky) MarshalJSON() ([]byte, error)    { panic("at the writer's") }
func (*panicky) UnmarshalJSON([]byte) error      { panic("at the reader's") }

func TestPanicsOfFieldsAreErrors(t *testing.T) {
	for _, encoding := range []string{"msgpack", "json"} {
		if _, err := Encode(encoding, &struct{ P panicky }{}); err == nil || !strings.Contains(err.Error(), "at the writer's") {
			t.Errorf("%s: got %v, want the panic as an error", encoding, err)
		}
	}
	for encoding, payload := range map[string]string{"msgpack": "\x81\xa1P\x80", "json": `{"P":{}}`} {
		if err := Decode(encoding, []byte(payload), &struct{ P panicky }{}); !isDecodeError(err) {
			t.Errorf("%s: got %v, want it undecodable", encoding, err)
		}
	}
}

func TestUnsupportedFieldsAreErrors(t *testing.T) {
	type line struct{ Price float64 }
	nan := line{math.NaN()}
	for _, c := range []struct {
		path [2]string
		v    any
	}{
		{both("F"), &struct{ F func() }{}},
		{both("C"), &struct{ C chan int }{make(chan int)}},
		{both("Z"), &struct{ Z complex128 }{}},
		{both("Lines[].F"), &struct{ Lines []struct{ F func() } }{make([]struct{ F func() }, 1)}},
		{both("Any[]"), &struct{ Any any }{[]any{1, 1.5, make(chan int)}}},
		{[2]string{"", "Lines[].Price"}, &struct{ Lines []line }{[]line{{1}, nan}}},
		{[2]string{"", "Any[].Price"}, &struct{ Any any }{map[string]any{"a": &nan}}},
		{[2]string{"", "Any[]"}, &struct{ Any any }{[]any{1.5, math.Inf(-1)}}},
		{[2]string{"", "Small"}, &struct{ Small float32 }{float32(math.Inf(1))}},
		{[2]string{"", "ByLine"}, &struct{ ByLine map[line]int }{}},
	} {
		for i, encoding := range []string{MessagePack, JSON} {
			_, err := Encode(encoding, c.v)
			wantPath(t, fmt.Sprintf("%s of %T", encoding, c.v), err, c.path[i])
		}
	}
	if _, err := Encode("canary", &struct{ A *int }{}); err == nil {
		t.Error("an unknown encoding: got no error")
	}
}

func TestUndecodableTextQuotesNothing(t *testing.T) {
	type job struct {
		At    time.Time
		Count int
	}
	for encoding, payloads := range map[string][]string{
		"json":    {`{"At":"canary"}`, `{"Count":"canary"}`, `{"Count":1e99}`, `canary`, `{"Count":3.14159}`},
		"msgpack": {"\x81\xa2At\xa6canary", "\x81\xa5Count\xa6canary", "\xa6canary"},
		"canary!": {"{}"},
	} {
		for _, payload := range payloads {
			err := Decode(encoding, []byte(payload), new(job))
			if !isDecodeError(err) {
				t.Fatalf("%s %q: got %v, want it undecodable", encoding, payload, err)
			}
			if text := err.Error(); encoding != "canary!" && strings.Contains(text, "canary") || strings.Contains(text, "1e99") || strings.Contains(text, "3.14") {
				t.Errorf("%s %q: %q quotes the payload", encoding, payload, text)
			}
		}
	}
}

// changed is a job whose parameters have changed.
type changed struct {
	Count   int
	At      time.Time
	Inner   struct{ Deep struct{ Truth bool } }
	Next    *changed
	List    []int
	Renamed string `json:"r" msgpack:"r"`
}

func TestAMismatchNamesItsField(t *testing.T) {
	deep := func(v any) any { return map[string]any{"Deep": map[string]any{"Truth": v}} }
	for _, c := range []struct {
		given         any
		packed, asked string // of MessagePack and JSON
	}{
		{map[string]any{"Gone": 1, "Count": "x"}, `got string for field "Count", want int`, ""},
		{map[string]any{"Count": 1.5}, `got float for field "Count", want int`, `got number with a fraction for field "Count", want int`},
		{map[string]any{"Count": json.Number("1e3")}, `got string for field "Count", want int`, `got number with an exponent for field "Count", want int`},
		{map[string]any{"Count": uint64(1 << 63)}, `got integer out of range for field "Count", want int`, `got number out of range for field "Count", want int`},
		{map[string]any{"Inner": deep("x")}, `got string for field "Inner.Deep.Truth", want bool`, ""},
		{map[string]any{"Next": map[string]any{"Count": []int{1}}}, `got array for field "Next.Count", want int`, ""},
		{map[string]any{"r": true}, `got bool for field "r", want string`, ""},
		{
			map[string]any{"List": []any{"x"}},
			`got array for field "List" whose elements do not all fit, want []int`,
			`got string for field "List", want int`,
		},
		{
			map[string]any{"At": "noon"},
			`got string for field "At", which the decoder of time.Time refused (*errors.errorString)`,
			`got string for field "At", which the decoder of time.Time refused (*time.ParseError)`,
		},
		{"x", `got string, want codec.changed`, ""},
		{[]byte{1}, `got bytes, want codec.changed`, `got string, want codec.changed`},
	} {
		for _, e := range []struct {
			name string
			want string
		}{{MessagePack, c.packed}, {JSON, cmp.Or(c.asked, c.packed)}} {
			data, err := Encode(e.name, c.given)
			if err != nil {
				t.Fatal(err)
			}
			want := "codec.changed from " + e.name + ": " + e.want
			if err := Decode(e.name, data, new(changed)); err == nil || err.Error() != want {
				t.Errorf("%v: got %v, want %s", c.given, err, want)
			}
		}
	}
}

// Finding the field that does not fit costs only a few times as much as decoding.
func TestADeepMismatchIsFoundInTime(t *testing.T) {
	data := []byte(strings.Repeat("\x82\xa1Z\x01\xa4Next", maxDepth-1) + "\x81\xa5Count\xa1x")
	begun := testserver.ProcessorTime(t)
	err := Decode("msgpack", data, new(changed))
	if err == nil || !strings.Contains(err.Error(), `"Next.Next.Next.Next.Next.Next.Next.Next" whose elements do not all fit`) {
		t.Errorf("got %v, want it undecodable, somewhere behind eight steps", err)
	}
	if took := testserver.ProcessorTime(t) - begun; took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// A hostile or damaged payload that announces a large size must not cause a large allocation.
func TestBombs(t *testing.T) {
	type job struct {
		List []struct{ Pad [1 << 12]byte }
		Map  map[string][1 << 12]byte
		Any  any
	}
	for name, payload := range map[string]string{
		"a deep array":     "\x81\xa3Any" + strings.Repeat("\x91", 1<<20),
		"a deep map":       "\x81\xa3Any" + strings.Repeat("\x81\x01", 1<<19),
		"an endless list":  "\x81\xa4List\xdd\xff\xff\xff\xff",
		"an endless array": "\x81\xa3Any\xdd\xff\xff\xff\xff",
		"an endless map":   "\x81\xa3Map\xdf\xff\xff\xff\xff",
		"an endless text":  "\x81\xa3Any\xdb\xff\xff\xff\xff",
		"endless bytes":    "\x81\xa3Any\xc6\xff\xff\xff\xff",
		"an endless ext":   "\x81\xa3Any\xc9\xff\xff\xff\xff\x01",
		"a reserved code":  "\x81\xa3Any\xc1",
		"a cut size":       "\x81\xa3Any\xdd\xff",
		"two values":       "\x80\x80",
	} {
		begun := testserver.ProcessorTime(t)
		if err := Decode("msgpack", []byte(payload), new(job)); !isDecodeError(err) {
			t.Errorf("%s: got %v, want it undecodable", name, err)
		}
		if took := testserver.ProcessorTime(t) - begun; took > time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
	if err := Decode("json", []byte(`{"Any":`+strings.Repeat("[", 1<<20)), new(job)); !isDecodeError(err) {
		t.Errorf("deep JSON: got %v, want it undecodable", err)
	}
}

// nested returns lists within lists.
func nested(levels int) any {
	var v any = "x"
	for range levels {
		v = []any{v}
	}
	return v
}

// Nesting that is too deep is refused at the enqueue, and also when it is decoded.
func TestDepthIsBounded(t *testing.T) {
	type deep struct{ Any any }
	for _, encoding := range []string{MessagePack, JSON} {
		fits, err := Encode(encoding, deep{nested(maxDepth - 1)})
		if err != nil {
			t.Fatalf("%s: got %v, want %d levels encoded", encoding, err, maxDepth)
		}
		if err := Decode(encoding, fits, new(deep)); err != nil {
			t.Errorf("%s: got %v, want %d levels read", encoding, err, maxDepth)
		}
		_, err = ParametersOf(reflect.TypeFor[deep]()).Encode(encoding, deep{nested(maxDepth)})
		wantsTooDeep(t, encoding, err)
		payloads := map[string]string{
			MessagePack: "\x81\xa3Any" + strings.Repeat("\x91", maxDepth) + "\x01",
			JSON:        `{"Any":` + strings.Repeat("[", maxDepth) + "1" + strings.Repeat("]", maxDepth) + "}",
		}
		err = Decode(encoding, []byte(payloads[encoding]), new(deep))
		wantsTooDeep(t, encoding, err)
		if !isDecodeError(err) {
			t.Errorf("%s: got %v, want it undecodable", encoding, err)
		}
	}
	texts := deep{[]string{strings.Repeat("[{", maxDepth), `"` + strings.Repeat(`\"[`, maxDepth), `\`, "]"}}
	b, err := Encode("json", texts)
	if err != nil {
		t.Fatal(err)
	}
	if err := Decode("json", b, new(deep)); err != nil {
		t.Errorf("brackets in texts: got %v, want them read", err)
	}
}

func wantsTooDeep(t *testing.T, encoding string, err error) {
	t.Helper()
	var invalid *storage.InvalidError
	if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "at most 100 levels") {
		t.Errorf("%s: got %v, want an *storage.InvalidError that names the bound", encoding, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, encoding := range []string{"msgpack", "json"} {
		b, err := Encode(encoding, example())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoding, b)
	}
	f.Add("msgpack", []byte("\x81\xa3Any\xc7\x04\x01\xdd\xff\xff\xff"))
	f.Add("msgpack", []byte("\x82\xa3Any\xd6\xff\x00\x00\x00\x00\xa6Moment\x92\x01\x02"))
	f.Fuzz(func(t *testing.T, encoding string, data []byte) {
		var first, second kitchen
		if Decode(encoding, data, &first) != nil {
			return
		}
		first.Any = nil // its content need not be encodable
		b, err := Encode(encoding, &first)
		if err != nil {
			return // for example a JSON number beyond the range of years
		}
		if err := Decode(encoding, b, &second); err != nil {
			t.Fatalf("%s %q was read, written and then not read: %v", encoding, data, err)
		}
	})
}
