package codec

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"
)

// moments has a moment wherever one can be.
type moments struct {
	graded

	At     time.Time
	Ptr    *time.Time
	List   []time.Time
	Fixed  [2]*time.Time
	Map    map[string]time.Time
	Keys   map[time.Time]int
	Ptrs   map[string]*time.Time
	Inner  struct{ At time.Time }
	Lists  map[string][]moment
	Any    any
	Anys   []any
	AnyMap map[string]any
	AnyKey map[any]any
	Next   *moments
	None   *time.Time
}

type moment struct{ When time.Time }

// liveIn sets the local zone for a test.
func liveIn(t *testing.T, zone *time.Location) {
	t.Helper()
	local := time.Local                      //nolint:gosmopolitan // the local zone is under test
	t.Cleanup(func() { time.Local = local }) //nolint:gosmopolitan // as above
	time.Local = zone                        //nolint:gosmopolitan // as above
}

func TestMessagePackReadsMomentsInUTC(t *testing.T) {
	zone := time.FixedZone("Chatham", 45900)
	liveIn(t, zone)
	at := time.Date(2026, 3, 8, 0, 30, 0, 123456789, zone)
	want := at.UTC()
	full := func(at time.Time) moments {
		return moments{
			At: at, Ptr: &at, List: []time.Time{at, at}, Fixed: [2]*time.Time{nil, &at}, Map: map[string]time.Time{"a": at},
			Keys: map[time.Time]int{at: 1, at.Add(1): 2}, Ptrs: map[string]*time.Time{"a": &at, "b": nil}, Inner: struct{ At time.Time }{at},
			Lists: map[string][]moment{"a": {{at}}}, Any: at, Anys: []any{at, []any{at}, map[string]any{"a": at}},
			AnyMap: map[string]any{"a": at, "b": []any{at}}, AnyKey: map[any]any{at: at, int64(1): []any{at}}, Next: &moments{At: at, Any: at},
		}
	}
	var got moments
	data, err := Encode(MessagePack, full(at))
	if err == nil {
		err = ParametersOf(reflect.TypeFor[moments]()).Decode(MessagePack, data, &got)
	}
	if err != nil || !reflect.DeepEqual(got, full(want)) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, full(want))
	}
	// Results and checkpoints are values of any type.
	for _, into := range []struct {
		v    any
		want any
	}{
		{new(time.Time), want}, {new(any), want}, {new(*time.Time), &want},
	} {
		data, err := Encode(MessagePack, at)
		if err == nil {
			err = Decode(MessagePack, data, into.v)
		}
		if got := reflect.ValueOf(into.v).Elem().Interface(); err != nil || !reflect.DeepEqual(got, into.want) {
			t.Errorf("into %T: got %v, %v; want %v", into.v, got, err, into.want)
		}
	}
	data, err = Encode(MessagePack, map[string]any{"a": at})
	var table map[string]any
	if err == nil {
		err = Decode(MessagePack, data, &table)
	}
	if err != nil || table["a"] != want {
		t.Errorf("in a map: got %v, %v; want %v", table, err, want)
	}
}

func TestIntegersOfAnyComeBack(t *testing.T) {
	type job struct {
		V     any
		List  []any
		Map   map[string]any
		Keys  map[any]any
		Lists map[string][]any
	}
	full := func(n any) job {
		return job{n, []any{n, []any{n}, map[string]any{"n": n}}, map[string]any{"n": n, "l": []any{n}}, map[any]any{n: n}, map[string][]any{"a": {n}}}
	}
	for _, given := range []any{
		0, 1, -1, 127, 128, 255, 256, -128, -129, 32767, 32768, 65535, 65536, math.MaxInt32, math.MaxUint32, int64(math.MaxUint32) + 1,
		math.MaxInt64, math.MinInt64, int8(-5), int16(300), int32(70000), uint8(200), uint16(60000), uint32(math.MaxUint32),
		uint64(math.MaxInt64), uint64(math.MaxInt64) + 1, uint64(math.MaxUint64), uint(7), time.Duration(616581622363398142),
	} {
		var want any
		switch v := reflect.ValueOf(given); {
		case v.CanInt():
			want = v.Int()
		case v.Uint() > math.MaxInt64:
			want = v.Uint()
		default:
			want = int64(v.Uint())
		}
		data, err := Encode(MessagePack, full(given))
		var got job
		if err == nil {
			err = ParametersOf(reflect.TypeFor[job]()).Decode(MessagePack, data, &got)
		}
		if err != nil || !reflect.DeepEqual(got, full(want)) {
			t.Errorf("%T %v: got %+v, %v; want %+v", given, given, got, err, full(want))
		}
		again, err := Encode(MessagePack, &got)
		var gotAgain job
		if err == nil {
			err = Decode(MessagePack, again, &gotAgain)
		}
		if err != nil || !reflect.DeepEqual(gotAgain, got) {
			t.Errorf("%v the second time: got %+v, %v; want %+v", given, gotAgain, err, got)
		}
	}
}

func TestNumbersOfAnyKeepTheirDigitsAsJSON(t *testing.T) {
	type job struct {
		V    any
		List []any
		Map  map[string]any
		F    float64
		N    int
	}
	for _, digits := range []string{"616581622363398142", "18446744073709551615", "-0.1", "1e400", "3", "1.50"} {
		n := json.Number(digits)
		want := job{V: n, List: []any{n, map[string]any{"a": n}}, Map: map[string]any{"a": []any{n}}, F: 0.5, N: 7}
		data, err := Encode(JSON, want)
		if err != nil {
			t.Fatal(err)
		}
		var got, result job
		var top any
		if err := ParametersOf(reflect.TypeFor[job]()).Decode(JSON, data, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", digits, got, err, want)
		}
		if err := Decode(JSON, data, &result); err != nil || !reflect.DeepEqual(result, want) {
			t.Errorf("%s as a result: got %+v, %v; want %+v", digits, result, err, want)
		}
		if err := DecodeShown([]byte(digits), &top); err != nil || top != n {
			t.Errorf("%s as progress: got %T %v, %v; want a json.Number", digits, top, top, err)
		}
		if again, err := Encode(JSON, &got); err != nil || string(again) != string(data) {
			t.Errorf("%s the second time: got %s, %v; want %s", digits, again, err, data)
		}
	}
	data, err := Encode(JSON, job{V: int64(616581622363398142)})
	var got job
	if err == nil {
		err = Decode(JSON, data, &got)
	}
	if err != nil || got.V != json.Number("616581622363398142") {
		t.Errorf("got %v, %v; want all digits of the integer", got.V, err)
	}
}

// A decoder that keeps the digits of numbers is as strict as json.Unmarshal, with the same errors.
func TestJSONOfAnyIsReadAsStrictly(t *testing.T) {
	type job struct {
		V any
		N int
	}
	for _, data := range []string{
		"", " ", "{", `{"V":1}{}`, `{"V":1} x`, `{"V":1},`, `{"V":01}`, `{"V":"a`, `{"V":"\x"}`, `{"N":"a"}`, `{"N":1.5}`, `{"N":1e99}`, `[1]`, `7`,
		`{"V":nul}`, `{"V":[1,]}`, "{\"V\":\"\n\"}", "\ufeff{}",
	} {
		var got, want job
		err, wantErr := DecodeShown([]byte(data), &got), json.Unmarshal([]byte(data), &want)
		if wantErr == nil || err == nil || err.Error() != wantErr.Error() {
			t.Errorf("%q: got %v, want %v", data, err, wantErr)
		}
		if !isDecodeError(Decode(JSON, []byte(data), &got)) {
			t.Errorf("%q was read as %+v", data, got)
		}
	}
	for _, data := range []string{` {"V":null} `, `{"V":{"a":[1,true,null,"x"]},"v":2}`, "null", `{"V":1e999}`} {
		var got job
		if err := Decode(JSON, []byte(data), &got); err != nil {
			t.Errorf("%q: got %v, want it read", data, err)
		}
	}
}

// These are the bytes that 2173b82 stored for the example: an upgrade changes none, so that unique keys and
// ids still distinguish tasks.
func TestStoredBytesStayAsTheyAre(t *testing.T) {
	for encoding, want := range map[string]string{
		MessagePack: "de0013a172a0a3416e7981a16ba176a3426967cfffffffffffffffffa3496e74d3ffffff0000000000a34d617082a16101a16202a4436f" +
			"7374c403312f33a44c69737492a161a0a454657874a96772c3bcc39f65000aa4546f6f6bcf00000014f46b0400a54279746573c40200ffa54669786564" +
			"920102a5466c6f6174cb400921fb54442d18a5496e6e657282a44e616d65a2696ea44e657874c0a5536d616c6cd080a55472757468c3a64d6f6d656e74" +
			"d7ff1d6f345469acdf28a64e756d626572c40137a7506f696e74657282a44e616d65a36f7574a44e65787482a44e616d65a0a44e657874c0a842794e75" +
			"6d6265728203a163ffa161",
		JSON: hex.EncodeToString([]byte(`{"Text":"grüße\u0000\n","Bytes":"AP8=","Int":-1099511627776,"Small":-128,` +
			`"Big":18446744073709551615,"Float":3.141592653589793,"Truth":true,"Moment":"2026-03-08T02:30:00.123456789Z","Took":90000000000,` +
			`"List":["a",""],"Fixed":[1,2],"Map":{"a":1,"b":2},"ByNumber":{"-1":"a","3":"c"},"Inner":{"Name":"in","Next":null},` +
			`"Pointer":{"Name":"out","Next":{"Name":"","Next":null}},"Any":{"k":"v"},"Number":7,"Cost":"1/3"}`)),
	} {
		b, err := ParametersOf(reflect.TypeFor[kitchen]()).Encode(encoding, example())
		if got := hex.EncodeToString(b); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", encoding, got, err, want)
		}
	}
}
