package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// shelf is a type whose data may be nested without end.
type shelf struct {
	Text string
	Any  any
	Next *shelf
	Kids map[string][]shelf
}

// TestDataNestedTooDeepNamesItsField: as far as the type knows the data, whose own names may be secret.
func TestDataNestedTooDeepNamesItsField(t *testing.T) {
	type data = map[string]any
	far := nested(maxDepth)
	chain := data{"Text": "x"}
	for range maxDepth {
		chain = data{"Text": `a\"[{`, "Next": chain}
	}
	for want, v := range map[string]any{
		"field Any of codec.shelf":                                      data{"Any": far, "Text": "before"},
		"field Next.Any of codec.shelf":                                 data{"Next": data{"Kids": data{}, "Any": []any{1, far}}},
		"field Kids[][].Any of codec.shelf":                             data{"Kids": data{"secret": []any{data{}, data{"Any": far}}}},
		"field Next of codec.shelf":                                     data{"Next": data{"secret": far}},
		"field Next.Next.Next.Next.Next.Next.Next.Next… of codec.shelf": chain,
		"value": data{"secret": far},
	} {
		asMsgpack, err1 := msgpack.Marshal(v)
		asJSON, err2 := json.Marshal(v)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		for encoding, payload := range map[string][]byte{MessagePack: asMsgpack, JSON: asJSON} {
			err := ParametersOf(reflect.TypeFor[shelf]()).Decode(encoding, payload, new(shelf))
			if text := fmt.Sprintf("codec.shelf from %s: invalid %s%s", encoding, want, tooDeep); err == nil || err.Error() != text {
				t.Errorf("got %v,\nwant %s", err, text)
			}
		}
	}
}

// TestOutputNestedTooDeepNamesItsField: the output of a field's encoder is counted too.
func TestOutputNestedTooDeepNamesItsField(t *testing.T) {
	type crate struct{ Raw []json.RawMessage }
	raw := json.RawMessage(strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1))
	_, err := Encode(JSON, crate{[]json.RawMessage{nil, raw}})
	wantPath(t, "a raw message", err, "Raw[]")
}

var errPicky = errors.New("no currency")

// Their encoders return an error for true.
type (
	picky        struct{ bad bool }
	pickyText    struct{ bad bool }
	pickyEncoder struct{ bad bool }
	pickies      struct {
		Own    picky
		Ptr    *picky
		List   []pickyEncoder
		Map    map[string]pickyText
		Keys   map[pickyText]int
		Any    any
		Inside struct{ Own pickyEncoder }
	}
)

func write(bad bool) ([]byte, error) {
	if bad {
		return nil, errPicky
	}
	return []byte("1"), nil
}

func (p picky) MarshalJSON() ([]byte, error)         { return write(p.bad) }
func (p *picky) UnmarshalJSON([]byte) error          { return nil }
func (p picky) MarshalBinary() ([]byte, error)       { return write(p.bad) }
func (p *picky) UnmarshalBinary([]byte) error        { return nil }
func (p pickyText) MarshalText() ([]byte, error)     { return write(p.bad) }
func (p *pickyText) UnmarshalText([]byte) error      { return nil }
func (p *pickyEncoder) MarshalJSON() ([]byte, error) { return write(p.bad) }
func (p *pickyEncoder) UnmarshalJSON([]byte) error   { return nil }
func (p *pickyEncoder) EncodeMsgpack(to *msgpack.Encoder) error {
	data, err := write(p.bad)
	return errors.Join(err, to.EncodeBytes(data))
}
func (p *pickyEncoder) DecodeMsgpack(from *msgpack.Decoder) error { return from.Skip() }

func TestAnEncodersErrorNamesItsField(t *testing.T) {
	for _, encoding := range []string{MessagePack, JSON} {
		for path, set := range map[string]func(v *pickies){
			"Own":        func(v *pickies) { v.Own.bad = true },
			"Ptr":        func(v *pickies) { v.Ptr = &picky{true} },
			"List[]":     func(v *pickies) { v.List = []pickyEncoder{{}, {true}} },
			"Map[]":      func(v *pickies) { v.Map = map[string]pickyText{"a": {true}} },
			"Keys[key]":  func(v *pickies) { v.Keys = map[pickyText]int{{true}: 1} },
			"Any":        func(v *pickies) { v.Any = picky{true} },
			"Any[]":      func(v *pickies) { v.Any = map[string]any{"a": []any{1}, "b": picky{true}} },
			"Any[].Own":  func(v *pickies) { v.Any = []any{picky{}, &pickies{Own: picky{true}}} },
			"Inside.Own": func(v *pickies) { v.Inside.Own.bad = true },
		} {
			v := pickies{Ptr: new(picky), List: make([]pickyEncoder, 1), Any: picky{}}
			if _, err := Encode(encoding, v); err != nil {
				t.Fatal(err)
			}
			set(&v)
			_, err := Encode(encoding, v)
			want := fmt.Sprintf("encode *codec.pickies as %s: field %s of codec.pickies: ", encoding, path)
			if !errors.Is(err, errPicky) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v,\nwant %s…", err, want)
			}
		}
		if _, err := Encode(encoding, picky{true}); !errors.Is(err, errPicky) || strings.Contains(err.Error(), "field") {
			t.Errorf("%s: got %v, want the error alone", encoding, err)
		}
	}
}
