package codec

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/midgehq/midge/internal/testserver"
)

// grove is a map of its own kind.
type grove map[string]grove

// In the place of a map, the library reads a map from the body of an extension.
func TestAnExtensionIsNoMap(t *testing.T) {
	type inner struct{ Map map[int]int }
	type job struct {
		Any   map[string]any
		Text  map[string]string
		Typed map[string]inner
		Tree  grove
		List  []map[string]any
		Lists map[string][]*grove
		In    *inner
		Key   map[any]int
		At    time.Time
	}
	type list struct {
		_msgpack struct{} `msgpack:",as_array"`
		N        int
		Map      map[string]any
	}
	_ = list{}._msgpack
	decode := func(payload string, v any, want string) {
		t.Helper()
		begun := testserver.ProcessorTime(t)
		err := Decode(MessagePack, []byte(payload), v)
		if !isDecodeError(err) || !strings.Contains(err.Error(), "got extension"+want) {
			t.Errorf("%.20q: got %v, want the extension%s refused", payload, err, want)
		}
		if took := testserver.ProcessorTime(t) - begun; took > time.Second {
			t.Errorf("%.20q: took %v", payload, took)
		}
	}
	for name, ext := range map[string]string{
		"an endless map":  "\xc9\x00\x00\x00\x05\x05\xdf\x00\x0f\xff\xff",
		"a large map":     "\xc7\x03\xff\xde\xff\xff",
		"a map of 16 bit": "\xc8\x00\x03\x05\xde\xff\xff",
		"a small map":     "\xd4\x05\x81",
		"a deep map":      "\xc9\x00\x01\x86\xa3\x05\x81\xa1a" + strings.Repeat("\x91", 100_000),
	} {
		decode("\x82\xa1N\x01"+ext+"\x80", new(job), `, want string`) // in the place of a name
		if err := Decode(MessagePack, []byte("\x81\xa1x"+ext), new(job)); err != nil {
			t.Errorf("%s in a field that is not read: got %v, want nil", name, err)
		}
		decode("\x81\xa3Any"+ext, new(job), ` for field "Any", want map[string]`)
		decode("\x81\xa4Text"+ext, new(job), ` for field "Text"`)
		decode("\x81\xa5Typed"+ext, new(job), ` for field "Typed"`)
		decode("\x81\xa5Typed\x81\xa1a\x81\xa3Map"+ext, new(job), ` for field "Typed.Map", want map[int]int`)
		decode("\x81\xa4Tree\x81\xa1a\x81\xa1b"+ext, new(job), ` for field "Tree", want codec.grove`)
		decode("\x81\xa4List\x92\x80"+ext, new(job), ` for field "List"`)
		decode("\x81\xa5Lists\x81\xa1a\x91"+ext, new(job), ` for field "Lists"`)
		decode("\x81\xa2In\x81\xa3Map"+ext, new(job), ` for field "In.Map"`)
		decode("\x81\xa3Key"+ext, new(job), ` for field "Key"`)
		decode("\x92\x01"+ext, new(list), ``)
		decode(ext, new(map[string]any), `, want map[string]`)
		decode(ext, new(grove), `, want codec.grove`)
	}
	at := time.Unix(1, 999_999_999).UTC()
	data, err := Encode(MessagePack, job{At: at, Any: map[string]any{"a": at}, Key: map[any]int{at: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var back job
	if err := Decode(MessagePack, data, &back); err != nil || back.At != at || back.Any["a"] != at || back.Key[at] != 1 {
		t.Errorf("got %v, %v; want the moments", back, err)
	}
}

// counted is a map without methods, for which the test registers an extension.
type counted map[string]int

func TestARegisteredExtensionMayBeAMap(t *testing.T) {
	msgpack.RegisterExtEncoder(7, (*counted)(nil), func(_ *msgpack.Encoder, v reflect.Value) ([]byte, error) {
		return []byte{byte(v.Elem().Len())}, nil
	})
	msgpack.RegisterExtDecoder(7, (*counted)(nil), func(d *msgpack.Decoder, v reflect.Value, size int) error {
		v.Elem().Set(reflect.ValueOf(make(counted)))
		return d.ReadFull(make([]byte, size))
	})
	t.Cleanup(func() { msgpack.UnregisterExt(7) })
	var back struct{ Map counted }
	if err := Decode(MessagePack, []byte("\x81\xa3Map\xd4\x07\x01"), &back); err != nil || back.Map == nil {
		t.Errorf("got %v, %v; want the map", back.Map, err)
	}
}

// TestAListIsNoStruct has lists where the type has a struct, at each depth.
func TestAListIsNoStruct(t *testing.T) {
	type point struct{ X, Y int }
	type job struct {
		At    point
		To    *point
		Path  []point
		ByKey map[string]point
		Names []string
	}
	for _, c := range []struct {
		v    any
		want string
	}{
		{[]any{}, "want codec.job"},
		{[]any{1, 2, 3, 4, 5}, "want codec.job"},
		{map[string]any{"At": []int{1, 2}}, `for field "At", want codec.point`},
		{map[string]any{"At": make([]int, 20)}, `for field "At", want codec.point`},
		{map[string]any{"Names": []string{"a"}, "To": []int{}}, `for field "To", want codec.point`},
		{map[string]any{"Path": []any{map[string]int{"X": 1}, []int{1, 2}}}, `for field "Path", want codec.point`},
		{map[string]any{"ByKey": map[string]any{"a": []int{1, 2}}}, `for field "ByKey", want codec.point`},
	} {
		data, err := Encode(MessagePack, c.v)
		if err != nil {
			t.Fatal(err)
		}
		var got job
		err = Decode(MessagePack, data, &got)
		if !isDecodeError(err) || !strings.Contains(err.Error(), "got array") || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%v: got %+v, %v; want %s", c.v, got, err, c.want)
		}
	}
	want := job{At: point{1, 2}, To: &point{3, 4}, Path: []point{{5, 6}}, ByKey: map[string]point{"a": {7, 8}}, Names: []string{"é"}}
	data, err := Encode(MessagePack, want)
	if err != nil {
		t.Fatal(err)
	}
	var got job
	if err := Decode(MessagePack, data, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// ratio is written as a list by functions that are registered with the library: its parts in the other order.
type ratio struct {
	Small int8
	Large int
}

func TestARegisteredStructMayBeAList(t *testing.T) {
	msgpack.Register(ratio{}, func(e *msgpack.Encoder, v reflect.Value) error {
		return e.EncodeMulti([]int64{v.Field(1).Int(), v.Field(0).Int()})
	}, func(d *msgpack.Decoder, v reflect.Value) error {
		var parts []int64
		err := d.Decode(&parts)
		if err == nil {
			v.Field(1).SetInt(parts[0])
			v.Field(0).SetInt(parts[1])
		}
		return err
	})
	type job struct {
		Of   ratio
		Many []ratio
	}
	want := job{Of: ratio{1, 1000}, Many: []ratio{{2, 2000}}}
	data, err := Encode(MessagePack, want)
	if err != nil {
		t.Fatal(err)
	}
	var got job
	if err := Decode(MessagePack, data, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
