package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/storage"
)

type inner struct {
	Name string
	At   time.Time
}

type order struct {
	ID      int64
	Big     uint64
	Small   int8
	Price   float64
	Weight  float32
	Raw     []byte
	Placed  time.Time
	Paid    bool
	Note    *string
	Tags    []string
	Lines   []inner
	ByNum   map[int]string
	ByName  map[string]float32
	Any     any
	Span    time.Duration
	Numbers []float64
}

func anOrder() order {
	at := time.Date(2026, 11, 23, 4, 5, 6, 789_000_000, time.UTC)
	return order{
		ID: math.MaxInt64, Big: math.MaxUint64, Small: -128, Price: 3, Weight: 0.1, Raw: []byte{0, 1, 255}, Placed: at,
		Paid: true, Tags: []string{"a", "\x1b[31m"}, Lines: []inner{{"x", at}, {"y", at.Truncate(time.Second)}},
		ByNum: map[int]string{-7: "seven"}, ByName: map[string]float32{"$half": 0.5}, Any: int64(5), Span: time.Second,
		Numbers: []float64{1, 2.5},
	}
}

func encoded(t *testing.T, encoding string, v any) []byte {
	t.Helper()
	b, err := codec.Encode(encoding, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParametersAreShownAsJSON(t *testing.T) {
	got, err := JSON(codec.MessagePack, encoded(t, codec.MessagePack, anOrder()))
	want := `{"ID":9223372036854775807,"Big":18446744073709551615,"Small":-128,"Price":3.0,"Weight":0.1,` +
		`"Raw":{"$bytes":"AAH/"},"Placed":"2026-11-23T04:05:06.789Z","Paid":true,"Note":null,` +
		`"Tags":["a","\u001b[31m"],"Lines":[{"Name":"x","At":"2026-11-23T04:05:06.789Z"},` +
		`{"Name":"y","At":"2026-11-23T04:05:06Z"}],"ByNum":{"-7":"seven"},"ByName":{"$$half":0.5},"Any":5,` +
		`"Span":1000000000,"Numbers":[1.0,2.5]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	got, err = JSON(codec.JSON, []byte(" {\"b\": 12345678901234567890,\"a\":\"\u009b\xff\"}\n"))
	if want := `{"b":12345678901234567890,"a":"\u009b\ufffd"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestWhatJSONCannotHoldStandsInAnObject(t *testing.T) {
	for given, want := range map[string]string{
		"\xa1\x80":                             `{"$text":"gA=="}`,
		"\xca\x7f\xc0\x00\x00":                 `{"$float":"NaN"}`,
		"\xcb\xff\xf0\x00\x00\x00\x00\x00\x00": `{"$float":"-Inf"}`,
		"\xd4\x05\x01":                         `{"$extension":[5,"AQ=="]}`,
		"\xc7\x03\x05\x01\x02\x03":             `{"$extension":[5,"AQID"]}`,
		"\x82\xc3\x01\xc0\x02":                 `{"$map":[[true,1],[null,2]]}`,
		"\x82\x01\x02\xa11\x03":                `{"$map":[[1,2],["1",3]]}`,
		"\xcb\x44\x4b\x1a\xe4\xd6\xe2\xef\x50": `1e+21`,
		"\xc0":                                 `null`,
		"\xc7\x0c\xff\x00\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff": `{"$extension":[-1,"AAAAAH//////////"]}`,
	} {
		shown, err := JSON(codec.MessagePack, []byte(given))
		if err != nil || string(shown) != want {
			t.Errorf("%x: got %s, %v, want %s", given, shown, err, want)
			continue
		}
		for _, like := range [][]byte{[]byte(given), nil} {
			back, err := Encode(codec.MessagePack, shown, like)
			if (like != nil || given[0] != 0xca) && (err != nil || string(back) != given) {
				t.Errorf("%s: got %x, %v, want %x", shown, back, err, given)
			}
		}
	}
}

func TestAnEditIsReadByTheJob(t *testing.T) {
	for _, encoding := range []string{codec.MessagePack, codec.JSON} {
		was := anOrder()
		like := encoded(t, encoding, was)
		shown, err := JSON(encoding, like)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer(
			`"Small":-128`, `"Small":7`, `"Price":3.0`, `"Price":4`, `"Price":3,`, `"Price":4,`, `"Weight":0.1`, `"Weight":2`,
			`2026-11-23T04:05:06.789Z`, `2027-01-02T03:04:05.5+01:00`, `"a",`, `"a","b",`, `"seven"`, `"seven","8":"eight"`,
			`[1.0,2.5]`, `[1,2,3]`, `[1,2.5]`, `[1,2,3]`, `"Note":null`, `"Note":"new"`, `0.5}`, `0.5,"more":1}`,
		).Replace(string(shown))
		edited, err := Encode(encoding, []byte(text), like)
		if err != nil {
			t.Fatalf("%s: %v", encoding, err)
		}
		var got order
		if err := codec.Decode(encoding, edited, &got); err != nil {
			t.Fatalf("%s: %v", encoding, err)
		}
		want, note := anOrder(), "new"
		at := time.Date(2027, 1, 2, 2, 4, 5, 500_000_000, time.UTC)
		want.Small, want.Price, want.Weight, want.Placed, want.Note = 7, 4, 2, at, &note
		want.Tags, want.Numbers, want.Lines[0].At = []string{"a", "b", "\x1b[31m"}, []float64{1, 2, 3}, at
		want.ByNum[8], want.ByName["more"] = "eight", 1
		utc := func(at *time.Time) { *at = at.UTC() }
		utc(&got.Placed)
		utc(&got.Lines[0].At)
		utc(&got.Lines[1].At)
		if encoding == codec.JSON {
			want.Any = json.Number("5")
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v\nwant %+v", encoding, got, want)
		}
	}
}

func TestAnEditOfAnotherTypeIsRefused(t *testing.T) {
	like := encoded(t, codec.MessagePack, anOrder())
	for given, want := range map[string]string{
		`{"ID":"7"}`:                         `invalid parameter ID "7": want an integer`,
		`{"ID":1.5}`:                         `invalid parameter ID 1.5: want an integer`,
		`{"ID":18446744073709551616}`:        `invalid parameter ID 18446744073709551616: want an integer`,
		`{"Raw":"text"}`:                     "invalid parameter Raw \"text\": want bytes as {\"$bytes\":\"base64\"}",
		`{"Raw":{"$bytes":"?"}}`:             "invalid parameter Raw \"?\": want bytes as {\"$bytes\":\"base64\"}",
		`{"Placed":"yesterday"}`:             `invalid parameter Placed "yesterday": want a time in RFC 3339`,
		`{"Lines":[{"Name":5}]}`:             `invalid parameter Lines.0.Name 5: want a text`,
		`{"Tags":["a",5]}`:                   `invalid parameter Tags.1 5: want a text`,
		`{"ByNum":{"x":"y"}}`:                `invalid parameter ByNum "x": want an integer`,
		`{"Paid":0}`:                         `invalid parameter Paid 0: want true or false`,
		`[1]`:                                `invalid parameters "a list": want an object`,
		`{"ID":1} 2`:                         `invalid parameters "with more behind the first value": want one value of JSON`,
		`{"ID":`:                             `invalid parameters "that are no JSON behind byte 6": want JSON`,
		`{"ID":{"$big":1}}`:                  `invalid member "$big": want a name without $, or $$big for one that begins with it`,
		strings.Repeat("[", 120):             `invalid parameters "a list": want an object`,
		`{"Any":` + strings.Repeat("[", 200): `invalid parameter Any "a list": want an integer`,
	} {
		got, err := Encode(codec.MessagePack, []byte(given), like)
		var invalid *storage.InvalidError
		if !errors.As(err, &invalid) || err.Error() != want {
			t.Errorf("%s: got %x, %v, want %s", given, got, err, want)
		}
	}
	if _, err := Encode(codec.MessagePack, []byte(strings.Repeat("[", 200)), nil); err == nil || !strings.Contains(err.Error(), "100 levels") {
		t.Errorf("got %v, want a bound of levels", err)
	}
	if _, err := Encode("xml", []byte("1"), nil); err == nil {
		t.Error("an unknown encoding was written")
	}
	var damaged *DamagedError
	if _, err := Encode(codec.MessagePack, []byte("1"), []byte{0xc1}); !errors.As(err, &damaged) {
		t.Errorf("got %v, want a *DamagedError", err)
	}
}

// TestAnEditOfAnUndecodableTaskMayChangeTypes edits parameters whose types are the fault.
func TestAnEditReplacesParametersThatNobodyCanRead(t *testing.T) {
	for encoding, text := range map[string]string{codec.MessagePack: "\x82\xa2To\xa3a@", codec.JSON: `{"To":"a@`} {
		task := storage.Task{Reason: storage.ReasonUndecodable + ": cut short"}
		task.Encoding, task.Payload = encoding, []byte(text)
		edited, err := Edit(&task, []byte(`{"To":"ann","Number":7}`))
		var got struct {
			To     string
			Number int64
		}
		if err = errors.Join(err, codec.Decode(encoding, edited, &got)); err != nil || got.To != "ann" || got.Number != 7 {
			t.Errorf("%s: got %+v, %v", encoding, got, err)
		}
		task.Reason = ""
		if _, err := Edit(&task, []byte(`{"To":"ann"}`)); !errors.As(err, new(*DamagedError)) {
			t.Errorf("%s: without the reason: %v, want a DamagedError", encoding, err)
		}
	}
}

func TestAnEditOfAnUndecodableTaskMayChangeTypes(t *testing.T) {
	type fixed struct {
		Number int64
		Rate   float64
		To     string
		At     time.Time
		Lines  []int
		ByName map[string]int
	}
	wrong := map[string]any{
		"Number": "seven", "Rate": 3.0, "To": 5.0, "At": time.Unix(7, 0), "Lines": map[string]int{"a": 1},
		"ByName": map[int]string{7: "a"},
	}
	text := []byte(`{"Number":77,"Rate":4,"To":"x","At":"2026-11-23T04:05:06Z","Lines":[1,2],"ByName":{"b":2}}`)
	want := fixed{77, 4, "x", time.Date(2026, 11, 23, 4, 5, 6, 0, time.UTC), []int{1, 2}, map[string]int{"b": 2}}
	for _, encoding := range []string{codec.MessagePack, codec.JSON} {
		for _, was := range []any{wrong, []any{wrong}} {
			task := storage.Task{Reason: storage.ReasonUndecodable + ": got a string"}
			task.Encoding, task.Payload = encoding, encoded(t, encoding, was)
			edited, err := Edit(&task, text)
			if err != nil {
				t.Fatalf("%s: %v", encoding, err)
			}
			var got fixed
			if reflect.TypeOf(was).Kind() == reflect.Slice {
				edited, err = Edit(&task, bytes.Replace(text, []byte(`"At":"2026-11-23T04:05:06Z",`), nil, 1))
				got.At = want.At // nothing in a list is an example of a moment
			}
			err = errors.Join(err, codec.Decode(encoding, edited, &got))
			if got.At = got.At.UTC(); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, %v, want %+v", encoding, got, err, want)
			}
			task.Reason = "out of retries"
			if _, err := Edit(&task, text); err == nil {
				t.Errorf("%s: other parameters changed their types", encoding)
			}
		}
	}
}

func TestDamagedBytesAreATypedError(t *testing.T) {
	for encoding, all := range map[string][]string{
		codec.MessagePack: {"", "\xc1", "\x93\x01", "\xdd\xff\xff\xff\xff", strings.Repeat("\x91", 200) + "\x01", "\x01\x01", "\xd9"},
		codec.JSON:        {"", "{", "[1,]", "1 2", strings.Repeat("[", 200) + strings.Repeat("]", 200), "nul"},
		"xml":             {"<a/>"},
	} {
		for _, bad := range all {
			got, err := JSON(encoding, []byte(bad))
			var damaged *DamagedError
			if !errors.As(err, &damaged) || len(got) > 0 {
				t.Errorf("%s %q: got %q, %v, want a *DamagedError", encoding, bad, got, err)
			}
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	for _, v := range []any{anOrder(), map[any]any{1: true, "a": nil}, []any{1.5, float32(2), "x", []byte("b"), time.Now()}} {
		b, err := msgpack.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "{}")
	}
	f.Add([]byte("\x82\xa2$a\x01\xa1b\xd4\x05\x01"), `{"$$a":2,"b":{"$extension":[5,"AQ=="]}}`)
	f.Fuzz(func(t *testing.T, data []byte, edit string) {
		shown, err := JSON(codec.MessagePack, data)
		if err != nil {
			return
		}
		if !json.Valid(shown) {
			t.Fatalf("%x is shown as %s, which is no JSON", data, shown)
		}
		back, err := Encode(codec.MessagePack, shown, data)
		if err != nil {
			t.Fatalf("%s: %v", shown, err)
		}
		again, err := JSON(codec.MessagePack, back)
		if err != nil || !bytes.Equal(again, shown) {
			t.Fatalf("%x is shown as %s, and written back as %x: %s, %v", data, shown, back, again, err)
		}
		edited, err := Encode(codec.MessagePack, []byte(edit), data)
		if err != nil {
			return
		}
		if _, err := JSON(codec.MessagePack, edited); err != nil {
			t.Fatalf("%q as an edit of %x is %x: %v", edit, data, edited, err)
		}
	})
}

// TestALargeEditOfALargePayloadEnds checks an edit with many lists, each of which takes its types from the
// same long list.
func TestALargeEditOfALargePayloadEnds(t *testing.T) {
	long := make([]int, 20_000)
	like := encoded(t, codec.MessagePack, [][]int{long})
	text := []byte("[" + strings.Repeat("[1],", 50_000) + "[2]]")
	got, err := Encode(codec.MessagePack, text, like)
	if err != nil || len(got) < 100_000 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}
